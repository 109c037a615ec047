"""Checks of the rollout and replay kernels against environment and network.

Shape legend: B instances, S tours per instance, T actions.
"""

import torch
from torch import Tensor

from polarvrp.decoding.fused.checks.verdicts import KernelSetting, KernelVerdict, milliseconds_of
from polarvrp.decoding.fused.packing import TILE, Segments
from polarvrp.decoding.fused.rollout import fused_replay, fused_rollout
from polarvrp.decoding.greedy_check import forgone_problem
from polarvrp.decoding.rollout import multi_start, replay_actions, with_greedy_row
from polarvrp.decoding.sampling import Sampler
from polarvrp.decoding.scoring import score
from polarvrp.environment.environment import Environment
from polarvrp.model.precision import bfloat16_products

MEAN_ERRORS = {torch.bfloat16: 0.01, torch.float32: 1e-4}
"""Largest mean errors of log-likelihoods, by the dtype of operands."""

MARGIN = 1.2
"""How many times the error of level ``parallel`` in the same precision passes as well."""


@torch.no_grad()
def random_tours(environment: Environment, num_rows: int, generator: torch.Generator) -> Tensor:
    """Uniformly random legal tours, padded with depots, int64, ``[B, S, T]``."""
    state = environment.reset(num_rows)
    actions = []
    while not bool(environment.done(state).all()):
        weights = state.mask.flatten(0, 1).float()
        action = torch.multinomial(weights, 1, generator=generator).view_as(state.current)
        action = torch.where(environment.all_served(state), state.depot, action)
        actions.append(action)
        state = environment.step(state, action)
    return torch.stack(actions, dim=-1)


def check_replay(setting: KernelSetting, num_tours: int) -> KernelVerdict:
    """Replay of random legal tours and of as many with two actions swapped; the error counts differing results."""
    environment = setting.environment()
    legal = random_tours(environment, num_tours, setting.generator(3))
    swapped = legal.clone()
    swapped[..., [0, 2]] = legal[..., [2, 0]]
    actions = torch.cat((legal, swapped), dim=1)
    length = actions.shape[1] * actions.shape[2]

    def run() -> tuple[Tensor, Tensor, Segments]:
        return fused_replay(environment, actions, 1, length)

    cost, is_legal, segments = run()
    wanted = replay_actions(environment, actions, num_free=1)
    wrong = (is_legal != wanted.legal) | (is_legal & (cost != wanted.cost))
    assert wanted.moves is not None
    decisions = wanted.moves.decided.sum((1, 2))
    wrong_decisions = (segments.count.sum(1) - decisions).abs().sum()
    error = float(wrong.sum() + wrong_decisions)
    return KernelVerdict(f"replay {num_tours}", error, 0.0, milliseconds_of(run, setting.device))


def check_rollout(setting: KernelSetting, head: str, sampled: bool) -> KernelVerdict:
    """Rollout as in trainings, or greedy as in inference, twice; the error is the mean one of log-likelihoods."""
    environment, policy = setting.environment(), setting.policy(head)
    embeddings = setting.embeddings(environment)
    starts = multi_start(environment, setting.max_starts)
    if sampled and environment.num_depots == 1:  # with several the row names the first one twice, which is illegal
        starts = with_greedy_row(starts)
    generator = setting.generator(4)
    length = TILE * environment.max_actions if sampled else None

    def run() -> tuple[Tensor, Tensor, Tensor]:
        generator.manual_seed(4)
        sampler = Sampler(generator) if sampled else None
        with bfloat16_products(setting.device, setting.bfloat16):
            tours = fused_rollout(
                policy, embeddings, environment, starts, sampler, greedy_last=sampled, record_length=length
            )
        return tours.actions, tours.cost, tours.log_likelihood

    actions, cost, likelihood = first = run()
    repeated = all(torch.equal(one, other) for one, other in zip(first, run(), strict=True))
    replayed = replay_actions(environment, actions, num_free=starts.shape[1])
    assert replayed.moves is not None
    steps, instances, legal = replayed.moves.pack(), environment.instances, replayed.legal
    expected = score(policy, embeddings.float(), instances, steps)
    with bfloat16_products(setting.device, setting.bfloat16):
        rounded = score(policy, embeddings, instances, steps)
    error, allowed = (float((found - expected)[legal].abs().mean()) for found in (likelihood, rounded))
    bar = max(MEAN_ERRORS[setting.dtype], MARGIN * allowed)
    fault = None if repeated else "two equal runs differ"
    fault = fault if torch.equal(legal, cost.isfinite()) else "tours break a rule"
    fault = fault if torch.equal(replayed.cost[legal], cost[legal]) else "costs differ from those of a replay"
    if fault is None and not sampled:
        fault = forgone_problem(policy, embeddings, instances, steps, legal, bfloat16=setting.bfloat16)
    name = f"rollout {head} {'sampled' if sampled else 'greedy'}"
    return KernelVerdict(name, error, bar, milliseconds_of(run, setting.device), fault)
