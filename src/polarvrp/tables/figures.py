"""Figures of the paper from the long tables and the training histories, as PNG and PDF."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import pandas as pd
from matplotlib.figure import Figure

from polarvrp.catalog.backbones import BACKBONES, grid_backbones
from polarvrp.catalog.experiments import EXPERIMENTS, Experiment, grid_of
from polarvrp.catalog.experiments import Figure as FigureRecord
from polarvrp.catalog.records import resolve
from polarvrp.errors import ConfigError
from polarvrp.files import write_figure
from polarvrp.study.layout import FIGURE_SUFFIXES, STRICT_RULES
from polarvrp.tables.commands import workflow_command
from polarvrp.tables.drawing import STYLE, Look, dot_size, head, legend, looks_of, tidy
from polarvrp.tables.grids import axis_labels
from polarvrp.tables.labels import (
    is_external,
    is_shipped,
    labels_of,
    method_label,
    method_rank,
    references_said,
    stem_of,
    variant_rank,
)
from polarvrp.tables.means import average_over, complete_mean, over_seeds, seed_means
from polarvrp.tables.sources import MissingResultsError, Results


def draw_figures(results: Results, names: Sequence[str] = ()) -> list[Path]:
    """Draw figures into the folder ``figures`` beside the results.

    Args:
        results: Where tables and histories lie.
        names: Figures to draw; each must have its table. None given: all that have one.

    Returns:
        Paths of the written files.

    Raises:
        ConfigError: If a name is unknown.
        MissingResultsError: If a named figure has no table of this scale, or none has one.
        DataError: If a table is unusable.
    """
    known = [record.name for record in EXPERIMENTS.values() if record.figure is not None]
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown figure {name!r}; there are {', '.join(known)}")
    paths: list[Path] = []
    for name in (name for name in known if not names or name in names):
        try:
            paths += _save(results, name, draw_figure(results, EXPERIMENTS[name]))
        except MissingResultsError:
            if names:
                raise
    if not paths:
        raise MissingResultsError(
            f"{results.root} holds no tables to draw; make them with: {workflow_command(results, 'tables')}"
        )
    return paths


def draw_figure(results: Results, experiment: Experiment) -> Figure:
    """The figure of an experiment that has one."""
    with mpl.rc_context(STYLE):
        figure: Figure = resolve(figure_of(experiment).draw)(results, experiment)
        return figure


def figure_of(experiment: Experiment) -> FigureRecord:
    """The record of an experiment's figure."""
    if experiment.figure is None:
        raise ValueError(f"experiment {experiment.name} has no figure")
    return experiment.figure


def methods(results: Results, experiment: Experiment) -> Figure:
    """Gap of every compared method on each variant, a panel a size; means over seeds.

    All runs are shown where none of the compared methods is at hand; of unseen variants the strict protocol.
    """
    frame = results.table(experiment.name)
    labels = labels_of(frame)
    if "protocol" in frame:
        frame = frame[frame["protocol"] == STRICT_RULES]
    external = frame["method"].map(is_external)
    compared = ~external & frame["method"].map(lambda method: is_shipped(method) or stem_of(method) in labels)
    shown = frame[(compared if compared.any() else ~external) | (external & (frame["method"] != frame["reference"]))]
    points = seed_means(shown, ["num_customers", "variant"], ["gap_percent"]).reset_index()
    points = points.rename(columns={"stem": "series"}).sort_values("num_customers", kind="stable")
    points["panel"] = "n=" + points["num_customers"].astype(str)
    look = looks_of(sorted(points["series"].unique(), key=lambda stem: method_rank(stem, labels)), labels)
    names = {stem: method_label(stem, labels) for stem in look}
    return _dots(points, look, names, figure_of(experiment).title, _gap_axes(points, frame), results.scale)


def grid(results: Results, experiment: Experiment) -> Figure:
    """Gap on each variant at each value of a grid's axis, a panel a backbone with its means."""
    frame, axis = results.table(experiment.name), grid_of(experiment).axis
    labels = axis_labels(grid_of(experiment))
    means = average_over(frame, "variant", frame["variant"].unique(), ["backbone", axis, "seed"], "gap_percent")
    means = means.groupby(["backbone", axis], sort=False).agg(complete_mean).dropna()
    panels = {}
    for backbone in (name for name in grid_backbones() if name in set(frame["backbone"])):
        here = [value for value in labels if (backbone, value) in means.index]
        line = ", ".join(f"{labels[value]} {means[backbone, value]:.2f}" for value in here)
        panels[backbone] = f"{BACKBONES[backbone].label}\n{line}"
    order = {backbone: rank for rank, backbone in enumerate(panels)}
    points = over_seeds(frame, ["backbone", axis, "variant"], ["gap_percent"]).rename(columns={axis: "series"})
    points["panel"] = points["backbone"].map(panels)
    points = points.sort_values("backbone", kind="stable", key=lambda names: names.map(order))
    look = looks_of([value for value in labels if value in set(frame[axis])], labels)
    title = f"{figure_of(experiment).title}, n={frame['num_customers'].iloc[0]}"
    title = f"{title}; above each panel the mean over variants in %"
    axis_name = f"gap to {references_said(frame['reference'])} (%)"
    return _dots(points, look, labels, title, dict.fromkeys(panels.values(), axis_name), results.scale)


def _gap_axes(points: pd.DataFrame, frame: pd.DataFrame) -> dict[str, str]:
    """Name of the axis of each panel of a size."""
    sizes = points.drop_duplicates("panel").set_index("panel")["num_customers"]
    return {
        str(panel): f"gap to {references_said(frame['reference'][frame['num_customers'] == size])} (%)"
        for panel, size in sizes.items()
    }


def _dots(
    points: pd.DataFrame, look: Look, labels: Mapping[str, str], title: str, axis: Mapping[str, str], scale: str
) -> Figure:
    """A row a variant, a dot a series; panels side by side.

    Args:
        points: ``gap_percent`` by ``panel`` (in order of appearance), ``series`` and ``variant``.
        look: Colour and marker of each series, in order.
        labels: Printed name of each series.
        title: Title above all panels.
        axis: Name of the axis of each panel.
        scale: Scale of the study.
    """
    panels, variants = points["panel"].unique(), sorted(points["variant"].unique(), key=variant_rank)
    width, height = 1.4 + max(3.1 * len(panels), 5.0), 1.5 + 0.3 * len(variants)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes_row = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    step = 0.7 / max(len(look), 1)
    for axes, panel in zip(axes_row, panels, strict=True):
        for position in range(0, len(variants), 2):
            axes.axhspan(position - 0.5, position + 0.5, color="#F2F2F2", zorder=0, lw=0)
        for rank, series in enumerate(look):
            shift = (rank - (len(look) - 1) / 2) * step
            drawn = points[(points["panel"] == panel) & (points["series"] == series) & points["gap_percent"].notna()]
            if not drawn.empty:
                heights = drawn["variant"].map(variants.index) + shift
                axes.scatter(drawn["gap_percent"], heights, s=dot_size(look[series]), zorder=3, lw=1, **look[series])
        axes.set(title=panel, xlabel=axis[panel], ylim=(len(variants) - 0.5, -0.5))
        tidy(axes, "x")
    axes_row[0].set_yticks(range(len(variants)), variants)
    head(figure, title, scale)
    legend(figure, {labels[series]: style for series, style in look.items()}, line=False)
    return figure


def _save(results: Results, name: str, figure: Figure) -> list[Path]:
    """Files in each of ``FIGURE_SUFFIXES`` without dates, so that the same numbers give the same bytes."""
    paths = []
    for suffix in FIGURE_SUFFIXES:
        paths.append(results.layout.figure(name, suffix))
        metadata: dict[str, Any] = {"png": {"Software": None}, "pdf": {"CreationDate": None}}[suffix]
        write_figure(paths[-1], figure, metadata=metadata)
    return paths
