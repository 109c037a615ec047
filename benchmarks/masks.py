"""Actions that the environment masks are never sampled, whatever a network computes.

``python benchmarks/masks.py --steps 1000000`` takes an untrained network and random numbers for node embeddings, from
zeros to such that clip every logit, and lets it sample tours, in float32 and with bfloat16 products, until each of the
48 variants has met that many decisions (steps with a choice). Every action is then judged by the masks of the
environment that follows the tours again, and the tours of an instance of each batch by the exact checker. It prints a
line for one and for three depots and each precision; the exit code is 1 if an action was masked, a log-likelihood is
not finite or a tour broke a rule. Tours whose forced first customer is illegal (``skipped``) are judged from the next
action on, and not by the checker. It runs on a GPU where there is one.
"""

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor

from polarvrp.config.model import ModelConfig
from polarvrp.decoding.engine import Engine, make_engine
from polarvrp.decoding.rollout import Rollout, multi_start, with_greedy_row
from polarvrp.decoding.sampling import Sampler
from polarvrp.decoding.steps import is_decision
from polarvrp.environment.environment import Environment
from polarvrp.environment.state import entries_of
from polarvrp.model.policy import Policy
from polarvrp.model.precision import bfloat16_products
from polarvrp.model.registry import build_policy
from polarvrp.problem.instances import Instances, to_arrays
from polarvrp.problem.torch_generator import generate_batch
from polarvrp.problem.tours import check_tour, flat_actions
from polarvrp.problem.variants import MULTI_DEPOT_COUNT, VARIANTS
from polarvrp.seeds import derive_seed
from polarvrp.tolerances import POLICY_TOLERANCE

SCALES = (0.0, 0.3, 3.0, 100.0)
"""Deviations of the embeddings: equal probabilities, usual ones, and logits of -10 and 10 only."""


@dataclass(slots=True)
class Count:
    """What was sampled, and what was wrong with it.

    Attributes:
        decisions: By variant, actions where several were legal.
        tours: Tours, those with an illegal forced first customer included.
        skipped: Tours with one.
        checked: Tours that the exact checker looked at.
        masked: Actions that the environment forbids, and tours without an end.
        not_finite: Tours without a finite log-likelihood.
        broken: Tours that break a rule for the checker.
    """

    decisions: Counter[str] = field(default_factory=Counter)
    tours: int = 0
    skipped: int = 0
    checked: int = 0
    masked: int = 0
    not_finite: int = 0
    broken: int = 0

    @property
    def faults(self) -> int:
        return self.masked + self.not_finite + self.broken

    def __str__(self) -> str:
        return (
            f"at least {min(self.decisions.values())} decisions a variant, {self.tours} tours ({self.skipped} skipped, "
            f"{self.checked} checked): {self.masked} masked, {self.not_finite} not finite, {self.broken} broken"
        )


def judge_actions(environment: Environment, actions: Tensor, num_forced: int) -> tuple[Tensor, int]:
    """Follow given actions.

    Args:
        environment: The instances.
        actions: Int64, ``[B, S, T]``.
        num_forced: First actions that nobody chose.

    Returns:
        Decisions among the others, int64, ``[B]``; how many of them are masked, and tours that miss a customer.
    """
    state = environment.reset(actions.shape[1])
    decisions, masked = torch.zeros_like(actions[:, 0, 0]), torch.zeros_like(actions[0, 0, 0])
    for index, action in enumerate(actions.unbind(-1)):
        if index >= num_forced:
            decisions += is_decision(environment, state).sum(1)
            masked += (~entries_of(state.mask, action) & ~environment.all_served(state)).sum()
        state = environment.step(state, action)
    return decisions, int(masked + (~environment.all_served(state)).sum())


def broken_tours(instances: Instances[Tensor], tours: Rollout, index: int) -> list[bool]:
    """Whether each tour of an instance breaks a rule, those with an illegal forced first customer apart."""
    arrays, depots = to_arrays(instances[[index]]), instances.num_depots
    actions = tours.actions[index, tours.legal[index]].tolist()
    reports = [check_tour(arrays, 0, flat_actions(tour, depots), POLICY_TOLERANCE) for tour in actions]
    return [report.first_problem is not None for report in reports]


def sample_batch(
    engine: Engine, policy: Policy, instances: Instances[Tensor], generator: torch.Generator, count: Count
) -> None:
    """Sample tours of a batch, as a training does, and judge them."""
    environment, device = Environment(instances), instances.locs.device
    starts = with_greedy_row(multi_start(environment))
    scales = torch.tensor(SCALES, device=device)[torch.arange(len(instances), device=device) % len(SCALES)]
    shape = (len(instances), instances.num_nodes, policy.config.width)
    embeddings = scales[:, None, None] * torch.randn(shape, generator=generator, device=device)
    tours = engine.rollout(policy, embeddings, environment, starts, Sampler(generator), greedy_last=True)
    decisions, masked = judge_actions(environment, tours.actions, starts.shape[1])
    names = {variant.flags: name for name, variant in VARIANTS.items()}
    for flags, made in zip(instances.flags.tolist(), decisions.tolist(), strict=True):
        count.decisions[names[tuple(flags)]] += made
    broken = broken_tours(
        instances, tours, int(torch.randint(len(instances), (1,), generator=generator, device=device))
    )
    count.tours += tours.legal.numel()
    count.skipped += int((~tours.legal).sum())
    count.checked += len(broken)
    count.masked += masked
    count.not_finite += int((~tours.log_likelihood.isfinite()).sum())
    count.broken += sum(broken)


def sample(
    num_depots: int, bfloat16: bool, steps: int, num_customers: int, batch_size: int, device: torch.device, seed: int
) -> Count:
    """Sample that many decisions of every variant with ``num_depots`` depots, all in one batch."""
    variants = [name for name, variant in VARIANTS.items() if variant.num_depots == num_depots]
    config = ModelConfig(backbone="polarnet", encoder="shared", width=32, heads=2, layers=1, feedforward_width=32)
    policy = build_policy(config, 0).eval().to(device)
    kinds = {VARIANTS[name].kind for name in variants}
    engine = make_engine(policy, num_customers + num_depots, bfloat16=bfloat16, kinds=kinds)
    count = Count(Counter(dict.fromkeys(variants, 0)))
    generator = torch.Generator(device).manual_seed(derive_seed(seed, num_depots, str(bfloat16)))
    with bfloat16_products(device, bfloat16):
        while min(count.decisions.values()) < steps:
            instances = generate_batch(num_customers, batch_size, generator, device, variants)
            sample_batch(engine, policy, instances, generator, count)
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--num-customers", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    faults = 0
    for num_depots in (1, MULTI_DEPOT_COUNT):
        for bfloat16 in (False, True):
            started_s = time.monotonic()
            size = (options.num_customers, options.batch_size)
            count = sample(num_depots, bfloat16, options.steps, *size, device, options.seed)
            faults += count.faults
            kind = f"{num_depots} depot(s), {'bfloat16' if bfloat16 else 'float32'} on {device}"
            print(f"{kind}, {time.monotonic() - started_s:.0f} s: {count}", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
