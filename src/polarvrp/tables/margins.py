"""Long table of preference margins: trainings that compare tours with and without refinement, side by side."""

import pandas as pd

from polarvrp.catalog.experiments import Experiment
from polarvrp.study.runs import RunSpec
from polarvrp.tables.ablations import small_runs
from polarvrp.tables.comparison import compare_columns
from polarvrp.tables.formats import number
from polarvrp.tables.means import over_seeds
from polarvrp.tables.paper import PAPER_SIZES, read_paper
from polarvrp.tables.printing import Axis, PrintedTable, captioned, print_table, seeds_said, written
from polarvrp.tables.sources import Results

MARGINS = "preference_margins"
"""Name of the analysis, and of the table."""

LABELS = {
    "mean_cost_gap": "Mean preferred-pair gap Δ",
    "cost_near_tie_percent": "Cost near-ties",
    "mean_policy_gap": "Mean policy gap Δθ",
    "policy_near_tie_percent": "Policy near-ties",
}
"""Metrics as tables print them."""


def preference_margins(results: Results, experiment: Experiment) -> pd.DataFrame:
    """Margins of each paradigm over the epochs in which the refining one refines, a row a metric and seed.

    Each number is that of all preferred pairs of those epochs together. A seed needs its refining training; the column
    of one that is missing beside it is empty.
    """
    analysed = small_runs(results.analysed_runs(MARGINS), experiment)
    margins = {(run.paradigm, run.seed): margins_of(results, run) for run in analysed}
    paradigms = [str(method.paradigm) for method in experiment.methods]
    rows = []
    for run in analysed:
        epochs = refining_epochs(margins[run.paradigm, run.seed])
        if epochs is None:
            continue
        names = {name: margins.get((name, run.seed)) for name in paradigms}
        columns = {name: pooled(frame, epochs) for name, frame in names.items() if frame is not None}
        wide = pd.DataFrame({name: columns.get(name) for name in paradigms}).reset_index()
        runs = [other.name for other in analysed if other.seed == run.seed]
        wide["runs"] = [runs] * len(wide)
        rows.append(wide.assign(seed=run.seed, num_customers=run.num_customers))
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()


def margins_of(results: Results, run: RunSpec) -> pd.DataFrame:
    """Margins of a training by epoch, as ``analysis.margins`` wrote them."""
    path = results.layout.analysis(run.name, MARGINS)
    columns = ("epoch", "metric", "epsilon_percent", "value", "preferred_pairs", "refined_tours")
    return results.of_model(run, path, columns)


def refining_epochs(margins: pd.DataFrame) -> tuple[int, int] | None:
    """First and last epoch of the part of a training that refines tours, None where none does."""
    refined = margins.loc[margins["refined_tours"] > 0, "epoch"]
    return None if refined.empty else (int(refined.min()), int(margins["epoch"].max()))


def pooled(margins: pd.DataFrame, epochs: tuple[int, int]) -> pd.Series:
    """Each metric over all preferred pairs of some epochs, indexed by metric and tolerance in their order."""
    some = margins[margins["epoch"].between(*epochs)]
    weights = some["preferred_pairs"].where(some["value"].notna())
    sums = some.assign(weight=weights, total=some["value"] * weights)
    groups = sums.groupby(["metric", "epsilon_percent"], sort=False, dropna=False)
    return groups["total"].sum(min_count=1) / groups["weight"].sum(min_count=1)


def render_margins(frame: pd.DataFrame, experiment: Experiment) -> list[PrintedTable]:
    """A row a metric, a column a paradigm; the wider gap and the fewer near-ties are emphasised."""
    labels = {str(method.paradigm): method.label for method in experiment.methods}
    keys = ["metric", "epsilon_percent"]
    long = frame.melt([*keys, "seed"], list(labels), "paradigm", "value").dropna(subset="value")
    long = long.assign(name=[margin_label(*key) for key in long[keys].itertuples(index=False, name=None)])
    long = over_seeds(long.assign(gap=long["epsilon_percent"].isna()), ["name", "gap", "paradigm"], ["value"])
    gaps, near_ties = long[long["gap"]], long[~long["gap"]]
    three = number("{:.3f}")
    widest = gaps["value"].map(three) == gaps.groupby("name")["value"].transform("max").map(three)
    cells = [
        written(gaps, "Margin", "value", three).assign(best=widest),
        written(near_ties, "Margin", "value", number("{:.2f}%"), ("name",)),
    ]
    return [
        print_table(
            captioned(frame, experiment, f", n={frame['num_customers'].iloc[0]}", seeds_said(frame["seed"])),
            cells,
            ("Metric",),
            Axis.of(
                "name", dict.fromkeys(margin_label(*key) for key in frame[keys].itertuples(index=False, name=None))
            ),
            Axis(("paradigm",), {name: ("", label) for name, label in labels.items()}),
        )
    ]


def margin_label(metric: str, epsilon_percent: float) -> str:
    """A metric as tables and figures print it, with its tolerance if it has one."""
    return LABELS[metric] if pd.isna(epsilon_percent) else f"{LABELS[metric]}, ε={epsilon_percent:g}%"


def compare_margins(ours: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Every number of the paper's table beside ours at its size, mean over the seeds."""
    keys, paradigms = ["metric", "epsilon_percent"], [str(method.paradigm) for method in experiment.methods]
    here = over_seeds(ours[ours["num_customers"] == min(PAPER_SIZES)], keys, paradigms)
    return compare_columns(read_paper(experiment.name), here, keys)
