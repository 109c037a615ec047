"""Every printed number of the paper beside ours (``paper_comparison``), computed from the long tables alone."""

from typing import Any

import pandas as pd

from polarvrp.catalog.experiments import EXPERIMENTS, Experiment, grid_of, sweep_of, tables
from polarvrp.catalog.methods import METHODS, OWN, PUBLISHED, SOLVERS
from polarvrp.catalog.records import resolve
from polarvrp.tables.claims import CLAIMS, compare_claims
from polarvrp.tables.formats import plain
from polarvrp.tables.frames import arrow_schema, typed
from polarvrp.tables.grids import axis_labels
from polarvrp.tables.labels import OURS, as_in_the_paper, is_external, is_shipped, printed_stems, shipped_method
from polarvrp.tables.means import average_over, complete_mean, over_seeds, seed_means
from polarvrp.tables.notes import DEFINITIONS, MISPRINT, note_of
from polarvrp.tables.paper import IN_DISTRIBUTION_ORDER, PAPER_SIZES, SOLVER_CORES, read_paper
from polarvrp.tables.printing import Axis, PrintedTable, captioned, measures, print_table, written
from polarvrp.tables.set_x import instance_groups
from polarvrp.tables.sources import MissingResultsError, Results

LINE = ["row", "column", "paper", "ours"]
"""Columns of what a compare function returns."""

AVERAGE = "average"
"""Start of the rows that average over variants or instances."""


def paper_comparison(results: Results, experiment: Experiment) -> pd.DataFrame:
    """The paper's number and ours for every cell that the paper prints as a number.

    Returns:
        Columns ``table``, ``row``, ``column``, ``paper``, ``ours`` (missing where a table, a row or the paper's size
        is), ``difference`` and ``note`` (a misprint of the paper, or a number that it defines otherwise than we do);
        no rows without any table of this scale.
    """
    compared = [record for record in EXPERIMENTS.values() if record.paper is not None]
    read = tables() if results.compared is None else results.compared
    names = [name for name in read if name != experiment.name]
    built = {name: frame for name in names if (frame := _built(results, name)) is not None}
    if not built:
        return pd.DataFrame()
    parts = {}
    for record in compared:
        ours = built.get(record.name, typed(arrow_schema(record).empty_table()))
        parts[record.name] = resolve(str(record.paper))(ours, record)
    parts[CLAIMS] = compare_claims(built)
    lines: pd.DataFrame = pd.concat([part.assign(table=name) for name, part in parts.items()], ignore_index=True)
    lines = lines[lines["paper"].notna() | lines["ours"].notna()]
    notes = [note_of(*cell) for cell in lines[["table", "row", "column"]].itertuples(index=False, name=None)]
    return lines.assign(difference=lines["ours"] - lines["paper"], note=pd.Series(notes, lines.index, object))


def render_comparison(frame: pd.DataFrame, experiment: Experiment) -> list[PrintedTable]:
    """Averages, claims and the tables without averages; then misprints of the paper, then differing definitions.

    Other numbers of single variants and instances are in the long form only.
    """
    averages = frame["row"].str.startswith(AVERAGE)
    compared = int(frame["ours"].count())
    sizes = " and ".join(map(str, PAPER_SIZES))
    why = "" if compared else f": nothing of this study is of the paper's sizes, n = {sizes}"
    facts = (
        f"Difference is ours minus the paper's. {compared} of {len(frame)} numbers have a counterpart{why}. "
        f"Single variants and instances are in the Parquet and CSV files only. A note says that a number of the paper "
        f"is a misprint, or that its definition differs from ours; tables below say how."
    )
    shown = frame[averages | ~averages.groupby(frame["table"]).transform("any")]
    shown = shown.assign(kind=shown["note"].str.partition(":")[0])
    kinds = written(shown, "Note", "kind", lambda kind: "" if pd.isna(kind) else kind)
    # Each misprint once: that of a solver stands beside its published solutions.
    once = ~frame["column"].str.partition(" ")[0].isin(SOLVERS)
    wrong = frame[once & frame["note"].str.startswith(MISPRINT, na=False)]
    wrong = wrong.assign(text=wrong["note"].str.removeprefix(MISPRINT).str.partition(";")[0])
    rights = written(wrong, "Misprint", "text", str)
    keys = ["table", "row", "column"]
    defined = pd.DataFrame(DEFINITIONS, columns=[*keys, "text"])
    differing = ": differing definitions; * stands for any text"
    printed = [
        (shown, [*_numbers(shown), kinds], captioned(frame, experiment, "", facts)),
        (wrong, [*_numbers(wrong), rights], captioned(frame, experiment, ": misprints of the paper")),
        (defined, [written(defined, "Ours", "text", str)], captioned(frame, experiment, differing)),
    ]
    return [
        print_table(
            caption,
            cells,
            [key.capitalize() for key in keys],
            Axis(keys, {cell: cell for cell in rows[keys].itertuples(index=False, name=None)}),
            Axis.of("measure", measures(cells), ""),
        )
        for rows, cells, caption in printed
        if not rows.empty
    ]


def _numbers(rows: pd.DataFrame) -> list[pd.DataFrame]:
    return [written(rows, name.capitalize(), name, plain) for name in ("paper", "ours", "difference")]


def compare_test_sets(ours: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Cells of a table of gaps, then its averages; solvers twice, as we ran them and as published.

    Seconds of solvers are in the paper's unit, wall time on its number of cores.
    """
    ours = as_in_the_paper(ours)
    paper = _by_stem(read_paper(experiment.name), ours)
    counted = ours["instances"] + ours["left_out"]
    seconds = ours["seconds"].where(~ours["method"].map(is_external), ours["seconds"] / SOLVER_CORES)
    ours = ours.assign(seconds_per_1000=(1000 * seconds / counted.where(counted > 0)).astype("float64"))
    columns = [name for name in ("objective", "gap_percent", "seconds_per_1000") if name in paper]
    cells = _side_by_side(paper, ours, ["variant", "num_customers"], columns)
    gaps = cells[cells["measure"] == "gap_percent"]
    averages = gaps.groupby(["num_customers", "stem"], sort=False)[["paper", "ours"]].agg(complete_mean).reset_index()
    averages = averages.sort_values("num_customers", kind="stable").assign(variant=AVERAGE, measure="gap_percent")
    lines = pd.concat([cells, averages], ignore_index=True)
    lines["row"] = lines["variant"] + "-n" + lines["num_customers"].astype(str)
    return _method_lines(lines)


def compare_set_x(ours: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Costs in the paper's form: the unrounded length of the tour, rounded up once."""
    ours = ours.assign(cost=ours["published_cost"], gap_percent=ours["published_gap_percent"])
    ours = ours[ours["trained_on"] == max(PAPER_SIZES)]
    paper = _by_stem(read_paper(experiment.name), ours)
    cells = _side_by_side(paper, ours, ["instance"], ["cost", "gap_percent"])
    gaps, averages = cells[cells["measure"] == "gap_percent"], []
    for group, members in instance_groups(list(paper["instance"].unique())).items():
        means = [average_over(gaps, "instance", members, ["stem"], side) for side in ("paper", "ours")]
        averages.append(pd.concat(means, axis=1).reset_index().assign(instance=group, measure="gap_percent"))
    return _method_lines(pd.concat([cells, *averages], ignore_index=True).rename(columns={"instance": "row"}))


def compare_paradigms(ours: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Mean gap of our backbone under each paradigm."""
    rows = ours[(ours["backbone"] == OWN.backbone) & (ours["num_customers"] == min(PAPER_SIZES))]
    means = average_over(rows, "variant", IN_DISTRIBUTION_ORDER, ["paradigm", "seed"], "gap_percent")
    means = means.groupby("paradigm").agg(complete_mean)
    names = list(axis_labels(grid_of(experiment)))
    paper = read_paper("paradigms_ours").set_index("paradigm")["mean_gap_percent"]
    columns = {"column": names, "paper": paper.reindex(names).array, "ours": means.reindex(names).array}
    return pd.DataFrame({"row": f"{AVERAGE} {OWN.backbone}", **columns})


def compare_refinement_start(ours: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Mean gap of refinement from scratch and of the paper's schedule."""
    starts = {"polar_from_scratch": 0, "polar": 250}
    paper = read_paper("paradigms_ours")
    paper = paper.assign(refinement_start_epoch=paper["paradigm"].map(starts)).dropna(subset="refinement_start_epoch")
    paper = paper.sort_values("refinement_start_epoch", ignore_index=True)
    return _compare_sweep(paper[["refinement_start_epoch", "mean_gap_percent"]], ours, experiment)


def compare_temperature(ours: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Mean gap at each temperature under each paradigm."""
    return _compare_sweep(read_paper("temperature_sensitivity"), ours, experiment)


def compare_refined_tours(ours: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Mean gap and seconds of an epoch for each number of refined tours; the paper's epoch is one with refinement."""
    return _compare_sweep(
        read_paper(experiment.name), ours.assign(epoch_seconds=ours["epoch_seconds_with_ls"]), experiment
    )


def compare_task_experts(ours: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Mean gap and seconds of an epoch for each number of experts."""
    return _compare_sweep(read_paper(experiment.name), ours, experiment)


def compare_training_cost(ours: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Parameters, time and memory of each training."""
    paper = read_paper(experiment.name)
    stems = {method.label: method.stem for method in experiment.methods}
    columns = ["parameters", "epoch_seconds", "total_hours", "peak_memory_gb"]
    lines = _side_by_side(paper.assign(stem=paper["method"].map(stems)), ours, ["num_customers"], columns)
    labels = lines["stem"].map({stem: label for label, stem in stems.items()})
    lines["row"] = labels + "-n" + lines["num_customers"].astype(str)
    return lines.rename(columns={"measure": "column"})[LINE]


def compare_columns(paper: pd.DataFrame, ours: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Lines of a table that has the very columns of the paper's.

    Args:
        paper: The paper's rows.
        ours: Our rows with the same columns.
        keys: Columns that tell the rows apart; the others are compared.
    """
    lines = _merged(paper, ours, keys)
    rows = [" ".join(_named(key, cell[key]) for key in keys) for cell in lines[keys].to_dict("records")]
    return lines.assign(row=[row.strip() for row in rows], column=lines["measure"])[LINE]


def _built(results: Results, name: str) -> pd.DataFrame | None:
    try:
        return results.table(name)
    except MissingResultsError:
        return None


def _by_stem(paper: pd.DataFrame, ours: pd.DataFrame) -> pd.DataFrame:
    """The paper's rows, each for every method of ours behind its label.

    A solver stands twice, as we ran it and as published, and so does our method where shipped models are among ours.
    """
    stems = {
        label: [name for name in (stem, PUBLISHED + stem) if name in METHODS] for label, stem in printed_stems().items()
    }
    stems[OURS] = [*stems[OURS], *sorted({method for method in ours["method"] if is_shipped(method)})]
    lines = paper.assign(stem=paper["method"].map(stems)).explode("stem", ignore_index=True)
    if "num_customers" not in lines:
        return lines
    fits = lines["stem"] == [shipped_method(size) for size in lines["num_customers"]]
    return lines[fits | ~lines["stem"].map(is_shipped)]


def _side_by_side(paper: pd.DataFrame, ours: pd.DataFrame, keys: list[str], columns: list[str]) -> pd.DataFrame:
    """A line a number that the paper prints.

    Args:
        paper: The paper's rows with column ``stem``.
        ours: Our long table with column ``method``; means over its seeds are compared.
        keys: Columns of both that tell the rows of a method apart.
        columns: Columns of both to compare.

    Returns:
        Columns ``stem``, ``keys``, ``measure``, ``paper`` and ``ours``, in the order of the paper's rows.
    """
    printed = paper.set_index(["stem", *keys])[columns].rename_axis(columns="measure")
    mine = seed_means(ours, keys, columns).reindex(printed.index).rename_axis(columns="measure")
    lines = pd.DataFrame({"paper": printed.stack(future_stack=True), "ours": mine.stack(future_stack=True)})
    return lines.dropna(subset="paper").reset_index()


def _method_lines(lines: pd.DataFrame) -> pd.DataFrame:
    """Lines named by method and measure, without averages of cells that the paper leaves out."""
    return lines.assign(column=lines["stem"] + " " + lines["measure"])[LINE].dropna(subset="paper")


def _compare_sweep(paper: pd.DataFrame, ours: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Rows of a sweep beside ours of the paper's size over all its variants."""
    column = sweep_of(experiment).column
    keys = [name for name in (column, "paradigm") if name in paper]
    whole = (ours["num_customers"] == min(PAPER_SIZES)) & (ours["variants"] == len(IN_DISTRIBUTION_ORDER))
    values = [str(column) for column in paper if column not in keys]
    lines = _merged(paper, over_seeds(ours[whole], keys, values), keys)
    paradigms = lines["paradigm"] + " " if "paradigm" in keys else ""
    return lines.assign(row=[f"{column}={value:g}" for value in lines[column]], column=paradigms + lines["measure"])[
        LINE
    ]


def _merged(paper: pd.DataFrame, ours: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """A line a number of the paper in a column beside the keys: keys, ``measure``, ``paper`` and ``ours``."""
    columns = [column for column in paper if column not in keys]
    ours = ours.reindex(columns=[*keys, *columns]).astype(paper[keys].dtypes.to_dict())
    mine = paper[keys].merge(ours, "left", keys)
    sides = [frame[columns].rename_axis(columns="measure").stack(future_stack=True) for frame in (paper, mine)]
    lines = pd.DataFrame({"paper": sides[0], "ours": sides[1].astype("float64")}).reset_index("measure")
    return lines.join(paper[keys]).dropna(subset="paper")


def _named(key: str, value: Any) -> str:
    """A key value in the name of a row: text alone, a number with its column; nothing where it is missing."""
    if isinstance(value, str):
        return value
    return "" if pd.isna(value) else f"{key}={value:g}"
