"""Local search of PyVRP on one tour, under a schedule of rising penalties, always from the original tour.

The first result that is feasible and strictly shorter replaces the tour, judged by the exact checker; if there is none
the tour stays. So refined tours are never longer and never break a rule that the original kept.

Deviations from the paper, which used PyVRP 0.11: the operators of PyVRP 0.14 (which has no SwapStar), 50 neighbours
instead of 20, fixed penalties on conservatively rounded integers instead of multiples of an estimate, four levels
instead of five because the last two bind alike.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyvrp import Activity, ActivityType, CostEvaluator, ProblemData, RandomNumberGenerator
from pyvrp.search import OPERATORS, LocalSearch, PerturbationManager

from polarvrp.local_search.shared_memory import SEEDS, RefinedTour
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.tours import check_tour, measure_tour
from polarvrp.solvers.integers import IntegerInstance, integer_instance
from polarvrp.solvers.pyvrp_model import actions_of, problem_data, solution_of
from polarvrp.tolerances import POLICY_TOLERANCE

PENALTIES = (12.0, 200.0, 3000.0, 1e5)
"""Cost of a unit of excess load, lateness or length; at the last one excess is never worth its price."""

EVALUATORS = tuple(CostEvaluator([penalty], penalty, penalty) for penalty in PENALTIES)

NUM_NEIGHBOURS = 50
SHARE_OF_WAITING = 5
"""A unit of distance counts as much as so many of waiting."""

SPARE_VEHICLES = 10


class PyVRPSearch:
    """Local search of PyVRP on one instance; what PyVRP needs to know of it is built once for all its tours.

    Args:
        instances: At least one customer each, in main memory.
        index: Which one.
    """

    def __init__(self, instances: Instances[NodeArrays], index: int) -> None:
        self._instances, self._index = instances, index
        self._integers = integer_instance(instances, index)
        self._neighbours = neighbours(self._integers, NUM_NEIGHBOURS)
        self._data: dict[int, ProblemData] = {}

    def refine(self, actions: Sequence[int], seed: int) -> RefinedTour:
        """Refine one tour; the result depends on nothing but instance, tour and seed.

        Args:
            actions: In flat form.
            seed: Of the order in which the search tries moves; any non-negative integer.

        Raises:
            InfeasibleTourError: If the tour visits a customer twice or not at all.
        """
        depots = self._instances.num_depots
        cost, num_routes = measure_tour(self._instances, self._index, actions)
        data = self._problem(min(self._integers.num_customers, num_routes + SPARE_VEHICLES))
        original = solution_of(data, actions)
        is_feasible = original.is_feasible()
        shortest = original.distance() if is_feasible else math.inf
        search = self._search(data, seed)
        for evaluator in EVALUATORS:
            found = search(original, evaluator, exhaustive=True)
            if found.is_feasible() and found.distance() < shortest:
                refined = actions_of(found, depots)
                after = check_tour(self._instances, self._index, refined, POLICY_TOLERANCE)
                if after.first_problem is None and after.cost < cost:
                    return RefinedTour(refined, after.cost, improved=True)
            if is_feasible and search.statistics.num_improving == 0:
                break  # what does not pay without excess, or with cheap excess, pays no better when excess costs more
        return RefinedTour(list(actions), cost, improved=False)

    def _problem(self, vehicles_per_depot: int) -> ProblemData:
        if vehicles_per_depot not in self._data:
            self._data[vehicles_per_depot] = problem_data(self._integers, vehicles_per_depot)
        return self._data[vehicles_per_depot]

    def _search(self, data: ProblemData, seed: int) -> LocalSearch:
        """A fresh one for each tour, because its order of moves carries over from call to call."""
        search = LocalSearch(data, RandomNumberGenerator(seed % SEEDS), self._neighbours, PerturbationManager())
        for operator in OPERATORS:
            if operator.supports(data):
                search.add_operator(operator(data))
        return search


def refine_tours(
    instances: Instances[NodeArrays], index: int, tours: Sequence[Sequence[int]], seeds: Sequence[int]
) -> list[RefinedTour]:
    """Refine tours of one instance, in flat form, each by its own seed; see ``PyVRPSearch.refine``.

    Raises:
        InfeasibleTourError: If a tour visits a customer twice or not at all.
    """
    if instances.num_customers == 0:
        return [RefinedTour(list(actions), 0.0, improved=False) for actions in tours]
    search = PyVRPSearch(instances, index)
    return [search.refine(actions, seed) for actions, seed in zip(tours, seeds, strict=True)]


def neighbours(instance: IntegerInstance, count: int) -> dict[Activity, list[Activity]]:
    """The customers nearest to each, as PyVRP would list them: distance, plus a fifth of the least waiting time.

    Same lists as ``pyvrp.search.compute_neighbours`` in a small part of its time. Five times the proximity is a whole
    number, and each takes its customer along in its last bits, so that plain sorting suffices and ties go by number.
    """
    depots, customers = instance.num_depots, instance.num_customers
    distance = instance.distance[depots:, depots:]
    if instance.forbidden_arcs is not None:
        distance = np.where(instance.forbidden_arcs[depots:, depots:], instance.forbidden, distance)
    bits = customers.bit_length()
    never = 1 << (61 - bits)  # above all others by the bound on costs that the scale keeps
    proximity = SHARE_OF_WAITING * distance
    if instance.has_windows:
        earliest, latest, service = instance.earliest, instance.latest, instance.service
        proximity += np.maximum(earliest[None, :] - distance - (service + latest)[:, None], 0)
        proximity[(earliest + service)[:, None] + distance > latest[None, :]] = never
    proximity = np.minimum(proximity, proximity.T)
    np.fill_diagonal(proximity, never + 1)
    keys = (proximity << bits) | np.arange(customers)
    keys.sort(axis=1)
    nearest = keys[:, : min(count, customers - 1)] & ((1 << bits) - 1)
    clients = _client_activities(customers)
    return dict(zip(clients.tolist(), clients[nearest].tolist(), strict=True))


@lru_cache(maxsize=8)
def _client_activities(count: int) -> NDArray[Any]:
    """PyVRP's names of customers; building thousands of equal ones an instance would cost more than the rest."""
    activities = np.empty(count, dtype=object)
    activities[:] = [Activity(ActivityType.CLIENT, client) for client in range(count)]
    return activities
