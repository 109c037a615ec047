"""PyVRP's iterated local search on a library instance, from a given tour or from its own first solution."""

import time
import warnings
from dataclasses import dataclass

from pyvrp import (
    CostEvaluator,
    IteratedLocalSearch,
    PenaltyManager,
    ProblemData,
    RandomNumberGenerator,
    Solution,
    SolveParams,
)
from pyvrp.exceptions import PenaltyBoundWarning
from pyvrp.search import LocalSearch, PerturbationManager, compute_neighbours

from polarvrp.problem.library_instances import LibraryInstance
from polarvrp.problem.tours import Route, actions_to_routes, routes_to_actions
from polarvrp.solvers.library_integers import library_integers
from polarvrp.solvers.pyvrp_model import actions_of, problem_data, solution_of


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search of PyVRP found.

    Attributes:
        routes: Its best solution, which need not be feasible.
        own_start: Its own first solution: local search on a random one.
        given_start: Local search on the given tour; None if there was none.
        from_given: Whether the search that followed began at the latter, the cheaper of the two; not where they tie.
        iterations: Of that search.
    """

    routes: list[Route]
    own_start: list[Route]
    given_start: list[Route] | None
    from_given: bool
    iterations: int


def search(library: LibraryInstance, start: list[Route], deadline_s: float, seed: int) -> SearchResult:
    """Search until the deadline.

    Args:
        library: Every customer must be servable alone.
        start: A solution, feasible or not; no routes for PyVRP alone.
        deadline_s: On the clock of ``time.monotonic``; looked at between iterations.
        seed: Of the search.

    Raises:
        DataError: If the file's numbers are too large for 64-bit costs.
    """
    data, depots = problem_data(library_integers(library)), library.num_depots
    params, random = SolveParams(), RandomNumberGenerator(seed)
    improve = _local_search(data, params, random)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PenaltyBoundWarning)  # feasibility is judged by the exact check
        penalties = PenaltyManager(params.penalty.midpoint_penalties(data), params.penalty)
        strict = penalties.max_cost_evaluator()
        own = improve(Solution.make_random(data, random), strict, exhaustive=True)
        given = None
        if start:
            given = improve(solution_of(data, routes_to_actions(start, depots)), strict, exhaustive=True)
        first = own if given is None else min(own, given, key=lambda solution: _rank(solution, strict))
        iterated = IteratedLocalSearch(data, penalties, improve, first, params.ils)
        result = iterated.run(lambda _: time.monotonic() >= deadline_s, collect_stats=False)
    return SearchResult(
        routes=_routes(result.best, depots),
        own_start=_routes(own, depots),
        given_start=None if given is None else _routes(given, depots),
        from_given=first is given,
        iterations=result.num_iterations,
    )


def _local_search(data: ProblemData, params: SolveParams, random: RandomNumberGenerator) -> LocalSearch:
    """The search that ``pyvrp.solve`` would set up."""
    neighbours = compute_neighbours(data, params.neighbourhood)
    search = LocalSearch(data, random, neighbours, PerturbationManager(params.perturbation))
    for operator in params.operators:
        if operator.supports(data):
            search.add_operator(operator(data))
    return search


def _rank(solution: Solution, evaluator: CostEvaluator) -> tuple[bool, int]:
    return not solution.is_feasible(), evaluator.penalised_cost(solution)


def _routes(solution: Solution, num_depots: int) -> list[Route]:
    return actions_to_routes(actions_of(solution, num_depots), num_depots)
