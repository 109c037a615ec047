"""A stretch of a set solved by worker processes: resumable, extendable, with a watchdog for each instance.

What is known from an earlier call is kept: rows of the same instance, solver, seed and limits as they are; with more
seconds PyVRP goes on from the tour that it had for what the new limit adds, OR-Tools starts again. Rows without a
solution are tried again.
"""

import hashlib
import logging
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from polarvrp import __version__
from polarvrp.errors import ConfigError, DataError
from polarvrp.files import exists, provenance
from polarvrp.machine import processor_name
from polarvrp.problem.instances import Instances, NodeArrays, instance_digests
from polarvrp.progress import progress
from polarvrp.references.partial import PartialFile, StoredRow
from polarvrp.solutions.origin import DIGESTS
from polarvrp.solutions.rows import SolutionRow
from polarvrp.solutions.solutions import read_solutions, solution_rows, write_solutions
from polarvrp.solvers.pool import chosen_hard_limit, require_workers, solve_tasks
from polarvrp.solvers.solve import InstanceTask, SolverSettings, solver_version

logger = logging.getLogger(__name__)

FORMAT = 1
"""``study.specs.REFERENCE_CODE_VERSION``, which jobs of a second need not import; rows of another one are not kept."""


def solve_chunk(
    instances: Instances[NodeArrays],
    settings: SolverSettings,
    output: Path,
    start: int = 0,
    workers: int = 1,
    hard_limit_s: float | None = None,
    warm_starts: Mapping[int, Sequence[int]] | None = None,
) -> list[SolutionRow]:
    """Solve instances and write their solutions.

    Args:
        instances: Those of the chunk, in main memory.
        settings: Solver and limits.
        output: Parquet file. Rows that it or its ``.partial`` file already hold are kept where they fit.
        start: Position of the first instance in its set.
        workers: Processes, one instance and one thread each.
        hard_limit_s: Wall-clock limit after which a stuck instance is killed and recorded as unsolved; default
            ``default_hard_limit``.
        warm_starts: Tours by position in the set that PyVRP starts from.

    Returns:
        The rows of the file, in the order of the instances.

    Raises:
        ConfigError: If warm starts are given to OR-Tools, a number is out of bounds, or the solver's version is not
            supported.
        DataError: If the output cannot be written, or another process is at work on it.
    """
    if warm_starts and settings.solver != "pyvrp":
        raise ConfigError(f"{settings.solver} takes no warm start; use the solver pyvrp")
    require_workers(workers)
    hard_limit_s = chosen_hard_limit(hard_limit_s, settings.seconds, instances.num_customers)
    identity = _identity(settings, warm_starts)
    digests = dict(enumerate(instance_digests(instances), start))
    with PartialFile(output, identity, SolutionRow) as partial:
        stored = _finished(output, identity) | partial.rows
        known = {
            number: stored[number].row
            for number, digest in digests.items()
            if number in stored and stored[number].digest == digest
        }
        rows = {number: row for number, row in known.items() if _fits(row, settings)}
        tasks = [
            _task(instances[[number - start]], number, settings, known.get(number), (warm_starts or {}).get(number))
            for number in digests
            if number not in rows
        ]
        description = f"{settings.solver}, {settings.seconds:g} s each"
        found = solve_tasks(tasks, workers, hard_limit_s)
        for solved in progress(found, len(digests), description, "instance", done=len(rows)):
            number = solved.instance
            rows[number] = _with_earlier(known.get(number), solved, settings)
            partial.append(StoredRow(digests[number], rows[number]))
        ordered = [rows[number] for number in digests]
        _write(output, ordered, identity, digests, settings, hard_limit_s)
        partial.remove()
    return ordered


def _fits(row: SolutionRow, settings: SolverSettings) -> bool:
    return row.cost is not None and row.limit_seconds == settings.seconds


def _continues(row: SolutionRow | None, settings: SolverSettings) -> bool:
    """Whether the search goes on from an earlier row under a longer limit."""
    if row is None or row.cost is None or row.limit_seconds is None or settings.max_iterations is not None:
        return False
    return settings.solver == "pyvrp" and row.limit_seconds < settings.seconds


def _task(
    instance: Instances[NodeArrays],
    number: int,
    settings: SolverSettings,
    earlier: SolutionRow | None,
    warm_start: Sequence[int] | None,
) -> InstanceTask:
    if earlier is not None and earlier.limit_seconds is not None and _continues(earlier, settings):
        rest = replace(settings, seconds=settings.seconds - earlier.limit_seconds)
        return InstanceTask(instance, number, rest, earlier.actions)
    return InstanceTask(instance, number, settings, None if warm_start is None else tuple(warm_start))


def _with_earlier(earlier: SolutionRow | None, solved: SolutionRow, settings: SolverSettings) -> SolutionRow:
    """The better of both rows with the effort of both, if the later search went on from the earlier one."""
    if earlier is None or earlier.cost is None or not _continues(earlier, settings):
        return solved
    better = solved if solved.cost is not None and solved.cost <= earlier.cost else earlier
    return replace(
        better,
        seconds=(earlier.seconds or 0.0) + (solved.seconds or 0.0),
        iterations=(earlier.iterations or 0) + (solved.iterations or 0),
        limit_seconds=settings.seconds,
    )


def _finished(output: Path, identity: dict[str, Any]) -> dict[int, StoredRow[SolutionRow]]:
    """Rows of an output written earlier with the same settings, limits in seconds apart."""
    if not exists(output):
        return {}
    try:
        table = read_solutions(output)
    except DataError as error:
        logger.warning("%s; its instances are solved anew", error)
        return {}
    said = provenance(table)
    if said.get("identity") != identity:
        logger.info("%s was made with other settings; its instances are solved anew", output)
        return {}
    digests = said.get(DIGESTS, {})
    rows = [row for row in solution_rows(table) if str(row.instance) in digests]
    return {row.instance: StoredRow(digests[str(row.instance)], row) for row in rows}


def _identity(settings: SolverSettings, warm_starts: Mapping[int, Sequence[int]] | None) -> dict[str, Any]:
    """What rows must have in common to stand in one file; the limit in seconds is each row's own."""
    starts = sorted((number, tuple(actions)) for number, actions in (warm_starts or {}).items())
    return {
        "format": FORMAT,
        "solver": settings.solver,
        "solver_version": solver_version(settings.solver),
        "seed": settings.seed,
        "max_iterations": settings.max_iterations,
        "warm_starts": _digest(repr(starts).encode()) if starts else None,
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _write(
    output: Path,
    rows: list[SolutionRow],
    identity: dict[str, Any],
    digests: dict[int, str],
    settings: SolverSettings,
    hard_limit_s: float,
) -> None:
    metadata = {
        "identity": identity,
        DIGESTS: digests,
        "limit_seconds": settings.seconds,
        "hard_limit_seconds": hard_limit_s,
        "threads_per_instance": 1,
        "machine": processor_name(),
        "python": platform.python_version(),
        "polarvrp": __version__,
    }
    write_solutions(output, rows, "solver", metadata)
