"""Files of solutions: one explicit Parquet schema for the references of solvers and the evaluations of policies.

Every cost in such a file was recomputed in float64 from coordinates and actions. A row without a solution has a null
cost and says why in ``reason``. Provenance (versions, machine, settings) is JSON in the schema's metadata.
"""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from polarvrp.errors import DataError
from polarvrp.files import atomic_path

Key: TypeAlias = Literal["solver", "run"]
"""Column that names who solved: a solver in references, a trained run in evaluations."""

PROVENANCE = b"polarvrp"
"""Key of the provenance in the schema's metadata."""


@dataclass(frozen=True, slots=True)
class SolutionRow:
    """One instance's solution, or the reason why there is none.

    Attributes:
        variant: Name of the variant.
        num_customers: n.
        instance: Position of the instance in its set, from 0.
        method: Name of the solver or of the run; column ``solver`` or ``run``.
        cost: Exact float64 cost of ``actions``, None when nothing was found.
        actions: Flat node list, depots first. One depot: the customers of each route, a 0 between routes; several
            depots: each route is its depot, then its customers. Empty when nothing was found.
        routes: Number of routes.
        seconds: Measured wall time spent on the instance.
        max_violation: Largest raw excess over any constraint in float64, 0 when none, None without a solution.
        seed: Seed of the solver.
        limit_seconds: Time limit it was given.
        scale: Integer units per distance unit in the solver's model.
        iterations: Iterations of the solver, where it counts them.
        solver_version: Package and version that solved.
        reason: Why ``cost`` is None.
    """

    variant: str
    num_customers: int
    instance: int
    method: str
    cost: float | None
    actions: tuple[int, ...]
    routes: int
    seconds: float
    max_violation: float | None
    seed: int | None = None
    limit_seconds: float | None = None
    scale: int | None = None
    iterations: int | None = None
    solver_version: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if (self.cost is None) == (self.reason is None):
            raise DataError(
                f"a solution row has either a cost or a reason, got cost {self.cost} and reason {self.reason!r} "
                f"for instance {self.instance} of {self.variant}"
            )


def solution_schema(key: Key) -> pa.Schema:
    """Columns and types of a file of solutions; ``key`` is the name of the fourth column."""
    return pa.schema(
        [
            pa.field("variant", pa.string(), nullable=False),
            pa.field("num_customers", pa.int32(), nullable=False),
            pa.field("instance", pa.int32(), nullable=False),
            pa.field(key, pa.string(), nullable=False),
            pa.field("cost", pa.float64()),
            pa.field("actions", pa.list_(pa.uint16())),
            pa.field("routes", pa.int32()),
            pa.field("seconds", pa.float64()),
            pa.field("max_violation", pa.float64()),
            pa.field("seed", pa.int64()),
            pa.field("limit_seconds", pa.float64()),
            pa.field("scale", pa.int64()),
            pa.field("iterations", pa.int64()),
            pa.field("solver_version", pa.string()),
            pa.field("reason", pa.string()),
        ]
    )


def solution_table(rows: Iterable[SolutionRow], key: Key, metadata: dict[str, Any] | None = None) -> pa.Table:
    """Rows as an Arrow table of ``solution_schema(key)``.

    Args:
        rows: Any order; the table keeps it.
        key: ``"solver"`` for references, ``"run"`` for evaluations.
        metadata: Provenance, anything JSON can hold.
    """
    schema = solution_schema(key)
    if metadata is not None:
        schema = schema.with_metadata({PROVENANCE: json.dumps(metadata, sort_keys=True).encode()})
    fields = [field.name for field in dataclasses.fields(SolutionRow)]
    rows = list(rows)
    columns = [
        pa.array([getattr(row, name) for row in rows], type=field.type)
        for name, field in zip(fields, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def write_solutions(
    path: str | Path, rows: Iterable[SolutionRow], key: Key = "solver", metadata: dict[str, Any] | None = None
) -> None:
    """Write a file of solutions atomically.

    Args:
        path: Final path; parent folders are created.
        rows: One an instance.
        key: ``"solver"`` for references, ``"run"`` for evaluations.
        metadata: Provenance, anything JSON can hold.
    """
    table = solution_table(rows, key, metadata)
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_solutions(path: str | Path) -> pa.Table:
    """Read a file of solutions and verify its columns.

    Args:
        path: A file of ``write_solutions``, or any Parquet file with the same columns and convertible types.

    Returns:
        A table of ``solution_schema("solver")`` or ``solution_schema("run")``, provenance in its metadata.

    Raises:
        DataError: If the file is missing, no complete Parquet file, or holds something else.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} does not exist; expected a Parquet file of solutions")
    try:
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is no complete Parquet file; delete it and make it again") from error
    key: Key = "run" if "run" in table.column_names else "solver"
    schema = solution_schema(key)
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise DataError(f"{path} is no file of solutions: it lacks the columns {', '.join(missing)}")
    try:
        converted = table.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{path} is no file of solutions: {str(error).splitlines()[0]}") from error
    return converted.replace_schema_metadata(table.schema.metadata)


def solution_rows(table: pa.Table) -> list[SolutionRow]:
    """The rows of a table of solutions."""
    columns = [column.to_pylist() for column in table.columns]
    actions = table.column_names.index("actions")
    columns[actions] = [tuple(nodes or ()) for nodes in columns[actions]]
    return [SolutionRow(*values) for values in zip(*columns, strict=True)]


def provenance(table: pa.Table) -> dict[str, Any]:
    """What the writer of a table of solutions said about its origin; empty when it said nothing."""
    metadata: dict[bytes, bytes] = table.schema.metadata or {}
    said: dict[str, Any] = json.loads(metadata.get(PROVENANCE, b"{}"))
    return said


def merge_solutions(paths: Sequence[str | Path], output: str | Path) -> None:
    """Write the rows of several files of one method as one file, in the order of the instances.

    Args:
        paths: Files of disjoint instances of one variant and size.
        output: Path of the merged file; its provenance is that of the first.

    Raises:
        DataError: If a file is unusable, belongs to another method, variant or size, or an instance occurs twice.
    """
    if not paths:
        raise DataError("nothing to merge: name at least one file of solutions")
    tables = [read_solutions(path) for path in paths]
    key: Key = "run" if "run" in tables[0].column_names else "solver"
    origin: dict[int, str | Path] = {}
    rows: list[SolutionRow] = []
    wanted: tuple[str, int, str] | None = None
    for path, table in zip(paths, tables, strict=True):
        if key not in table.column_names:
            raise DataError(f"{path} has no column {key}, unlike {paths[0]}; references and evaluations do not mix")
        for row in solution_rows(table):
            got = (row.variant, row.num_customers, row.method)
            wanted = wanted or got
            if got != wanted:
                raise DataError(f"{path} holds {got}, but {paths[0]} holds {wanted}; merge the chunks of one set only")
            if row.instance in origin:
                raise DataError(f"instance {row.instance} is in both {origin[row.instance]} and {path}; drop one")
            origin[row.instance] = path
            rows.append(row)
    rows.sort(key=lambda row: row.instance)
    write_solutions(output, rows, key, provenance(tables[0]))
