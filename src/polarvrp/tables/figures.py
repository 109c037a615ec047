"""Figures of the paper from the long tables and the training histories, as PNG and PDF."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from polarvrp.catalog.backbones import grid_backbones
from polarvrp.errors import ConfigError, DataError
from polarvrp.files import atomic_path
from polarvrp.tables.comparison import average_over, seed_means
from polarvrp.tables.formats import BACKBONE_LABELS, ENCODER_LABELS, METHOD_LABELS, PARADIGM_LABELS, method_label
from polarvrp.tables.gap_tables import Row, is_solver, method_rank, stem_of, variant_rank
from polarvrp.tables.paper import METHODS, PAPER_SCALE
from polarvrp.tables.sources import MissingResultsError, Results, read_rows

# Okabe and Ito's colours, told apart with every common colour blindness; markers tell them apart in grey.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#000000", "#D55E00")
_MARKERS = ("o", "s", "^", "D", "v", "P", "*")
_SOLVER_LOOKS = {
    "pyvrp": {"color": "#8C8C8C", "marker": "<"},
    "ortools": {"color": "#8C8C8C", "marker": "X"},
    "published-ortools": {"color": "#5A5A5A", "marker": "|"},
}
_TRAINED_STEMS = [stem for stem in METHODS.values() if not is_solver(stem)]
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.dpi": 150,
    "pdf.fonttype": 42,
}
MARKED_EPOCHS = 30
"""Curves of at most so many epochs show each as a marker."""

Look = dict[str, dict[str, Any]]
"""Colour and marker by series."""


def draw_figures(results: Results, names: Sequence[str] = ()) -> list[Path]:
    """Draw figures into the folder ``figures`` beside the results.

    Args:
        results: Where tables and histories lie.
        names: Figures to draw; each must have its table. None given: all that have one.

    Returns:
        Paths of the written files.

    Raises:
        ConfigError: If a name is unknown.
        MissingResultsError: If a named figure has no table, or none has one.
        DataError: If a table is unusable or of another scale.
    """
    for name in names:
        if name not in FIGURES:
            raise ConfigError(f"unknown figure {name!r}; there are {', '.join(FIGURES)}")
    paths: list[Path] = []
    for name, draw in FIGURES.items():
        if names and name not in names:
            continue
        try:
            with mpl.rc_context(_STYLE):
                paths += _save(draw(results), results.root / "figures" / name)
        except MissingResultsError:
            if names:
                raise
    if not paths:
        raise MissingResultsError(
            f"{results.root} holds no tables to draw; make them with: snakemake --cores all tables"
        )
    return paths


def in_distribution(results: Results) -> Figure:
    """Gap of every compared method on each training variant, a panel a size."""
    return _methods(results, "in_distribution", "Gap to the reference on the training variants")


def zero_shot(results: Results) -> Figure:
    """Gap of every compared method on each unseen variant, a panel a size."""
    return _methods(results, "zero_shot", "Zero-shot gap to the reference on unseen variants")


def training_paradigms(results: Results) -> Figure:
    """Gap of each paradigm on each training variant, a panel a backbone."""
    return _grid(results, "training_paradigms", "paradigm", PARADIGM_LABELS)


def encoder_settings(results: Results) -> Figure:
    """Gap of each encoder on each training variant, a panel a backbone."""
    return _grid(results, "encoder_settings", "encoder", ENCODER_LABELS)


def training_curves(results: Results) -> Figure:
    """Sampled cost and validation gap by epoch of the compared methods, a row of panels a size, a line a seed."""
    trained = results.trained_runs()
    runs = [run for run in trained if stem_of(run.method) in METHOD_LABELS] or trained
    if not runs:
        raise MissingResultsError(
            f"{results.root / 'models'} holds no trained runs at scale {results.scale}; "
            f"make them with: snakemake --cores all train"
        )
    sizes = sorted({run.num_customers for run in runs})
    look = _looks(sorted({stem_of(run.method) for run in runs}, key=method_rank))
    figure = Figure(figsize=(9.5, 0.9 + 2.6 * len(sizes)), layout="constrained")
    grid = figure.subplots(len(sizes), 2, squeeze=False, sharex=True)
    for panels, size in zip(grid, sizes, strict=True):
        for run in (run for run in runs if run.num_customers == size):
            history = sorted(results.history(run), key=lambda row: int(row["epoch"]))
            for axes, column in zip(panels, ("sampled_cost", "validation_gap_percent"), strict=True):
                _curve(axes, history, column, look[stem_of(run.method)])
        panels[0].set(title=f"n={size}", ylabel="mean sampled cost")
        panels[1].set(title=f"n={size}", ylabel="validation gap (%)")
    for axes in grid.flat:
        _tidy(axes, "y")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in grid[-1]:
        axes.set_xlabel("epoch")
    _head(figure, "Training curves", results.scale)
    _legend(figure, {method_label(stem): style for stem, style in look.items()}, line=True)
    return figure


FIGURES: dict[str, Callable[[Results], Figure]] = {
    "in_distribution": in_distribution,
    "zero_shot": zero_shot,
    "training_paradigms": training_paradigms,
    "encoder_settings": encoder_settings,
    "training_curves": training_curves,
}


def _methods(results: Results, table: str, title: str) -> Figure:
    """Gaps of the compared methods, or of all runs where none of those is; means over seeds."""
    rows = _table(results, table)
    neural = [row for row in rows if not is_solver(row["method"])]
    compared = [row for row in neural if stem_of(row["method"]) in METHOD_LABELS] or neural
    compared += [row for row in rows if is_solver(row["method"]) and row["method"] != row["reference"]]
    look = _looks(sorted({stem_of(row["method"]) for row in compared}, key=method_rank))
    panels: dict[str, dict[str, dict[str, float | None]]] = {
        f"n={size}": {stem: {} for stem in look} for size in sorted({row["num_customers"] for row in compared})
    }
    for (stem, size, variant), means in seed_means(compared, ("num_customers", "variant"), ["gap_percent"]).items():
        panels[f"n={size}"][str(stem)][str(variant)] = means["gap_percent"]
    labels = {stem: method_label(stem) for stem in look}
    return _dots(panels, look, labels, title, results.scale)


def _grid(results: Results, table: str, column: str, labels: Mapping[str, str]) -> Figure:
    rows = _table(results, table)
    look = _looks([value for value in labels if value in {row[column] for row in rows}])
    variants = {row["variant"] for row in rows}
    panels = {}
    for backbone in (name for name in grid_backbones() if name in {row["backbone"] for row in rows}):
        gaps: dict[str, dict[str, float | None]] = {
            value: {
                row["variant"]: row["gap_percent"]
                for row in rows
                if (row["backbone"], row[column]) == (backbone, value)
            }
            for value in look
        }
        means = {value: average_over(gaps[value], variants) for value in look}
        line = ", ".join(f"{labels[value]} {mean:.2f}" for value, mean in means.items() if mean is not None)
        panels[f"{BACKBONE_LABELS[backbone]}\n{line}"] = gaps
    title = f"Gap by {column}, n={rows[0]['num_customers']}; above each panel the mean over variants in %"
    return _dots(panels, look, labels, title, results.scale)


def _dots(
    panels: Mapping[str, Mapping[str, Mapping[str, float | None]]],
    look: Look,
    labels: Mapping[str, str],
    title: str,
    scale: str,
) -> Figure:
    """A row a variant, a dot a series; panels side by side.

    Args:
        panels: Gap in percent by panel, series and variant.
        look: Colour and marker of each series, in order.
        labels: Printed name of each series.
        title: Title above all panels.
        scale: Scale of the study.
    """
    found = {variant for series in panels.values() for gaps in series.values() for variant in gaps}
    variants = sorted(found, key=variant_rank)
    width, height = 1.4 + max(3.1 * len(panels), 5.0), 1.5 + 0.3 * len(variants)
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    step = 0.7 / max(len(look), 1)
    for axes, (name, series) in zip(grid, panels.items(), strict=True):
        for position in range(0, len(variants), 2):
            axes.axhspan(position - 0.5, position + 0.5, color="#F2F2F2", zorder=0, lw=0)
        for rank, method in enumerate(look):
            shift = (rank - (len(look) - 1) / 2) * step
            points = [(gap, y + shift) for y, v in enumerate(variants) if (gap := series[method].get(v)) is not None]
            if points:
                axes.scatter(*zip(*points, strict=True), s=_dot_size(look[method]), zorder=3, lw=1, **look[method])
        axes.set(title=name, xlabel="gap (%)", ylim=(len(variants) - 0.5, -0.5))
        _tidy(axes, "x")
    grid[0].set_yticks(range(len(variants)), variants)
    _head(figure, title, scale)
    _legend(figure, {labels[method]: style for method, style in look.items()}, line=False)
    return figure


def _curve(axes: Axes, history: Sequence[Row], column: str, style: Mapping[str, Any]) -> None:
    """One line over the epochs that have the value, with markers while they are few."""
    points = [(row["epoch"], row[column]) for row in history if row.get(column) is not None]
    marker = style["marker"] if len(points) <= MARKED_EPOCHS else None
    epochs, values = [epoch for epoch, _ in points], [value for _, value in points]
    axes.plot(epochs, values, color=style["color"], lw=1.4, marker=marker, ms=_dot_size(style) ** 0.5)


def _table(results: Results, name: str) -> list[Row]:
    path = results.root / "tables" / f"{name}.parquet"
    if not path.is_file():
        raise MissingResultsError(f"{path} does not exist; make it with: polarvrp tables {name}")
    rows = read_rows(path, ("variant", "gap_percent", "num_customers", "scale"))
    if not rows or rows[0]["scale"] != results.scale:
        got = rows[0]["scale"] if rows else "none"
        raise DataError(f"{path} is of scale {got}, not {results.scale}; make it with: polarvrp tables {name}")
    return rows


def _looks(series: Sequence[str]) -> Look:
    """One look a series; a method of the paper has the same in every figure."""
    looks: Look = {}
    for position, name in enumerate(series):
        rank = (_TRAINED_STEMS.index(name) if name in _TRAINED_STEMS else position) % len(_COLOURS)
        looks[name] = _SOLVER_LOOKS.get(name, {"color": _COLOURS[rank], "marker": _MARKERS[rank]})
    return looks


def _dot_size(style: Mapping[str, Any]) -> float:
    """Area in square points; a star needs more for the same weight."""
    return 60 if style["marker"] == "*" else 20


def _tidy(axes: Axes, axis: str) -> None:
    axes.grid(axis=axis, color="#DDDDDD", lw=0.6)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.tick_params(length=0)


def _head(figure: Figure, title: str, scale: str) -> None:
    note = f"scale {scale}" if scale == PAPER_SCALE else f"scale {scale}: nothing here is a result"
    figure.suptitle(f"{title}\n{note}", fontsize=10.5)


def _legend(figure: Figure, styles: Look, line: bool) -> None:
    handles = [
        Line2D([], [], label=label, linestyle="-" if line else "", markersize=_dot_size(style) ** 0.5, **style)
        for label, style in styles.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 5))


def _save(figure: Figure, stem: Path) -> list[Path]:
    """PNG and PDF without dates, so that the same numbers give the same bytes."""
    paths = [stem.with_suffix(".png"), stem.with_suffix(".pdf")]
    for path, metadata in zip(paths, ({"Software": None}, {"CreationDate": None}), strict=True):
        with atomic_path(path) as temporary:
            figure.savefig(temporary, metadata=metadata)
    return paths
