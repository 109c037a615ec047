"""Files of solutions: one explicit Parquet schema for the references of solvers and the evaluations of policies.

Every cost in such a file was recomputed in float64 from coordinates and actions. A row without a solution has a null
cost and says why in ``reason``. Provenance (versions, machine, settings) is JSON in the schema's metadata.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from polarvrp.errors import DataError
from polarvrp.files import read_parquet, write_parquet
from polarvrp.solutions.rows import SolutionRow

Key: TypeAlias = Literal["solver", "run"]
"""Column that names who solved: a solver in references, a trained run in evaluations."""

LARGEST_BLOCK = 2**24
"""Bytes of JSON parsed at a time; a row must fit."""

ROWS_AT_ONCE = 1000
"""Rows that are Python objects or text at a time: a hundred times what they take as a table."""


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


def key_of(table: pa.Table) -> Key:
    """Who solved, by the columns of a table of solutions."""
    return "run" if "run" in table.column_names else "solver"


def solution_table(rows: Iterable[SolutionRow], key: Key) -> pa.Table:
    """Rows as an Arrow table of ``solution_schema(key)``.

    Args:
        rows: Any order; the table keeps it.
        key: ``"solver"`` for references, ``"run"`` for evaluations.

    Raises:
        DataError: If a number is not finite.
    """
    schema, rest = solution_schema(key), iter(rows)
    parts = []
    while block := list(islice(rest, ROWS_AT_ONCE)):
        parts.append(_block_table(block, schema))
    return pa.concat_tables(parts).combine_chunks() if parts else schema.empty_table()


def _block_table(rows: list[SolutionRow], schema: pa.Schema) -> pa.Table:
    names = [field.name for field in dataclasses.fields(SolutionRow)]
    records = [dict(zip(schema.names, (getattr(row, name) for name in names), strict=True)) for row in rows]
    try:
        lines = "\n".join(json.dumps(record, allow_nan=False) for record in records)
    except ValueError as error:
        raise DataError("costs, violations and seconds must be finite numbers") from error
    table = pj.read_json(  # exact, and unlike building arrays from Python objects it imports no pandas
        pa.BufferReader(lines.encode()),
        read_options=pj.ReadOptions(use_threads=False, block_size=LARGEST_BLOCK),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
    )
    return table.select(schema.names).cast(schema)


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
    write_parquet(path, solution_table(rows, key), metadata or {})


def read_solutions(path: str | Path, *, as_it_is: bool = False) -> pa.Table:
    """Read a file of solutions and verify its columns.

    Args:
        path: A file of ``write_solutions``, or any Parquet file with the same columns and convertible types.
        as_it_is: For those who judge its tours and costs: it may have been changed since it was written, lack columns
            that say nothing of them, which are null then, and not say why there is no solution.

    Returns:
        A table of ``solution_schema("solver")`` or ``solution_schema("run")``, provenance in its metadata.

    Raises:
        DataError: If the file is missing, no complete Parquet file, or holds something else.
    """
    table = read_parquet(path, "expected a Parquet file of solutions", changed=as_it_is)
    key = key_of(table)
    schema = solution_schema(key)
    missing = [name for name in schema.names if name not in table.column_names]
    judged = ("variant", "num_customers", "instance", key, "cost", "actions")
    lacking = [name for name in missing if name in judged or not as_it_is]
    if lacking:
        raise DataError(f"{path} is no file of solutions: it lacks the columns {', '.join(lacking)}")
    for name in missing:
        table = table.append_column(name, pa.nulls(len(table)))
    try:
        converted = table.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{path} is no file of solutions: {str(error).splitlines()[0]}") from error
    fault = _fault(converted, reasons=not as_it_is)
    if fault is not None:
        raise DataError(f"{path} is no file of solutions: {fault}; make it again")
    return converted.replace_schema_metadata(table.schema.metadata)


def _fault(table: pa.Table, reasons: bool) -> str | None:
    """What no solver or network writes, None if there is nothing of it; wrong costs are for ``checking`` to name."""
    for field in table.schema:
        if (
            field.name != "cost"
            and pa.types.is_floating(field.type)
            and pc.any(pc.invert(pc.is_finite(table[field.name]))).as_py()
        ):
            return f"column {field.name} has a number that is not finite"
    if pc.list_flatten(table["actions"]).null_count:
        return "a tour has a missing node"
    if reasons and pc.any(pc.equal(pc.is_null(table["cost"]), pc.is_null(table["reason"]))).as_py():
        return "each row has either a cost or a reason why there is none"
    return None


def plain_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows of any table as Python objects, of which only some exist at a time."""
    for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
        yield from batch.to_pylist()


def solution_rows(table: pa.Table) -> list[SolutionRow]:
    """The rows of a table of solutions."""
    columns = [column.to_pylist() for column in table.columns]
    actions = table.column_names.index("actions")
    columns[actions] = [tuple(nodes or ()) for nodes in columns[actions]]
    return [SolutionRow(*values) for values in zip(*columns, strict=True)]
