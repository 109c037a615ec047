"""Instances solved by worker processes, one instance and one thread each, with a watchdog."""

from collections.abc import Iterator, Sequence

from polarvrp.errors import ConfigError
from polarvrp.problem.datasets import variant_of
from polarvrp.solutions.rows import SolutionRow
from polarvrp.solvers.solve import InstanceTask, solve_task, solver_version
from polarvrp.workers import TaskFailure, WorkerPool


def default_hard_limit(seconds: float, num_customers: int) -> float:
    """Seconds after which an instance is given up: set-up of large ones and a loaded machine must not trigger it."""
    return 2.0 * seconds + 10.0 + num_customers / 20


def chosen_hard_limit(wanted_s: float | None, seconds: float, num_customers: int) -> float:
    """The hard limit that a user named, else the default.

    Raises:
        ConfigError: If it is not above 0.
    """
    if wanted_s is None:
        return default_hard_limit(seconds, num_customers)
    if not wanted_s > 0:
        raise ConfigError(f"the hard limit must be above 0 seconds, got {wanted_s}")
    return wanted_s


def require_workers(workers: int) -> None:
    """Refuse a number of processes below 1.

    Raises:
        ConfigError: If it is.
    """
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}")


def solve_tasks(tasks: Sequence[InstanceTask], workers: int, hard_limit_s: float) -> Iterator[SolutionRow]:
    """Solve instances side by side.

    Args:
        tasks: One an instance.
        workers: Processes, at least 1.
        hard_limit_s: Wall-clock limit after which a stuck instance is killed.

    Yields:
        A row for each task in the order of completion; one that was killed or failed says so as its reason.
    """
    if not tasks:
        return
    with WorkerPool(solve_task, min(workers, len(tasks))) as pool:
        for position, outcome in pool.run(tasks, hard_limit_s):
            yield _failed(tasks[position], outcome) if isinstance(outcome, TaskFailure) else outcome


def _failed(task: InstanceTask, failure: TaskFailure) -> SolutionRow:
    return SolutionRow(
        variant=variant_of(task.instance).name,
        num_customers=task.instance.num_customers,
        instance=task.number,
        method=task.settings.solver,
        cost=None,
        actions=(),
        routes=0,
        seconds=failure.seconds,
        max_violation=None,
        seed=task.settings.seed,
        limit_seconds=task.settings.seconds,
        solver_version=solver_version(task.settings.solver),
        reason=failure.reason,
    )
