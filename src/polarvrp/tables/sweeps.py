"""Long tables of the sweeps: mean gap and epoch times of trainings that differ in one value."""

import pandas as pd

from polarvrp.catalog.experiments import Experiment, Sweep, sweep_of
from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.study.runs import RunSpec
from polarvrp.tables.ablations import cell_gaps, small_runs
from polarvrp.tables.formats import duration, number
from polarvrp.tables.labels import references_said
from polarvrp.tables.means import complete_mean, over_seeds
from polarvrp.tables.printing import Axis, PrintedTable, captioned, measures, print_table, seeds_said, written
from polarvrp.tables.sources import Results
from polarvrp.tables.training_cost import EPOCH_COSTS, epoch_costs


def sweep_rows(results: Results, experiment: Experiment) -> pd.DataFrame:
    """Mean gap over the training variants and epoch times for each swept value, a row a seed.

    A gap is missing where a run was tested on fewer variants than another.
    One value alone, which is the default run of another table, makes no sweep and no rows.
    """
    sweep = sweep_of(experiment)
    runs = small_runs(results.evaluated_runs(), experiment)
    cells = {run: {sweep.column: _swept_value(results, run, sweep), "paradigm": run.paradigm} for run in runs}
    gaps, keys = cell_gaps(results, cells), [sweep.column, "paradigm", "seed"]
    if gaps.empty or gaps[sweep.column].nunique() < 2:
        return pd.DataFrame()
    means = gaps.groupby(keys).agg(
        mean_gap_percent=("gap_percent", complete_mean),
        variants=("variant", "size"),
        num_customers=("num_customers", "first"),
        reference=("reference", "first"),
        runs=("runs", "first"),
    )
    means["mean_gap_percent"] = means["mean_gap_percent"].where(means["variants"] == means["variants"].max())
    costs = [{**cell, "seed": run.seed, **epoch_costs(results.history(run))} for run, cell in cells.items()]
    return means.join(pd.DataFrame(costs).set_index(keys)).reset_index()


def render_sweep(frame: pd.DataFrame, experiment: Experiment) -> list[PrintedTable]:
    """A row a swept value, gap and times of each paradigm; the best gap emphasised."""
    sweep = sweep_of(experiment)
    (first, *others) = sweep.paradigms
    long = frame if others else frame.assign(paradigm=first)
    long = long.assign(total_seconds=3600 * long["total_hours"])
    long = over_seeds(long, [sweep.column, "paradigm"], ["mean_gap_percent", *EPOCH_COSTS, "total_seconds"])
    cells = [
        written(long, "Mean gap", "mean_gap_percent", number("{:.3f}%"), ("paradigm",)),
        written(long, "Epoch without LS", "epoch_seconds_without_ls", duration),
        written(long, "Epoch with LS", "epoch_seconds_with_ls", duration),
        written(long, "Total time", "total_seconds", duration),
    ]
    columns = {
        (paradigm, measure): (PARADIGMS[paradigm].label if others else "", measure)
        for paradigm in sweep.paradigms
        for measure in measures(cells)
    }
    facts = (
        f"Gaps are means over {frame['variants'].max()} training variants against "
        f"{references_said(frame['reference'])}, epoch times over epochs without and with "
        f"local search.{seeds_said(frame['seed'])}"
    )
    return [
        print_table(
            captioned(frame, experiment, f", n={frame['num_customers'].iloc[0]}", facts),
            cells,
            (sweep.symbol,),
            Axis((sweep.column,), {value: (f"{value:g}",) for value in sorted(frame[sweep.column].unique())}),
            Axis(("paradigm", "measure"), columns),
        )
    ]


def _swept_value(results: Results, run: RunSpec, sweep: Sweep) -> float:
    """Value in the run's name, else the study's default, which the training recorded."""
    named: float | None = getattr(run, sweep.setting)
    return float(results.specified(run, sweep.section, sweep.setting)) if named is None else float(named)
