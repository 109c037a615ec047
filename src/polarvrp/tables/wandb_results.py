"""Test results for W&B: of each run its gaps and sample routes, of the study its tables and comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from polarvrp.catalog.experiments import EXPERIMENTS, Experiment, main_tables
from polarvrp.errors import DataError
from polarvrp.files import exists
from polarvrp.library.plot import save_plot
from polarvrp.problem.datasets import read_instances
from polarvrp.problem.library_twins import library_of
from polarvrp.problem.tours import actions_to_routes
from polarvrp.solutions.solutions import read_solutions, solution_rows
from polarvrp.study.layout import TABLE_SUFFIXES, Layout
from polarvrp.study.runs import RunSpec
from polarvrp.tables.means import complete_mean
from polarvrp.tables.sources import read_frame
from polarvrp.training.wandb_runs import Chart, Content

SAMPLES = ("CVRP", "VRPTW", "OVRPBLTW", "MDVRPMBTW")
"""Variants of which the routes of the first test instance are drawn."""

AXES = {
    "backbone": ("encoder", "paradigm"),
    "encoder": ("backbone", "paradigm"),
    "paradigm": ("backbone", "encoder"),
}
"""What is compared, and what runs must share beside size, seed and swept values to be compared."""

SHARED = ("num_customers", "tail")


def run_content(layout: Layout, run: RunSpec, pictures: Path) -> Content:
    """Gaps of a run in the tables that exist, and sample routes.

    Args:
        layout: Of the results.
        run: A trained run.
        pictures: Folder for the pictures.
    """
    summary: dict[str, float] = {}
    tables: dict[str, pd.DataFrame] = {}
    for name in main_tables():
        rows = _rows_of(layout, EXPERIMENTS[name], run)
        if rows.empty:
            continue
        tables[f"tables/{name}"] = rows
        summary |= _gaps(rows, EXPERIMENTS[name])
    images = {f"routes/{variant}": path for variant in SAMPLES if (path := _picture(layout, run, variant, pictures))}
    return Content(summary=summary, tables=tables, images=images if summary else {})


def table_scales(layout: Layout) -> dict[str, str]:
    """Scale of each table that was built; scales may share a folder, so that each table says for itself."""
    built = [name for name in EXPERIMENTS if exists(layout.table(name))]
    return {name: str(read_frame(layout.table(name), ["scale"])["scale"].iloc[0]) for name in built}


def study_content(layout: Layout, runs: Sequence[RunSpec], scales: Mapping[str, str]) -> Content:
    """Content of the run that holds a study's tables and compares its trainings.

    Args:
        layout: Of the results.
        runs: Trained runs.
        scales: Its tables, as ``table_scales``.
    """
    paths = {name: [path for end in TABLE_SUFFIXES if exists(path := layout.table(name, end))] for name in scales}
    gaps = _mean_gaps(layout, runs) if "in_distribution" in scales else {}
    charts: dict[str, Chart] = {}
    for axis in AXES:
        compared = compared_runs(runs, axis)
        bars = pd.DataFrame([{"run": run.name, "gap_percent": gaps[run.name]} for run in compared if run.name in gaps])
        lines = [_curve(layout, run) for run in compared]
        if not bars.empty:
            charts[f"gaps/{axis}"] = Chart(title=f"Test gap in %, by {axis}", frame=bars, x="run", y="gap_percent")
        if lines:
            charts[f"curves/{axis}"] = Chart(
                title=f"Validation gap in %, by {axis}",
                frame=pd.concat(lines, ignore_index=True),
                x="epoch",
                y="validation_gap_percent",
                line="run",
            )
    return Content(
        summary={f"in_distribution/{run}/gap_percent": gap for run, gap in gaps.items()},
        charts=charts if scales else {},
        artifacts={f"{scales[name]}-{name}": files for name, files in paths.items()},
    )


def compared_runs(runs: Iterable[RunSpec], axis: str) -> list[RunSpec]:
    """Runs that differ from another one in ``axis`` alone, those that share everything else beside each other."""
    groups: dict[tuple[object, ...], list[RunSpec]] = {}
    for run in runs:
        groups.setdefault(tuple(getattr(run, name) for name in (*AXES[axis], *SHARED)), []).append(run)
    return [run for group in groups.values() if len({getattr(run, axis) for run in group}) > 1 for run in group]


def _rows_of(layout: Layout, experiment: Experiment, run: RunSpec) -> pd.DataFrame:
    """Rows of a table that are the run's; none where the table was not built."""
    path = layout.table(experiment.name)
    if not exists(path):
        return pd.DataFrame()
    frame = read_frame(path, [*experiment.keys, "gap_percent"])
    size = "num_customers" if "num_customers" in frame else "trained_on"
    chosen: pd.DataFrame = frame[(frame["method"] == run.method) & (frame[size] == run.num_customers)]
    return chosen.reset_index(drop=True)


def _gaps(rows: pd.DataFrame, experiment: Experiment) -> dict[str, float]:
    """Mean gap, and that of each variant where there are some, by the names that W&B shows."""
    fixed = [key for key in experiment.keys if key not in ("variant", "num_customers", "method", "instance")]
    summary: dict[str, float] = {}
    for values, group in rows.groupby(fixed, sort=False) if fixed else [((), rows)]:
        name = "/".join(("test", experiment.name, *map(str, values)))
        summary[f"{name}/gap_percent"] = complete_mean(group["gap_percent"])
        if "variant" in experiment.keys:
            pairs = zip(group["variant"], group["gap_percent"], strict=True)
            summary |= {f"{name}/{variant}/gap_percent": float(gap) for variant, gap in pairs}
    return {name: gap for name, gap in summary.items() if not math.isnan(gap)}


def _mean_gaps(layout: Layout, runs: Iterable[RunSpec]) -> dict[str, float]:
    rows = {run.name: _rows_of(layout, EXPERIMENTS["in_distribution"], run) for run in runs}
    means = {name: complete_mean(frame["gap_percent"]) for name, frame in rows.items() if not frame.empty}
    return {name: mean for name, mean in means.items() if not math.isnan(mean)}


def _curve(layout: Layout, run: RunSpec) -> pd.DataFrame:
    """Validation gaps of a training by its epochs."""
    columns = ["epoch", "validation_gap_percent"]
    return read_frame(layout.history(run.name), columns)[columns].assign(run=run.name)


def _picture(layout: Layout, run: RunSpec, variant: str, folder: Path) -> Path | None:
    """Routes of the first test instance of a variant; None where it was not solved."""
    instances = layout.dataset("test", variant, run.num_customers)
    solutions = layout.evaluation(run.name, variant, run.num_customers)
    if not (exists(instances) and exists(solutions)):
        return None
    row = next(iter(solution_rows(read_solutions(solutions))), None)
    if row is None or row.cost is None:
        return None
    arrays = read_instances(instances)
    if row.instance >= len(arrays):
        raise DataError(f"{solutions} solves more than {instances} holds; evaluate the run again")
    name = f"{variant}, n = {run.num_customers}, instance {row.instance}"
    path = folder / f"{run.name}-{variant}.png"
    title = f"{name}\n{run.method}: cost {row.cost:.4f}, {row.routes} routes"
    routes = actions_to_routes(row.actions, arrays.num_depots)
    save_plot(path, library_of(arrays, row.instance, name), routes, title, {"plot": path.stem})
    return path
