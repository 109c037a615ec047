"""Gaps of the runs that grids and sweeps compare; a cell is one setting under all its seeds."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from polarvrp.study.runs import RunSpec
from polarvrp.tables.gap_tables import gap_row
from polarvrp.tables.means import complete_mean
from polarvrp.tables.paper import IN_DISTRIBUTION_ORDER
from polarvrp.tables.sources import Results


def at_defaults(run: RunSpec) -> bool:
    """Whether a run's name says nothing but what it trains, its size and its seed."""
    return run.tail == f"-s{run.seed}"


def smallest_size(runs: Iterable[RunSpec]) -> list[RunSpec]:
    """Runs of the smaller size, the one that ablations are made at."""
    kept = list(runs)
    smallest = min((run.num_customers for run in kept), default=0)
    return [run for run in kept if run.num_customers == smallest]


def cell_gaps(results: Results, cells: Mapping[RunSpec, Mapping[str, Any]]) -> pd.DataFrame:
    """Gap of each cell on each training variant that one of its runs was evaluated on, mean over the seeds.

    Args:
        results: Where the evaluations lie.
        cells: Key columns and values of the cell that each run belongs to; all of one size.

    Returns:
        The key columns, ``variant``, ``gap_percent`` (missing where a seed lacks the variant or its gap),
        ``num_customers``, ``seeds`` and ``runs``; no rows without runs.
    """
    gaps = pd.DataFrame(
        {**cell, **gap_row(results, test_set, run.method, results.evaluation(run, test_set)), "run": run.name}
        for run, cell in cells.items()
        for test_set in results.evaluated_sets(run, IN_DISTRIBUTION_ORDER)
    )
    if gaps.empty:
        return gaps
    keys = list(next(iter(cells.values())))
    runs = gaps.groupby(keys, sort=False)["run"].unique().rename("runs").reset_index()
    means = gaps.groupby([*keys, "variant", "num_customers"], sort=False)["gap_percent"].agg([complete_mean, "size"])
    frame = means.reset_index().merge(runs, on=keys)
    frame["seeds"] = frame["runs"].map(len)
    frame["gap_percent"] = frame["complete_mean"].where(frame["size"] == frame["seeds"])
    return frame.drop(columns=["complete_mean", "size"])
