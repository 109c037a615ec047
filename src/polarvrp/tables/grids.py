"""Long tables of the grids: the gap of each backbone along one axis, the training paradigm or the encoder."""

from collections.abc import Mapping

import pandas as pd

from polarvrp.catalog.backbones import BACKBONES, grid_backbones
from polarvrp.catalog.encoders import ENCODERS
from polarvrp.catalog.experiments import Experiment, Grid, grid_of
from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.tables.ablations import cell_gaps, small_runs
from polarvrp.tables.formats import count, number
from polarvrp.tables.labels import AVERAGE, references_said, variant_rank
from polarvrp.tables.means import average_over, over_seeds
from polarvrp.tables.printing import Axis, PrintedTable, captioned, print_table, seeds_said, written
from polarvrp.tables.sources import Results


def grid_rows(results: Results, experiment: Experiment) -> pd.DataFrame:
    """Gap on each training variant of the grid's backbones at each value of its axis, a row a seed."""
    grid = grid_of(experiment)
    runs = small_runs(results.evaluated_runs(), experiment)
    cells = {run: {"backbone": run.backbone, grid.axis: getattr(run, grid.axis)} for run in runs}
    gaps = cell_gaps(results, cells)
    ranks = {name: rank for rank, name in enumerate((*grid_backbones(), *axis_labels(grid)))}
    order = {"backbone": ranks.__getitem__, grid.axis: ranks.__getitem__, "variant": variant_rank}
    return gaps if gaps.empty else gaps.sort_values(list(order), key=lambda keys: keys.map(order[str(keys.name)]))


def encoder_rows(results: Results, experiment: Experiment) -> pd.DataFrame:
    """The rows of ``grid_rows``, each with the parameters of its network."""
    gaps = grid_rows(results, experiment)
    if gaps.empty:
        return gaps
    runs = small_runs(results.evaluated_runs(), experiment)
    counts = {(run.backbone, run.encoder): results.recorded(run, "parameters") for run in runs}
    return gaps.assign(parameters=[counts[cell] for cell in zip(gaps["backbone"], gaps["encoder"], strict=True)])


def axis_labels(grid: Grid) -> dict[str, str]:
    """Label of each value along the axis, in order."""
    if grid.axis == "encoder":
        return {name: encoder.label for name, encoder in ENCODERS.items()}
    return {name: paradigm.label for name, paradigm in PARADIGMS.items()}


def render_grid(frame: pd.DataFrame, experiment: Experiment) -> list[PrintedTable]:
    """A row a variant, the gap of each backbone at each value of the axis; averages last."""
    return [_printed(frame, experiment, {})]


def render_encoders(frame: pd.DataFrame, experiment: Experiment) -> list[PrintedTable]:
    """The table of ``render_grid``, below it the parameters of each network."""
    return [_printed(frame, experiment, {"Parameters": "parameters"})]


def _printed(frame: pd.DataFrame, experiment: Experiment, counts: Mapping[str, str]) -> PrintedTable:
    """The printed grid; ``counts`` are its last rows, each with the column of whole numbers that it shows."""
    axis, labels = grid_of(experiment).axis, axis_labels(grid_of(experiment))
    variants = sorted(frame["variant"].unique(), key=variant_rank)
    means = average_over(frame, "variant", variants, ["backbone", axis, "seed"], "gap_percent").reset_index()
    cells = frame.drop_duplicates(["backbone", axis])
    present = set(zip(cells["backbone"], cells[axis], strict=True))
    long = pd.concat([frame, means.assign(variant=AVERAGE)], ignore_index=True)
    gaps = over_seeds(long, ["variant", "backbone", axis], ["gap_percent"])
    rows = [*variants, AVERAGE, *counts]
    columns = {
        (backbone, value): (BACKBONES[backbone].label, label)
        for backbone in grid_backbones()
        for value, label in labels.items()
        if (backbone, value) in present
    }
    size = frame["num_customers"].iloc[0]
    facts = (
        f"Gaps are against {references_said(frame['reference'])}; averages are plain means over variants."
        f"{seeds_said(frame['seed'])}"
    )
    return print_table(
        captioned(frame, experiment, f", n={size}", facts),
        [
            written(gaps, "Gap", "gap_percent", number("{:.3f}%"), ("variant", "backbone")),
            *(written(cells.assign(variant=row), row, column, count) for row, column in counts.items()),
        ],
        ("Variant",),
        Axis.of("variant", rows),
        Axis(("backbone", axis), columns),
        summary=len(rows) - len(variants),
    )
