"""Tours built by a network under a time limit: as many starts and symmetries as it allows.

Greedy decoding as in ``decoding.greedy``, but in rounds that grow with the rate measured so far, and given up at the
deadline.

Shape legend: A symmetries, S starts, N nodes.
"""

import copy
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from polarvrp.decoding.rollout import StepFunction, StepOutput, Task, multi_start, policy_step, rollout_loop
from polarvrp.environment.environment import Environment
from polarvrp.environment.state import State
from polarvrp.errors import InfeasibleTourError
from polarvrp.model.policy import DecoderCache, Policy
from polarvrp.model.precision import bfloat16_products
from polarvrp.problem.instances import Instances
from polarvrp.problem.symmetries import NUM_SYMMETRIES, augment
from polarvrp.problem.tours import flat_tours

FIRST_STARTS = 8
"""Of the first round, which measures the rate."""

LEAST_GROWTH = 2
"""A further round must decode so many times the tours of the last one, since it decodes some of them again."""

STEPS_TO_MEASURE = 10
"""After which a rollout's rate is known well enough to give it up early."""

ENTRIES_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Tours times nodes decoded at once: bounds the memory of a step."""

CANDIDATES = 16
"""Best tours of a round in the unit square; which of them is best in the file's numbers, the caller finds out."""


@dataclass(frozen=True, slots=True)
class BuiltTours:
    """Tours that a network built.

    Attributes:
        tours: The best tours in flat form, by length in the unit square; empty if none was finished in time.
        starts: First customers tried under each symmetry in the largest finished round.
        symmetries: Of that round.
    """

    tours: tuple[tuple[int, ...], ...]
    starts: int
    symmetries: int


class _OutOfTimeError(Exception):
    """The deadline came before the end of a rollout."""


@torch.inference_mode()
def construct(policy: Policy, instance: Instances[Tensor], deadline_s: float, bfloat16: bool) -> BuiltTours:
    """Build tours of one instance until all starts under all symmetries are done, or the deadline comes.

    Args:
        policy: On the instance's device.
        instance: A batch of one.
        deadline_s: On the clock of ``time.monotonic``.
        bfloat16: Whether matrix products run in bfloat16.

    Raises:
        InfeasibleTourError: If a customer cannot be served in the numbers of the network.
    """
    environment = Environment(instance)
    if not bool(environment.servable().all()):
        raise InfeasibleTourError("a customer cannot be served alone in the network's rounding of the file's numbers")
    best: dict[tuple[int, ...], float] = {}
    all_starts, reached = instance.num_customers, (0, 0)
    starts, symmetries = min(FIRST_STARTS, all_starts), 1
    try:
        while True:
            round_s = time.monotonic()
            with bfloat16_products(instance.locs.device, bfloat16):
                for symmetry in range(symmetries):
                    best |= _decode(policy, environment, symmetry, starts, deadline_s)
            reached = (starts, symmetries)
            now_s = time.monotonic()
            affordable = int(starts * symmetries * (deadline_s - now_s) / max(now_s - round_s, 1e-6))
            wider = _round_of(affordable, all_starts)
            if wider[0] * wider[1] < LEAST_GROWTH * starts * symmetries:
                break
            starts, symmetries = wider
    except _OutOfTimeError:
        pass
    tours = tuple(sorted(best, key=best.__getitem__)[:CANDIDATES])
    return BuiltTours(tours, *reached)


def _round_of(affordable: int, all_starts: int) -> tuple[int, int]:
    """Starts and symmetries of a round of so many tours: symmetries first, which differ most, then starts."""
    symmetries = max(1, min(NUM_SYMMETRIES, affordable // min(FIRST_STARTS, all_starts)))
    return min(all_starts, affordable // symmetries), symmetries


def _decode(
    policy: Policy, environment: Environment, symmetry: int, starts: int, deadline_s: float
) -> dict[tuple[int, ...], float]:
    """The best tours under one symmetry and their lengths; those of illegal starts are left out."""
    instance = augment(environment.instances, symmetry + 1)[[symmetry]]
    one = copy.copy(environment)  # at the very same distances: turned coordinates are rounded
    one.instances = instance
    cache = policy.cache(policy.encode(instance).embeddings, instance)
    forced = multi_start(one, starts)
    rows = max(ENTRIES_AT_ONCE[instance.locs.device.type] // instance.num_nodes, 1)
    found: dict[tuple[int, ...], float] = {}
    for part in torch.split(forced, rows):
        step = _until(deadline_s, policy, cache, one, len(part))
        trajectory = rollout_loop(one, part, step, record=False)
        costs, order = trajectory.cost[0].sort()
        kept = order[: min(CANDIDATES, int(costs.isfinite().sum()))]
        tours = flat_tours(trajectory.actions[0, kept].cpu().numpy(), instance.num_depots)
        found |= {tuple(tour): float(cost) for tour, cost in zip(tours, costs, strict=False)}
    return found


def _until(deadline_s: float, policy: Policy, cache: DecoderCache, environment: Environment, rows: int) -> StepFunction:
    """Greedy steps of a policy; given up as soon as the rate so far shows that the deadline comes first."""
    greedy = policy_step(Task(policy, cache, environment, rows, sampler=None, greedy_last=False, record=False))
    began_s, taken, least_steps = time.monotonic(), 0, environment.num_customers

    def step(state: State) -> tuple[State, StepOutput]:
        nonlocal taken
        now_s = time.monotonic()
        left_s = (now_s - began_s) * (least_steps - taken) / taken if taken >= STEPS_TO_MEASURE else 0.0
        if now_s + left_s > deadline_s:
            raise _OutOfTimeError
        taken += 1
        return greedy(state)

    return step
