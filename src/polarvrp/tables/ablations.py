"""Gaps of the runs that grids and sweeps compare, a row a seed."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from polarvrp.catalog.experiments import Experiment
from polarvrp.study.experiments import is_compared
from polarvrp.study.runs import RunSpec
from polarvrp.tables.gap_tables import gap_row
from polarvrp.tables.paper import IN_DISTRIBUTION_ORDER
from polarvrp.tables.sources import Results


def small_runs(runs: Iterable[RunSpec], experiment: Experiment) -> list[RunSpec]:
    """Runs among others that an experiment compares, of the smaller size, the one that ablations are made at."""
    kept = [run for run in runs if is_compared(run, experiment)]
    smallest = min((run.num_customers for run in kept), default=0)
    return [run for run in kept if run.num_customers == smallest]


def cell_gaps(results: Results, cells: Mapping[RunSpec, Mapping[str, Any]]) -> pd.DataFrame:
    """Gap of each run on each training variant that it was evaluated on.

    Args:
        results: Where the evaluations lie.
        cells: Key columns and values of the cell that each run belongs to; all of one size.

    Returns:
        The key columns, ``seed``, ``variant``, ``gap_percent``, ``num_customers`` and ``runs``; no rows without runs.
    """
    rows = (
        {**cell, "seed": run.seed, **gap_row(results, test_set, run.method, results.evaluation(run, test_set))}
        | {"runs": run.name}
        for run, cell in cells.items()
        for test_set in results.evaluated_sets(run, IN_DISTRIBUTION_ORDER)
    )
    return pd.DataFrame(rows)
