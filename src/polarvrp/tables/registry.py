"""Every table by name: how its rows are built, the columns it has, and how it is printed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from polarvrp.tables import gap_tables, renderings, study_tables
from polarvrp.tables.comparison import SOURCES, paper_comparison
from polarvrp.tables.gap_tables import Row
from polarvrp.tables.sheets import Sheet
from polarvrp.tables.sources import Results, read_rows

COMPARISON = "paper_comparison"

_TEXT, _WHOLE, _REAL = pa.string(), pa.int64(), pa.float64()


@dataclass(frozen=True, slots=True)
class TableKind:
    """One long table.

    Attributes:
        name: File name without suffix.
        schema: Columns and types; rows come sorted by the key columns, in the paper's order.
        build: Rows from the result files; none when nothing was made yet.
        render: Printed form.
        needs: Target of the workflow that makes what is missing.
    """

    name: str
    schema: pa.Schema
    build: Callable[[Results], list[Row]]
    render: Callable[[Sequence[Row]], list[Sheet]]
    needs: str


def _schema(keys: dict[str, pa.DataType], values: dict[str, pa.DataType]) -> pa.Schema:
    """Keys, then values, then the scale; values may be null."""
    fields = [pa.field(name, kind, nullable=False) for name, kind in keys.items()]
    fields += [pa.field(name, kind) for name, kind in values.items()]
    return pa.schema([*fields, pa.field("scale", _TEXT, nullable=False)])


_GAPS = _schema(
    {"variant": _TEXT, "num_customers": _WHOLE, "method": _TEXT},
    {"objective": _REAL, "gap_percent": _REAL, "gap_of_means_percent": _REAL, "seconds": _REAL}
    | {"instances": _WHOLE, "left_out": _WHOLE, "reference": _TEXT},
)
_SET_X = _schema(
    {"instance": _TEXT, "method": _TEXT},
    {"best_known": _REAL, "cost": _REAL, "gap_percent": _REAL, "published_cost": _REAL}
    | {"published_gap_percent": _REAL, "seconds": _REAL, "trained_on": _WHOLE},
)
_PARADIGMS = _schema(
    {"backbone": _TEXT, "paradigm": _TEXT, "variant": _TEXT},
    {"gap_percent": _REAL, "num_customers": _WHOLE, "seeds": _WHOLE},
)
_ENCODERS = _schema(
    {"backbone": _TEXT, "encoder": _TEXT, "variant": _TEXT},
    {"gap_percent": _REAL, "parameters": _WHOLE, "num_customers": _WHOLE, "seeds": _WHOLE},
)
_COST = _schema(
    {"method": _TEXT, "num_customers": _WHOLE},
    {"parameters": _WHOLE, "epoch_seconds": _REAL, "total_hours": _REAL, "peak_memory_gb": _REAL}
    | {"epochs": _WHOLE, "device": _TEXT},
)
_COMPARISON = _schema(
    {"table": _TEXT, "row": _TEXT, "column": _TEXT}, {"paper": _REAL, "ours": _REAL, "difference": _REAL}
)


def _compare(results: Results) -> list[Row]:
    """Comparison of the tables of this scale that exist beside it."""
    tables: dict[str, list[Row]] = {}
    for name in SOURCES:
        path = results.root / "tables" / f"{name}.parquet"
        rows = read_rows(path, ("scale",)) if path.is_file() else []
        tables |= {name: rows} if rows and rows[0]["scale"] == results.scale else {}
    return paper_comparison(tables, results.scale) if tables else []


def _sweep_kind(name: str) -> TableKind:
    sweep = study_tables.SWEEPS[name]
    keys = {sweep.column: _REAL if sweep.column == "alpha" else _WHOLE}
    if len(sweep.paradigms) > 1:
        keys |= {"paradigm": _TEXT}
    values = {
        **dict.fromkeys(("mean_gap_percent", "epoch_seconds", "epoch_seconds_without_ls"), _REAL),
        **dict.fromkeys(("epoch_seconds_with_ls", "total_hours"), _REAL),
        **dict.fromkeys(("variants", "num_customers", "seeds"), _WHOLE),
    }
    build = study_tables.sweep(name)
    return TableKind(name, _schema(keys, values), build, renderings.sweep(name), "ablations")


TABLES: dict[str, TableKind] = {
    kind.name: kind
    for kind in (
        TableKind("in_distribution", _GAPS, gap_tables.in_distribution, renderings.in_distribution, "evaluate"),
        TableKind("zero_shot", _GAPS, gap_tables.zero_shot, renderings.zero_shot, "zero_shot"),
        TableKind("set_x", _SET_X, gap_tables.set_x, renderings.set_x, "set_x"),
        TableKind(
            "training_paradigms",
            _PARADIGMS,
            study_tables.training_paradigms,
            renderings.training_paradigms,
            "ablations",
        ),
        TableKind(
            "encoder_settings", _ENCODERS, study_tables.encoder_settings, renderings.encoder_settings, "ablations"
        ),
        *(_sweep_kind(name) for name in study_tables.SWEEPS),
        TableKind("training_cost", _COST, study_tables.training_cost, renderings.training_cost, "train"),
        TableKind(COMPARISON, _COMPARISON, _compare, renderings.paper_comparison, "tables"),
    )
}
"""In the order they are built: the comparison reads the others."""
