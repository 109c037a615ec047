"""Library instances solved by PyVRP or OR-Tools as references: guarded before, priced and checked exactly after."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from polarvrp.errors import DataError
from polarvrp.problem.library_instances import LibraryInstance
from polarvrp.problem.library_prices import check_routes, first_unservable_customer, split_to_feasible
from polarvrp.problem.tours import Route, actions_to_routes
from polarvrp.solutions.library_rows import LibraryRow, library_row, unsolved_row
from polarvrp.solvers.library_integers import library_integers
from polarvrp.solvers.solve import SearchOutcome, SolverSettings, import_solver, run_ortools, run_pyvrp, vehicles_for
from polarvrp.workers import TaskFailure, WorkerPool


@dataclass(frozen=True, slots=True)
class LibraryTask:
    """What a worker process gets.

    Attributes:
        library: The instance.
        settings: Solver and limits.
        best_known: Best known cost, for the gap; None if there is none at hand.
    """

    library: LibraryInstance
    settings: SolverSettings
    best_known: float | None = None


def solve_library_tasks(tasks: Sequence[LibraryTask], workers: int, hard_limit_s: float) -> Iterator[LibraryRow]:
    """Solve instances side by side, one thread each; arguments and result as ``pool.solve_tasks``."""
    if not tasks:
        return
    with WorkerPool(solve_library_task, min(workers, len(tasks))) as pool:
        for position, outcome in pool.run(tasks, hard_limit_s):
            yield _failed(tasks[position], outcome) if isinstance(outcome, TaskFailure) else outcome


def solve_library_task(task: LibraryTask) -> LibraryRow:
    """Solve the instance of a task in this process.

    Returns:
        A row with an exact cost, or with the reason why there is none: a customer that cannot be served, numbers or
        rules that the solver's model cannot hold, or nothing found in time.
    """
    library, settings = task.library, task.settings
    import_solver(settings.solver)
    started_s = time.monotonic()
    found = _search(library, settings, started_s + settings.seconds)
    seconds = time.monotonic() - started_s
    if found.actions is None:
        return unsolved_row(library, settings.solver, str(found.reason), seconds, task.best_known)
    routes = actions_to_routes(found.actions, library.num_depots)
    return library_row(library, settings.solver, routes, check_routes(library, routes), seconds, task.best_known)


def _search(library: LibraryInstance, settings: SolverSettings, deadline_s: float) -> SearchOutcome:
    """What the solver says, unless the instance itself says that there is nothing to search."""
    unservable = first_unservable_customer(library)
    if unservable is not None:
        return SearchOutcome(None, unservable)
    try:
        integers = library_integers(library)
    except DataError as error:
        return SearchOutcome(None, str(error))
    if settings.solver == "pyvrp":
        return run_pyvrp(integers, settings, deadline_s, None)
    if integers.max_duration is not None or (integers.opening is not None and integers.opening.any()):
        return SearchOutcome(None, "the model for OR-Tools knows no durations and no late opening; use pyvrp")
    return run_ortools(integers, settings, deadline_s, vehicles_for(integers, len(_sweep(library))))


def _sweep(library: LibraryInstance) -> list[Route]:
    """Feasible routes of customers in the order of their angles around the first depot."""
    places = library.coordinates - library.coordinates[0]
    customers = range(library.num_depots, len(library.demands))
    order = sorted(customers, key=lambda customer: math.atan2(places[customer, 1], places[customer, 0]))
    return split_to_feasible(library, [Route(0, tuple(order))])


def _failed(task: LibraryTask, failure: TaskFailure) -> LibraryRow:
    return unsolved_row(task.library, task.settings.solver, failure.reason, failure.seconds, task.best_known)
