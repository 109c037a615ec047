"""Every printed number of the paper beside ours (``paper_comparison``), computed from the long tables alone."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.tables.gap_tables import Row, stem_of
from polarvrp.tables.paper import (
    IN_DISTRIBUTION_ORDER,
    METHODS,
    PAPER_SIZES,
    SET_X_GROUPS,
    TRAINING_COST_METHODS,
    ZERO_SHOT_ORDER,
    read_paper,
    set_x_group,
)
from polarvrp.tables.study_tables import mean_or_none

Tables = Mapping[str, Sequence[Row]]
"""Rows of the long tables that exist, by name."""

AVERAGE = "average"
"""Start of the rows that average over variants or instances."""

SOURCES = (
    *("in_distribution", "zero_shot", "set_x", "training_paradigms", "temperature", "refined_tours", "task_experts"),
    *("refinement_start", "training_cost", "preference_margins", "expert_contributions"),
)
"""Tables that are compared where they exist."""

Line = tuple[str, str, float | None, float | None]
"""Row, column, the paper's number, ours."""


def paper_comparison(tables: Tables, scale: str) -> list[Row]:
    """The paper's number and ours for every cell that the paper prints as a number.

    Args:
        tables: Rows of the tables that exist; ours is None where a table, a row or the paper's size is missing.
        scale: Scale of the study.

    Returns:
        Rows in the order of the paper's tables.
    """
    return [
        {
            "table": table,
            "row": row,
            "column": column,
            "paper": paper,
            "ours": ours,
            "difference": None if ours is None else ours - paper,
            "scale": scale,
        }
        for table, compare in _COMPARISONS.items()
        for row, column, paper, ours in compare(tables)
        if paper is not None
    ]


def average_over(gaps: Mapping[str, float | None], wanted: Iterable[str]) -> float | None:
    """Plain mean of the gaps of all wanted variants or instances, None unless each has one."""
    return mean_or_none(gaps.get(name) for name in wanted)


def seed_means(
    rows: Iterable[Row], keys: Sequence[str], columns: Iterable[str]
) -> dict[tuple[object, ...], dict[str, float | None]]:
    """Mean over the seeds of each method.

    Args:
        rows: Of a long table with column ``method``.
        keys: Columns that tell cells of one method apart.
        columns: Columns to average.

    Returns:
        Means by column, by the method's stem and the values of ``keys``.
    """
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((stem_of(row["method"]), *(row[key] for key in keys)), []).append(row)
    names = list(columns)
    return {
        key: {name: mean_or_none(row[name] for row in members) for name in names} for key, members in groups.items()
    }


def _in_distribution(tables: Tables) -> Iterator[Line]:
    columns = {"objective": "objective", "gap_percent": "gap_percent", "seconds_per_1000": "seconds_per_1000"}
    ours = [row | {"seconds_per_1000": _per_1000(row)} for row in tables.get("in_distribution", ())]
    yield from _test_sets("in_distribution", ours, columns, IN_DISTRIBUTION_ORDER)


def _zero_shot(tables: Tables) -> Iterator[Line]:
    columns = {"objective": "objective", "gap_percent": "gap_percent"}
    yield from _test_sets("zero_shot", tables.get("zero_shot", ()), columns, ZERO_SHOT_ORDER)


def _test_sets(table: str, ours: Iterable[Row], columns: Mapping[str, str], variants: Sequence[str]) -> Iterator[Line]:
    """Cells of a table of gaps, then its averages; solvers twice, as we ran them and as published."""
    cells = seed_means(ours, ("variant", "num_customers"), columns.values())
    paper = read_paper(table)
    for row in paper:
        variant, size = str(row["variant"]), int(row["num_customers"] or 0)
        for stem in _stems(str(row["method"])):
            mine = cells.get((stem, variant, size), {})
            for column, source in columns.items():
                yield f"{variant}-n{size}", f"{stem} {column}", _number(row[column]), mine.get(source)
    for size in PAPER_SIZES:
        for label in METHODS:
            gaps = {
                str(r["variant"]): _number(r["gap_percent"])
                for r in paper
                if (r["method"], r["num_customers"]) == (label, size)
            }
            for stem in _stems(label):
                mine = {v: cells.get((stem, v, size), {}).get("gap_percent") for v in variants}
                average = average_over(gaps, variants), average_over(mine, variants)
                yield f"{AVERAGE}-n{size}", f"{stem} gap_percent", *average


def _set_x(tables: Tables) -> Iterator[Line]:
    """Costs in the paper's form: the unrounded length of the tour, rounded up once."""
    ours = [row for row in tables.get("set_x", ()) if row["trained_on"] == max(PAPER_SIZES)]
    columns = {"cost": "published_cost", "gap_percent": "published_gap_percent"}
    cells = seed_means(ours, ("instance",), columns.values())
    paper = read_paper("set_x")
    for row in paper:
        stem = METHODS[str(row["method"])]
        mine = cells.get((stem, str(row["instance"])), {})
        for column, source in columns.items():
            yield str(row["instance"]), f"{stem} {column}", _number(row[column]), mine.get(source)
    instances = list(dict.fromkeys(str(row["instance"]) for row in paper))
    for group in (*SET_X_GROUPS, AVERAGE):
        members = [name for name in instances if group in {AVERAGE, set_x_group(name)}]
        for label in dict.fromkeys(str(row["method"]) for row in paper):
            stem = METHODS[label]
            gaps = {str(row["instance"]): _number(row["gap_percent"]) for row in paper if row["method"] == label}
            mine_by_name = {name: cells.get((stem, name), {}).get("published_gap_percent") for name in members}
            yield group, f"{stem} gap_percent", average_over(gaps, members), average_over(mine_by_name, members)


def _training_paradigms(tables: Tables) -> Iterator[Line]:
    paper = {str(row["paradigm"]): _number(row["mean_gap_percent"]) for row in read_paper("paradigms_ours")}
    rows = [row for row in tables.get("training_paradigms", ()) if row["backbone"] == "polarnet" and _small(row)]
    for paradigm in PARADIGMS:
        gaps = {row["variant"]: row["gap_percent"] for row in rows if row["paradigm"] == paradigm}
        yield f"{AVERAGE} polarnet", paradigm, paper[paradigm], average_over(gaps, IN_DISTRIBUTION_ORDER)


def _refinement_start(tables: Tables) -> Iterator[Line]:
    paper = {str(row["paradigm"]): _number(row["mean_gap_percent"]) for row in read_paper("paradigms_ours")}
    ours = {row["refinement_start_epoch"]: row for row in _whole(tables.get("refinement_start", ()))}
    column = "mean_gap_percent"
    for start, name in ((0, "polar_from_scratch"), (250, "polar")):
        yield f"refinement_start_epoch={start}", column, paper[name], _get(ours.get(start), column)


def _temperature(tables: Tables) -> Iterator[Line]:
    ours = {(row["alpha"], row["paradigm"]): row for row in _whole(tables.get("temperature", ()))}
    for row in read_paper("temperature_sensitivity"):
        mine = ours.get((row["alpha"], row["paradigm"]))
        column = f"{row['paradigm']} mean_gap_percent"
        yield f"alpha={row['alpha']}", column, _number(row["mean_gap_percent"]), _get(mine, "mean_gap_percent")


def _sweep(table: str, key: str, columns: Mapping[str, str]) -> Callable[[Tables], Iterator[Line]]:
    """Comparison of a sweep over the whole numbers in column ``key``; ``columns`` name the paper's and ours."""

    def compare(tables: Tables) -> Iterator[Line]:
        ours = {row[key]: row for row in _whole(tables.get(table, ()))}
        for row in read_paper(table):
            value = int(row[key] or 0)
            for column, source in columns.items():
                yield f"{key}={value}", column, _number(row[column]), _get(ours.get(value), source)

    return compare


def _training_cost(tables: Tables) -> Iterator[Line]:
    columns = ("parameters", "epoch_seconds", "total_hours", "peak_memory_gb")
    cells = seed_means(tables.get("training_cost", ()), ("num_customers",), columns)
    for row in read_paper("training_cost"):
        label, size = str(row["method"]), int(row["num_customers"] or 0)
        mine = cells.get((TRAINING_COST_METHODS[label], size), {})
        for column in columns:
            yield f"{label}-n{size}", column, _number(row[column]), mine.get(column)


def _analysis(table: str, keys: Sequence[str]) -> Callable[[Tables], Iterator[Line]]:
    """Comparison of a table that has the very columns of the paper's CSV."""

    def compare(tables: Tables) -> Iterator[Line]:
        ours = {tuple(row[key] for key in keys): row for row in tables.get(table, ())}
        for row in read_paper(table):
            mine = ours.get(tuple(row[key] for key in keys))
            name = " ".join(f"{key}={row[key]:g}" if isinstance(row[key], float) else str(row[key]) for key in keys)
            for column in (column for column in row if column not in keys):
                yield name.removesuffix(" None"), column, _number(row[column]), _get(mine, column)

    return compare


_COMPARISONS: dict[str, Callable[[Tables], Iterator[Line]]] = {
    "in_distribution": _in_distribution,
    "zero_shot": _zero_shot,
    "set_x": _set_x,
    "training_paradigms": _training_paradigms,
    "temperature": _temperature,
    "refined_tours": _sweep(
        # The paper's epoch time of this sweep is that of an epoch with refinement.
        "refined_tours",
        "refined_tours_k",
        {"mean_gap_percent": "mean_gap_percent", "epoch_seconds": "epoch_seconds_with_ls"},
    ),
    "task_experts": _sweep(
        "task_experts",
        "task_experts_kappa",
        {name: name for name in ("mean_gap_percent", "epoch_seconds_without_ls", "epoch_seconds_with_ls")},
    ),
    "refinement_start": _refinement_start,
    "preference_margins": _analysis("preference_margins", ("metric", "epsilon_percent")),
    "expert_contributions": _analysis("expert_contributions", ("layer",)),
    "training_cost": _training_cost,
}


def _stems(label: str) -> tuple[str, ...]:
    stem = METHODS[label]
    return (stem, f"published-{stem}") if stem in {"pyvrp", "ortools"} else (stem,)


def _per_1000(row: Row) -> float | None:
    instances = row["instances"] + row["left_out"]
    return None if row["seconds"] is None or not instances else 1000 * row["seconds"] / instances


def _small(row: Row) -> bool:
    return bool(row["num_customers"] == min(PAPER_SIZES))


def _whole(rows: Iterable[Row]) -> list[Row]:
    """Rows of a sweep at the paper's size over all its variants."""
    return [row for row in rows if _small(row) and row["variants"] == len(IN_DISTRIBUTION_ORDER)]


def _get(row: Row | None, column: str) -> float | None:
    return None if row is None else row.get(column)


def _number(value: str | float | None) -> float | None:
    return value if isinstance(value, float) else None
