"""One instance solved by PyVRP or OR-Tools: guarded before, priced and checked exactly after."""

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from polarvrp.catalog.methods import SOLVERS
from polarvrp.errors import ConfigError, DataError
from polarvrp.problem.datasets import variant_of
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.nearest_neighbour import nearest_neighbour
from polarvrp.problem.tours import TourReport, actions_to_routes, check_tour, first_impossible_customer
from polarvrp.solutions.rows import SolutionRow
from polarvrp.solvers.integers import IntegerInstance, integer_instance
from polarvrp.solvers.versions import installed_version

LARGEST_SEED = 2**31 - 1

FLEET_FACTOR = 1.2
SPARE_VEHICLES = 3


@dataclass(frozen=True, slots=True)
class SolverSettings:
    """How a reference is computed.

    Attributes:
        solver: One of ``SOLVERS``.
        seconds: Wall-clock limit of an instance, setting up included; one thread.
        seed: Of the solver's random numbers, the same for every instance.
        max_iterations: Stop earlier, after so many iterations of PyVRP or accepted solutions of OR-Tools: results that
            do not depend on the machine. None for no such limit.

    Raises:
        ConfigError: If a value is unknown or out of bounds.
    """

    solver: str
    seconds: float
    seed: int = 0
    max_iterations: int | None = None

    def __post_init__(self) -> None:
        if self.solver not in SOLVERS:
            raise ConfigError(f"unknown solver {self.solver!r}; known are {' and '.join(SOLVERS)}")
        if not 0 < self.seconds < math.inf:
            raise ConfigError(f"seconds must be above 0 and finite, got {self.seconds}")
        if not 0 <= self.seed <= LARGEST_SEED:
            raise ConfigError(f"seed must be in [0, {LARGEST_SEED}], got {self.seed}")
        if self.max_iterations is not None and self.max_iterations < 1:
            raise ConfigError(f"the number of iterations must be at least 1, got {self.max_iterations}")


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """What a solver said: a tour, or the reason why there is none.

    Attributes:
        actions: The tour in flat form.
        reason: Why there is none.
        scale: Units per distance unit of the solver's model.
        iterations: Of the solver, where it counts them.
    """

    actions: list[int] | None
    reason: str | None = None
    scale: int | None = None
    iterations: int | None = None


def solver_version(solver: str) -> str:
    """Package and version, as stored with each solution.

    Raises:
        ConfigError: If the installed version is another than the models were written for.
    """
    return f"{solver} {installed_version(solver)}"


def solve_instance(
    instances: Instances[NodeArrays],
    index: int,
    settings: SolverSettings,
    number: int | None = None,
    warm_start: Sequence[int] | None = None,
) -> SolutionRow:
    """Solve one instance in this process.

    The cost is that of the exact check, never the solver's. A tour that breaks a rule by more than rounding is not
    returned.

    Args:
        instances: Any variants, in main memory.
        index: Which one.
        settings: Solver and limits.
        number: Position of the instance in its set; default ``index``.
        warm_start: Tour in flat form that PyVRP starts from; OR-Tools ignores it.

    Returns:
        A row with a cost, or with the reason why there is none: a customer that cannot be served, numbers that no
        model can hold, or nothing found in time.

    Raises:
        ConfigError: As ``import_solver``.
    """
    import_solver(settings.solver)
    started_s = time.monotonic()
    found = _search(instances, index, settings, started_s + settings.seconds, warm_start)
    report: TourReport | None = None
    reason = found.reason
    if found.actions is not None:
        report = check_tour(instances, index, found.actions)
        if report.first_problem is not None:
            reason = f"the solver's tour breaks a rule: {report.first_problem}"
            report = None
    return SolutionRow(
        variant=variant_of(instances[[index]]).name,
        num_customers=instances.num_customers,
        instance=index if number is None else number,
        method=settings.solver,
        cost=report.cost if report else None,
        actions=tuple(found.actions or ()) if report else (),
        routes=report.num_routes if report else 0,
        seconds=time.monotonic() - started_s,
        max_violation=report.max_violation if report else None,
        seed=settings.seed,
        limit_seconds=settings.seconds,
        scale=found.scale,
        iterations=found.iterations,
        solver_version=solver_version(settings.solver),
        reason=reason,
    )


@dataclass(frozen=True, slots=True)
class InstanceTask:
    """What a worker process gets: one instance and how to solve it; see ``solve_instance``."""

    instance: Instances[NodeArrays]
    number: int
    settings: SolverSettings
    warm_start: tuple[int, ...] | None


def solve_task(task: InstanceTask) -> SolutionRow:
    """Solve the instance of a task in this process."""
    return solve_instance(task.instance, 0, task.settings, task.number, task.warm_start)


def _search(
    instances: Instances[NodeArrays],
    index: int,
    settings: SolverSettings,
    deadline_s: float,
    warm_start: Sequence[int] | None,
) -> SearchOutcome:
    """What the solver says, unless the instance itself says that there is nothing to search."""
    try:
        impossible = first_impossible_customer(instances, index)
        integers = integer_instance(instances, index)
    except DataError as error:
        return SearchOutcome(None, str(error))
    if impossible is not None:
        return SearchOutcome(None, impossible, scale=integers.scale)
    if instances.num_customers == 0:
        return SearchOutcome([], scale=integers.scale)
    if settings.solver == "pyvrp":
        return run_pyvrp(integers, settings, deadline_s, warm_start)
    routes = actions_to_routes(nearest_neighbour(instances, index), integers.num_depots)
    return run_ortools(integers, settings, deadline_s, vehicles_for(integers, len(routes)))


def vehicles_for(integers: IntegerInstance, num_routes: int) -> int:
    """Vehicles at each depot for OR-Tools: a few more than some solution's routes."""
    return min(integers.num_customers, math.ceil(FLEET_FACTOR * num_routes) + SPARE_VEHICLES)


def import_solver(solver: str) -> None:
    """Load a solver's library, which must not count as solving.

    Raises:
        ConfigError: If the installed version is another than the models were written for.
    """
    installed_version(solver)
    if solver == "pyvrp":
        import polarvrp.solvers.pyvrp_model
    else:
        import polarvrp.solvers.ortools_model  # noqa: F401


def run_pyvrp(
    integers: IntegerInstance, settings: SolverSettings, deadline_s: float, warm_start: Sequence[int] | None
) -> SearchOutcome:
    """PyVRP's best tour, in flat form.

    Args:
        integers: The instance.
        settings: Limits and seed.
        deadline_s: On the clock of ``time.monotonic``.
        warm_start: Tour in flat form to start from.
    """
    import pyvrp
    from pyvrp.exceptions import PenaltyBoundWarning

    from polarvrp.solvers.pyvrp_model import actions_of, problem_data, solution_of

    data = problem_data(integers)
    initial = None if warm_start is None else solution_of(data, warm_start)
    iterations = 0

    def stop(best_cost: float) -> bool:
        nonlocal iterations
        del best_cost
        out_of_iterations = settings.max_iterations is not None and iterations >= settings.max_iterations
        iterations += 1
        return out_of_iterations or time.monotonic() >= deadline_s

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PenaltyBoundWarning)  # feasibility is judged below
        result = pyvrp.solve(data, stop, seed=settings.seed, collect_stats=False, initial_solution=initial)
    if not result.best.is_feasible():
        reason = f"PyVRP found nothing feasible in {settings.seconds:.3g} s"
        return SearchOutcome(None, reason, integers.scale, result.num_iterations)
    return SearchOutcome(actions_of(result.best, integers.num_depots), None, integers.scale, result.num_iterations)


def run_ortools(integers: IntegerInstance, settings: SolverSettings, deadline_s: float, vehicles: int) -> SearchOutcome:
    """OR-Tools' best tour with so many vehicles at each depot; other arguments as ``run_pyvrp``."""
    from polarvrp.solvers.ortools_model import routing_model, search

    model = routing_model(integers, vehicles)
    found = search(model, deadline_s - time.monotonic(), settings.seed, settings.max_iterations)
    if isinstance(found, str):
        return SearchOutcome(None, f"OR-Tools found nothing in {settings.seconds:.3g} s ({found})", integers.scale)
    return SearchOutcome(found, None, integers.scale)
