"""Files of solutions of library instances: one explicit Parquet schema, a row an instance, costs recomputed exactly.

Unlike files of sets they name their instances, and say how distances count.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from polarvrp.errors import DataError
from polarvrp.files import read_parquet, write_rows
from polarvrp.problem.library_instances import LibraryInstance, Rounding
from polarvrp.problem.library_prices import LibraryReport
from polarvrp.problem.tours import Route, routes_to_actions

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


def library_row(
    library: LibraryInstance,
    solver: str,
    routes: list[Route],
    report: LibraryReport,
    seconds: float | None = None,
    best_known: float | None = None,
) -> LibraryRow:
    """Row of a solution that was priced; one that breaks a rule has no cost."""
    problem = report.first_problem
    gap = None if problem is not None or not best_known else 100 * (report.cost - best_known) / best_known
    return LibraryRow(
        library.name,
        library.num_customers,
        solver,
        None if problem is not None else float(report.cost),
        None if problem is not None else report.length,
        str(library.rounding),
        library.open_routes,
        best_known,
        gap,
        () if problem is not None else tuple(routes_to_actions(routes, library.num_depots)),
        0 if problem is not None else report.num_routes,
        seconds,
        problem,
    )


def unsolved_row(
    library: LibraryInstance,
    solver: str,
    reason: str,
    seconds: float | None = None,
    best_known: float | None = None,
) -> LibraryRow:
    """Row of an instance without a solution."""
    rounding, is_open = str(library.rounding), library.open_routes
    return LibraryRow(
        *(library.name, library.num_customers, solver, None, None, rounding, is_open, best_known),
        seconds=seconds,
        reason=reason,
    )


def write_library_rows(path: str | Path, rows: Iterable[LibraryRow], provenance: Mapping[str, Any]) -> None:
    """Write a file of solutions of library instances atomically."""
    names = [field.name for field in fields(LibraryRow)]
    records = [{name: getattr(row, name) for name in names} for row in rows]
    for record in records:
        record["actions"] = list(record["actions"])
    write_rows(Path(path), records, LIBRARY_SCHEMA, provenance)


def is_library_table(table: pa.Table) -> bool:
    """Whether a Parquet file is one of ``write_library_rows``."""
    return set(LIBRARY_SCHEMA.names) <= set(table.column_names)


def read_library_rows(path: Path) -> list[LibraryRow]:
    """Rows of a file of solutions of library instances.

    Raises:
        DataError: If the file is missing, damaged or holds something else.
    """
    table = read_parquet(path, "make it with polarvrp import")
    lacking = [name for name in LIBRARY_SCHEMA.names if name not in table.column_names]
    if lacking:
        raise DataError(f"{path} holds no solutions of library instances: it lacks the columns {', '.join(lacking)}")
    try:
        rows = table.select(LIBRARY_SCHEMA.names).cast(LIBRARY_SCHEMA).to_pylist()
    except (pa.ArrowException, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} holds no solutions of library instances: {reason}") from error
    known = set(Rounding)
    for row in rows:
        row["actions"] = tuple(row["actions"] or ())
        if row["rounding"] not in known:
            raise DataError(f"{path}: {row['instance']} has the unknown rounding {row['rounding']!r}; import it again")
        if row["cost"] is not None and not math.isfinite(row["cost"]):
            raise DataError(f"{path}: {row['instance']} has the cost {row['cost']}; import it again")
    return [LibraryRow(**row) for row in rows]
