"""Library files solved by worker processes: resumable, with a watchdog for each file.

What a killed call finished is kept where file, solver, limits and seed are the same. Files without a solution are tried
again.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np

from polarvrp.machine import processor_name
from polarvrp.problem.library_instances import LibraryInstance
from polarvrp.progress import progress
from polarvrp.references.chunks import FORMAT
from polarvrp.references.partial import PartialFile, StoredRow
from polarvrp.solutions.library_rows import LibraryRow, write_library_rows
from polarvrp.solvers.library_solve import LibraryTask, solve_library_tasks
from polarvrp.solvers.pool import chosen_hard_limit, require_workers
from polarvrp.solvers.solve import SolverSettings, solver_version


def solve_library_files(
    libraries: Sequence[LibraryInstance],
    best_known: Mapping[str, float | None],
    settings: SolverSettings,
    output: Path,
    workers: int = 1,
    hard_limit_s: float | None = None,
) -> list[LibraryRow]:
    """Solve the instances of library files and write their solutions.

    Args:
        libraries: The instances, each of another name.
        best_known: Best known cost by name, for the gap; None where none is at hand.
        settings: Solver and limits.
        output: Parquet file. Rows of its ``.partial`` file are kept where they fit.
        workers: Processes, one instance and one thread each.
        hard_limit_s: Wall-clock limit after which a stuck instance is killed and recorded as unsolved; default
            ``default_hard_limit`` of the largest instance.

    Returns:
        The rows of the file, in the order of the instances.

    Raises:
        ConfigError: If a number is out of bounds, or the solver's version is not supported.
        DataError: If the output cannot be written, or another process is at work on it.
    """
    require_workers(workers)
    largest = max(library.num_customers for library in libraries)
    hard_limit_s = chosen_hard_limit(hard_limit_s, settings.seconds, largest)
    effort = {
        "limit_seconds": settings.seconds,
        "seed": settings.seed,
        "solver_version": solver_version(settings.solver),
    }
    identity = effort | {"format": FORMAT, "solver": settings.solver, "max_iterations": settings.max_iterations}
    tasks = {library.name: LibraryTask(library, settings, best_known[library.name]) for library in libraries}
    digests = {name: _digest(task) for name, task in tasks.items()}
    with PartialFile(output, identity, LibraryRow) as partial:
        rows = {
            name: stored.row
            for name, stored in partial.rows.items()
            if stored.row.cost is not None and digests.get(name) == stored.digest
        }
        found = solve_library_tasks([task for name, task in tasks.items() if name not in rows], workers, hard_limit_s)
        for row in progress(found, len(tasks), settings.solver, "instance", done=len(rows)):
            partial.append(StoredRow(digests[row.instance], row))
            rows[row.instance] = row
        ordered = [rows[name] for name in tasks]
        write_library_rows(output, ordered, effort | {"method": settings.solver, "machine": processor_name()})
        partial.remove()
    return ordered


def _digest(task: LibraryTask) -> str:
    """Digest of what a row is of: the instance in the numbers of its file, how they count, and its best known cost."""
    digest = hashlib.sha256(repr(task.best_known).encode())
    for field in fields(task.library):
        value = getattr(task.library, field.name)
        content = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
        digest.update(b"%s %d\n%s" % (field.name.encode(), len(content), content))
    return digest.hexdigest()
