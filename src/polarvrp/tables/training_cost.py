"""Long table of what training costs: parameters, seconds, hours and memory of a few compared methods."""

import math
from typing import Any

import pandas as pd

from polarvrp.catalog.experiments import Experiment
from polarvrp.study.experiments import is_compared
from polarvrp.tables.formats import duration, number, span
from polarvrp.tables.labels import method_label, method_rank, seed_of, stem_of
from polarvrp.tables.means import SPREAD, complete_mean, over_seeds
from polarvrp.tables.printing import Axis, PrintedTable, captioned, measures, print_table, seeds_said, written
from polarvrp.tables.sources import Results

EPOCH_COSTS = ("epoch_seconds", "epoch_seconds_without_ls", "epoch_seconds_with_ls", "total_hours")


def training_cost(results: Results, experiment: Experiment) -> pd.DataFrame:
    """Parameters, time and memory of each training of the experiment's methods."""
    labels = _labels(experiment)
    rows: list[dict[str, Any]] = []
    for run in results.trained_runs():
        if not is_compared(run, experiment):
            continue
        history, metadata = results.history(run), results.metadata(run)
        row = {"method": run.method, "num_customers": run.num_customers, **epoch_costs(history)}
        row |= {"parameters": metadata.get("parameters"), "device": metadata.get("device"), "epochs": len(history)}
        memory = history["peak_memory_gb"].max() if "peak_memory_gb" in history else math.nan
        rows.append(row | {"peak_memory_gb": memory, "runs": run.name})
    rows.sort(key=lambda row: (row["num_customers"], method_rank(row["method"], labels)))
    return pd.DataFrame(rows)


def epoch_costs(history: pd.DataFrame) -> dict[str, float]:
    """Mean seconds of an epoch, of one without and of one with refinement, and hours of all: ``EPOCH_COSTS``.

    Args:
        history: A row an epoch with ``seconds`` and, where local search ran, ``refined_tours`` above 0.
    """
    seconds = history["seconds"]
    refined = history.get("refined_tours", pd.Series(math.nan, index=history.index)) > 0
    hours = math.fsum(seconds) / 3600 if len(seconds) else math.nan
    means = (complete_mean(members) for members in (seconds, seconds[~refined], seconds[refined]))
    return dict(zip(EPOCH_COSTS, (*means, hours), strict=True))


def render_training_cost(frame: pd.DataFrame, experiment: Experiment) -> list[PrintedTable]:
    """A block a size, a row a training."""
    labels = _labels(experiment)
    long = frame.assign(method=frame["method"].map(stem_of), total_seconds=3600 * frame["total_hours"])
    columns = ["parameters", "epoch_seconds", "total_seconds", "peak_memory_gb"]
    long = over_seeds(long, ["num_customers", "method"], columns).drop(columns=f"parameters{SPREAD}")
    cells = [
        written(long, "Parameters", "parameters", number("{:,.0f}")),
        written(long, "Epoch time", "epoch_seconds", duration),
        written(long, "Total time", "total_seconds", duration),
        written(long, "Peak memory", "peak_memory_gb", number("{:.2f} GB")),
    ]
    rows = zip(long["num_customers"], long["method"], strict=True)
    devices, seeds = ", ".join(sorted(frame["device"].dropna().unique())), frame["method"].map(seed_of)
    where = f" on {devices}" if devices else ""
    return [
        print_table(
            captioned(frame, experiment, f" over {span(frame['epochs'])} epochs{where}", seeds_said(seeds)),
            cells,
            ("n", "Method"),
            Axis(("num_customers", "method"), {row: (str(row[0]), method_label(row[1], labels)) for row in rows}),
            Axis.of("measure", measures(cells), ""),
        )
    ]


def _labels(experiment: Experiment) -> dict[str, str]:
    """Label of each compared method by its stem, in order."""
    return {method.stem: method.label for method in experiment.methods}
