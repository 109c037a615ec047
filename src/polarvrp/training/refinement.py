"""Refinement of tours by local search: the step that turns preference optimisation into POLAR.

Each tour goes through PyVRP's local search to a local optimum under a schedule of rising penalties, always from the
original tour. The first result that is feasible and strictly shorter replaces it, judged by the exact checker; if there
is none the tour stays. So refined tours are never longer and never break a rule that the original kept.

Deviations from the paper, which used PyVRP 0.11: the operators of PyVRP 0.14 (which has no SwapStar), 50 neighbours
instead of 20, fixed penalties on conservatively rounded integers instead of multiples of an estimate, four levels
instead of five because the last two bind alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pyvrp import Activity, ActivityType, CostEvaluator, RandomNumberGenerator
from pyvrp.search import OPERATORS, LocalSearch, PerturbationManager

from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.tours import check_tour
from polarvrp.references.integers import IntegerInstance, integer_instance
from polarvrp.references.pyvrp_model import actions_of, problem_data, solution_of
from polarvrp.references.versions import pyvrp_version
from polarvrp.references.workers import TaskFailure, WorkerPool
from polarvrp.tolerances import POLICY_TOLERANCE

PENALTIES = (12.0, 200.0, 3000.0, 1e5)
"""Cost of a unit of excess load, lateness or length; at the last one excess is never worth its price."""

NUM_NEIGHBOURS = 50
WEIGHT_OF_WAITING = 0.2
SPARE_VEHICLES = 10
LARGEST_CHUNK = 32
CHUNKS_PER_WORKER = 2

_NEVER = 1e18  # proximity of customers that cannot follow each other; above the length of a forbidden arc

Chunk: TypeAlias = tuple[Instances[NodeArrays], list[list[int]], list[int]]


@dataclass(frozen=True, slots=True)
class RefinedTour:
    """What became of a tour.

    Attributes:
        actions: The better tour in flat form, or the original one.
        cost: Its exact cost in float64.
        improved: Whether it is strictly shorter than the original.
    """

    actions: list[int]
    cost: float
    improved: bool


class RefinementError(RuntimeError):
    """A worker could not refine; the message is its own."""


class Refiner:
    """Refines batches of tours on CPU cores.

    Args:
        num_workers: Processes, started at once: before a GPU is used is best. 0 refines in this process.

    Raises:
        ConfigError: If the installed PyVRP is another than the model was written for.
    """

    def __init__(self, num_workers: int) -> None:
        pyvrp_version()
        self._pool = WorkerPool(refine_chunk, num_workers) if num_workers > 0 else None
        self._num_workers = max(1, num_workers)

    def refine(
        self, instances: Instances[NodeArrays], tours: Sequence[Sequence[int]], seeds: Sequence[int]
    ) -> list[RefinedTour]:
        """Refine one tour of each instance.

        The result depends on instance, tour and seed only, not on the number of workers.

        Args:
            instances: B instances of one size, any mixture of variants, in main memory.
            tours: In flat form, B of them.
            seeds: Of the order in which the search tries moves, B of them, any non-negative integers.

        Returns:
            B tours in the order of the instances.

        Raises:
            ValueError: If there are not as many tours and seeds as instances.
            RefinementError: If a worker met a tour that is no solution of its instance, or died.
        """
        if not len(instances) == len(tours) == len(seeds):
            raise ValueError(f"{len(instances)} instances need as many tours and seeds: {len(tours)}, {len(seeds)}")
        size = math.ceil(len(instances) / (self._num_workers * CHUNKS_PER_WORKER))
        size = max(1, min(LARGEST_CHUNK, size))
        cuts = [slice(start, start + size) for start in range(0, len(instances), size)]
        chunks = [(instances[cut], [list(tour) for tour in tours[cut]], list(seeds[cut])) for cut in cuts]
        if self._pool is None:
            return [tour for chunk in chunks for tour in refine_chunk(chunk)]
        refined: dict[int, list[RefinedTour]] = {}
        for position, outcome in self._pool.run(chunks):
            if isinstance(outcome, TaskFailure):
                raise RefinementError(f"refinement failed: {outcome.reason}")
            refined[position] = outcome
        return [tour for position in range(len(chunks)) for tour in refined[position]]

    def close(self) -> None:
        """End the processes; safe to call twice and after errors."""
        if self._pool is not None:
            self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def refine_chunk(chunk: Chunk) -> list[RefinedTour]:
    """Refine some tours, one after the other, in this process."""
    instances, tours, seeds = chunk
    numbered = zip(range(len(instances)), tours, seeds, strict=True)
    return [refine_tour(instances, index, actions, seed) for index, actions, seed in numbered]


def refine_tour(instances: Instances[NodeArrays], index: int, actions: Sequence[int], seed: int) -> RefinedTour:
    """Refine one tour; see ``Refiner.refine``.

    Raises:
        InfeasibleTourError: If it visits a customer twice or not at all.
    """
    before = check_tour(instances, index, actions, POLICY_TOLERANCE)
    unchanged = RefinedTour(list(actions), before.cost, improved=False)
    if instances.num_customers == 0:
        return unchanged
    integers = integer_instance(instances, index)
    data = problem_data(integers, min(integers.num_customers, before.num_routes + SPARE_VEHICLES))
    original = solution_of(data, actions)
    shortest = original.distance() if original.is_feasible() else math.inf
    search = LocalSearch(
        data, RandomNumberGenerator(seed % 2**32), neighbours(integers, NUM_NEIGHBOURS), PerturbationManager()
    )
    for operator in OPERATORS:
        if operator.supports(data):
            search.add_operator(operator(data))
    for penalty in PENALTIES:
        found = search(original, CostEvaluator([penalty], penalty, penalty), exhaustive=True)
        if found.is_feasible() and found.distance() < shortest:
            refined = actions_of(found, instances.num_depots)
            after = check_tour(instances, index, refined, POLICY_TOLERANCE)
            if after.first_problem is None and after.cost < before.cost:
                return RefinedTour(refined, after.cost, improved=True)
    return unchanged


def neighbours(instance: IntegerInstance, count: int) -> dict[Activity, list[Activity]]:
    """The customers nearest to each, as PyVRP would list them: distance, plus a fifth of the least waiting time.

    Same lists as ``pyvrp.search.compute_neighbours`` at a third of its time.
    """
    depots = instance.num_depots
    distance = instance.distance[depots:, depots:].astype(np.float64)
    if instance.forbidden_arcs is not None:
        distance[instance.forbidden_arcs[depots:, depots:]] = instance.forbidden
    proximity = distance
    if instance.has_windows:
        earliest, latest, service = instance.earliest, instance.latest, instance.service
        waiting = earliest[None, :] - distance - (service + latest)[:, None]
        proximity = distance + WEIGHT_OF_WAITING * np.maximum(waiting, 0.0)
        proximity[(earliest + service)[:, None] + distance > latest[None, :]] = _NEVER
    proximity = np.minimum(proximity, proximity.T)
    np.fill_diagonal(proximity, np.inf)
    nearest = np.argsort(proximity, axis=1, kind="stable")[:, : min(count, len(proximity) - 1)]
    clients = _client_activities(len(proximity))
    return dict(zip(clients.tolist(), clients[nearest].tolist(), strict=True))


@lru_cache(maxsize=8)
def _client_activities(count: int) -> NDArray[Any]:
    """PyVRP's names of customers; building thousands of equal ones an instance would cost more than the rest."""
    activities = np.empty(count, dtype=object)
    activities[:] = [Activity(ActivityType.CLIENT, client) for client in range(count)]
    return activities
