"""Files of solutions of library instances: one explicit Parquet schema, a row an instance, costs recomputed exactly.

Unlike files of sets they name their instances, and say how distances count.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from polarvrp.errors import ConfigError, DataError
from polarvrp.files import read_parquet, write_rows
from polarvrp.outputs import require_kept, require_output
from polarvrp.problem.gaps import gap_percent
from polarvrp.problem.library_instances import Convention, LibraryInstance, Rounding
from polarvrp.problem.library_prices import LibraryReport
from polarvrp.problem.tours import Route, routes_to_actions
from polarvrp.problem.variants import parse_variant

LIBRARY_SCHEMA = pa.schema(
    [
        pa.field("instance", pa.string(), nullable=False),
        pa.field("num_customers", pa.int32(), nullable=False),
        pa.field("solver", pa.string(), nullable=False),
        pa.field("cost", pa.float64()),
        pa.field("length", pa.float64()),
        pa.field("rounding", pa.string(), nullable=False),
        pa.field("open_routes", pa.bool_(), nullable=False),
        pa.field("best_known", pa.float64()),
        pa.field("gap_percent", pa.float64()),
        pa.field("actions", pa.list_(pa.uint32())),
        pa.field("routes", pa.int32()),
        pa.field("seconds", pa.float64()),
        pa.field("reason", pa.string()),
    ]
)

SOLVED_AS = {"solver": "method", "rounding": "distances", "best_known": "known_cost"}
"""Columns of ``polarvrp solve`` that have other names there."""

NOT_SOLVED = {"length", "open_routes"}
"""Columns that it lacks; its variant says whether routes are open."""


@dataclass(frozen=True, slots=True)
class LibraryRow:
    """Solution of one library instance, or the reason why there is none.

    Attributes:
        instance: Its name.
        num_customers: n.
        solver: Who solved it.
        cost: Exact cost as ``rounding`` counts distances; None without a solution.
        length: Length without rounding, float64.
        rounding: A value of ``Rounding``.
        open_routes: Whether routes end at their last customer.
        best_known: Best known cost by the same rounding, where one is at hand.
        gap_percent: 100 (cost - best known) / best known.
        actions: Flat list of nodes, depots first, as in files of sets.
        routes: Number of routes.
        seconds: Measured time, None where none was.
        reason: Why ``cost`` is None.
    """

    instance: str
    num_customers: int
    solver: str
    cost: float | None
    length: float | None
    rounding: str
    open_routes: bool
    best_known: float | None = None
    gap_percent: float | None = None
    actions: tuple[int, ...] = ()
    routes: int = 0
    seconds: float | None = None
    reason: str | None = None

    @property
    def convention(self) -> Convention:
        """How its cost counts."""
        return Convention(Rounding(self.rounding), self.open_routes)


def library_row(
    library: LibraryInstance,
    solver: str,
    routes: list[Route],
    report: LibraryReport,
    seconds: float | None,
    best_known: float | None,
) -> LibraryRow:
    """Row of a solution that was priced; one that breaks a rule has no cost."""
    if report.first_problem is not None:
        return unsolved_row(library, solver, report.first_problem, seconds, best_known)
    return LibraryRow(
        library.name,
        library.num_customers,
        solver,
        float(report.cost),
        report.length,
        str(library.rounding),
        library.open_routes,
        best_known,
        gap_percent(report.cost, best_known) if best_known else None,
        tuple(routes_to_actions(routes, library.num_depots)),
        report.num_routes,
        seconds,
    )


def unsolved_row(
    library: LibraryInstance, solver: str, reason: str, seconds: float | None, best_known: float | None
) -> LibraryRow:
    """Row of an instance without a solution."""
    rounding, is_open = str(library.rounding), library.open_routes
    return LibraryRow(
        *(library.name, library.num_customers, solver, None, None, rounding, is_open, best_known),
        seconds=seconds,
        reason=reason,
    )


def require_library_output(path: Path, method: str, names: Collection[str], inputs: Iterable[Path]) -> None:
    """``outputs.require_output`` for a file of solutions of library instances, all of which must be written again.

    Args:
        path: What the user named.
        method: Who solved.
        names: Instances that will be written.
        inputs: Files that are read.

    Raises:
        ConfigError: If the output is no ``.parquet`` file or an input.
        DataError: If another file is there, or one that holds further instances, or nothing can be written.
    """
    require_output(path, ".parquet", {"method": method}, inputs)
    require_library_kept(path, names)


def require_library_kept(path: Path, names: Collection[str]) -> None:
    """``outputs.require_kept`` for such a file."""
    require_kept(path, lambda found: (row.instance for row in read_library_rows(found)), names)


def write_library_rows(path: str | Path, rows: Iterable[LibraryRow], provenance: Mapping[str, Any]) -> None:
    """Write a file of solutions of library instances atomically."""
    names = [field.name for field in fields(LibraryRow)]
    records = [{name: getattr(row, name) for name in names} for row in rows]
    for record in records:
        record["actions"] = list(record["actions"])
    write_rows(Path(path), records, LIBRARY_SCHEMA, provenance)


def is_library_table(table: pa.Table) -> bool:
    """Whether a Parquet file is one of ours on library instances: of ``write_library_rows``, or of ``solve``."""
    return set(LIBRARY_SCHEMA.names) <= set(table.column_names) or _is_solved(table)


def read_library_rows(path: Path, *, changed: bool = False) -> list[LibraryRow]:
    """Rows of a file of ours on library instances; of those of ``solve`` files that could not be read are left out.

    Args:
        path: The file.
        changed: Whether it may have been changed since it was written, for those who judge its tours and costs.

    Raises:
        DataError: If the file is missing, damaged or holds something else.
    """
    table = read_parquet(path, "make it with polarvrp import", changed=changed)
    lacking = [name for name in LIBRARY_SCHEMA.names if name not in table.column_names]
    if lacking and not _is_solved(table):
        raise DataError(f"{path} holds no solutions of library instances: it lacks the columns {', '.join(lacking)}")
    try:
        ours = _from_solve(table) if lacking else table
        rows = ours.select(LIBRARY_SCHEMA.names).cast(LIBRARY_SCHEMA).to_pylist()
    except (pa.ArrowException, ValueError, ConfigError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} holds no solutions of library instances: {reason}") from error
    known = set(Rounding)
    for row in rows:
        row["actions"] = tuple(row["actions"] or ())
        if None in row["actions"]:
            raise DataError(f"{path}: {row['instance']} has a tour with a missing node; import it again")
        if row["rounding"] not in known:
            raise DataError(f"{path}: {row['instance']} has the unknown rounding {row['rounding']!r}; import it again")
        if row["cost"] is not None and not changed and not math.isfinite(row["cost"]):
            raise DataError(f"{path}: {row['instance']} has the cost {row['cost']}; import it again")
    return [LibraryRow(**row) for row in rows]


def _is_solved(table: pa.Table) -> bool:
    names = {SOLVED_AS.get(name, name) for name in LIBRARY_SCHEMA.names if name not in NOT_SOLVED}
    return names | {"variant", "file"} <= set(table.column_names)


def _from_solve(table: pa.Table) -> pa.Table:
    """A table of ``polarvrp solve`` in the columns of ours; instances of one name are called as their files are."""
    read = table.filter(pc.is_valid(table["instance"]))
    names, files = ([str(value) for value in read[name].to_pylist()] for name in ("instance", "file"))
    counts = Counter(name.lower() for name in names)
    columns = {name: read[SOLVED_AS.get(name, name)] for name in LIBRARY_SCHEMA.names if name not in NOT_SOLVED}
    columns["instance"] = pa.array(
        [name if counts[name.lower()] == 1 else Path(file).stem for name, file in zip(names, files, strict=True)],
        pa.string(),
    )
    columns["solver"] = pc.fill_null(columns["solver"], "")  # nobody solved what cannot be
    columns["length"] = pa.nulls(len(read), pa.float64())
    columns["open_routes"] = pa.array([parse_variant(str(name)).open_route for name in read["variant"].to_pylist()])
    return pa.table(columns)
