"""Building tables from the results that exist, and writing each as Parquet, CSV, Markdown and LaTeX."""

import csv
import io
import logging
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from polarvrp import __version__
from polarvrp.errors import ConfigError, DataError
from polarvrp.files import atomic_path, with_provenance, write_text
from polarvrp.study.runs import parse_run
from polarvrp.study.specs import TABLE_CODE_VERSION
from polarvrp.tables.gap_tables import Row
from polarvrp.tables.registry import TABLES, TableKind
from polarvrp.tables.sheets import to_latex, to_markdown
from polarvrp.tables.sources import MissingResultsError, Results

FORMATS = ("parquet", "csv", "md", "tex")

_LOGGER = logging.getLogger(__name__)


def build_tables(results: Results, names: Sequence[str] = ()) -> list[Path]:
    """Build tables into the folder ``tables`` beside the results.

    Args:
        results: Where the numbers lie.
        names: Tables to build; each must have its results. None given: all that have them, others are logged.

    Returns:
        Paths of the written files.

    Raises:
        ConfigError: If a name is unknown.
        MissingResultsError: If a named table lacks results, or no table has any.
        DataError: If a result file is unusable.
    """
    for name in names:
        if name not in TABLES:
            raise ConfigError(f"unknown table {name!r}; there are {', '.join(TABLES)}")
    paths: list[Path] = []
    for kind in TABLES.values():
        if names and kind.name not in names:
            continue
        try:
            paths += write_table(results, kind, build_rows(results, kind))
        except MissingResultsError as error:
            if names:
                raise
            _LOGGER.info("%s left out: %s", kind.name, error)
    if not paths:
        raise MissingResultsError(
            f"{results.root} holds no results to build tables from; make them with: snakemake --cores all"
        )
    return paths


def build_rows(results: Results, kind: TableKind) -> list[Row]:
    """Rows of one table.

    Raises:
        MissingResultsError: If nothing it is made from exists.
    """
    rows = kind.build(results)
    if not rows:
        raise MissingResultsError(
            f"table {kind.name} has no results under {results.root} at scale {results.scale}; "
            f"make them with: snakemake --cores all {kind.needs}"
        )
    return rows


def write_table(results: Results, kind: TableKind, rows: Sequence[Row]) -> list[Path]:
    """Write one table in each of ``FORMATS``; the same rows give the same bytes."""
    stem = results.root / "tables" / kind.name
    paths = [stem.with_suffix(f".{suffix}") for suffix in FORMATS]
    table = _arrow_table(results, kind, rows)
    sheets = kind.render(rows)
    with atomic_path(paths[0]) as temporary:
        pq.write_table(table, temporary, compression="zstd")
    write_text(paths[1], _csv(kind.schema.names, rows))
    write_text(paths[2], to_markdown(sheets))
    write_text(paths[3], to_latex(sheets))
    return paths


def _arrow_table(results: Results, kind: TableKind, rows: Sequence[Row]) -> pa.Table:
    """Rows with the table's schema, and the fingerprint of each training they come from."""
    runs = sorted({run for row in rows for run in row.get("runs", ())})
    provenance = {
        "table": kind.name,
        "scale": results.scale,
        "code": TABLE_CODE_VERSION,
        "polarvrp": __version__,
        "gap_percent": "mean over instances of 100 (cost - reference) / reference",
        "fingerprints": {run: results.recorded(parse_run(run), "fingerprint") for run in runs},
    }
    schema = with_provenance(kind.schema, provenance)
    try:
        return pa.Table.from_pylist(list(rows), schema=schema)
    except (pa.ArrowException, TypeError) as error:
        raise DataError(f"table {kind.name} got a value of another type: {error}; make its results again") from error


def _csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Rows with a head line; numbers in full precision, missing ones empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row[column] for column in columns] for row in rows)
    return text.getvalue()
