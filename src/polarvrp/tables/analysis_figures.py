"""Figures of what trained models and their trainings say beside gaps."""

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from polarvrp.catalog.backbones import BACKBONES
from polarvrp.catalog.encoders import ENCODERS
from polarvrp.catalog.experiments import Experiment
from polarvrp.tables.ablations import small_runs
from polarvrp.tables.architectures import NETWORK, network_label
from polarvrp.tables.commands import command_for
from polarvrp.tables.drawing import COLOURS, MARKED_EPOCHS, dot_size, head, legend, looks_of, tidy
from polarvrp.tables.embeddings import embedding_runs, embeddings_of
from polarvrp.tables.experts import EXPERTS, expert_label, experts_of
from polarvrp.tables.figures import figure_of
from polarvrp.tables.formats import number
from polarvrp.tables.labels import AVERAGE, variant_rank
from polarvrp.tables.margins import MARGINS, margin_label, margins_of, refining_epochs
from polarvrp.tables.means import complete_mean
from polarvrp.tables.sources import MissingResultsError, Results

_PLAIN = "#7F7F7F"

_GAPS = {"mean_cost_gap": "cost", "mean_policy_gap": "α · log-likelihood"}
"""What the mean differences of preferred pairs are differences of."""


def margins(results: Results, experiment: Experiment) -> Figure:
    """Margins by epoch, a panel a metric and tolerance, a line a training; epochs with refinement shaded."""
    runs = small_runs(results.analysed_runs(MARGINS), experiment)
    if not runs:
        raise missing_analysis(results, experiment)
    frames = {run: margins_of(results, run) for run in runs}
    labels = {method.stem: method.label for method in experiment.methods}
    looks = looks_of([stem for stem in labels if stem in {run.stem for run in runs}], labels)
    first = next(iter(frames.values()))
    spaces = [first[first["metric"].str.contains(space)] for space in ("cost", "policy")]
    panels = [list(part[["metric", "epsilon_percent"]].drop_duplicates().itertuples(index=False)) for part in spaces]
    figure = Figure(figsize=(13, 6), layout="constrained")
    grid = figure.subplots(len(panels), len(panels[0]), sharex=True, squeeze=False)
    refined = [epochs for frame in frames.values() if (epochs := refining_epochs(frame)) is not None]
    for axes, (metric, tolerance) in zip(grid.flat, (panel for row in panels for panel in row), strict=True):
        for start, end in refined[:1]:
            axes.axvspan(start - 0.5, end + 0.5, color="#F2F2F2", zorder=0, lw=0)
        for run, frame in frames.items():
            same = frame["epsilon_percent"].isna() if pd.isna(tolerance) else frame["epsilon_percent"] == tolerance
            points, look = frame[(frame["metric"] == metric) & same].sort_values("epoch"), looks[run.stem]
            marker = look["marker"] if len(points) <= MARKED_EPOCHS else None
            size = dot_size(look) ** 0.5
            axes.plot(points["epoch"], points["value"], color=look["color"], lw=1.2, marker=marker, ms=size)
        axes.set_title(margin_label(metric, tolerance))
        axes.set_ylabel(_GAPS.get(metric, "pairs (%)"))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        tidy(axes, "y")
    for axes in grid[-1]:
        axes.set_xlabel("epoch")
    head(figure, f"{figure_of(experiment).title}, n={runs[0].num_customers}", results.scale)
    legend(figure, {labels[stem]: look for stem, look in looks.items()}, line=True)
    return figure


def contributions(results: Results, experiment: Experiment) -> Figure:
    """Stacked shares of the experts, a panel a layer, a bar a variant; means over seeds."""
    runs = small_runs(results.analysed_runs(EXPERTS), experiment)
    if not runs:
        raise missing_analysis(results, experiment)
    long = pd.concat([experts_of(results, run) for run in runs])
    means = long.groupby(["layer", "variant", "expert"], sort=False)["percent"].agg(complete_mean)
    average = long.groupby(["layer", "expert"], sort=False)["percent"].agg(complete_mean)
    variants = sorted(long["variant"].unique(), key=variant_rank)
    layers, colours = sorted(long["layer"].unique()), dict(zip(long["expert"].unique(), COLOURS, strict=False))
    figure = Figure(figsize=(1.2 + 2.0 * len(layers), 1.9 + 0.26 * len(variants)), layout="constrained")
    for axes, layer in zip(figure.subplots(1, len(layers), sharey=True, squeeze=False)[0], layers, strict=True):
        left = pd.Series(0.0, index=[*variants, AVERAGE])
        for expert, colour in colours.items():
            shares = means[layer].xs(expert, level="expert").reindex(variants)
            shares[AVERAGE] = average[layer, expert]
            axes.barh(range(len(shares)), shares, left=left, height=0.8, color=colour, lw=0)
            left += shares
        axes.set(title=f"Layer {layer}", xlim=(0, 100), ylim=(len(variants) + 0.5, -0.5), xlabel="share of norms (%)")
        axes.set_yticks(range(len(variants) + 1), [*variants, AVERAGE])
        axes.axhline(len(variants) - 0.5, color="black", lw=0.6)
        tidy(axes, "x")
    head(figure, f"{figure_of(experiment).title}, n={runs[0].num_customers}", results.scale)
    squares = {expert_label(expert): {"color": colour, "marker": "s"} for expert, colour in colours.items()}
    legend(figure, squares, line=False)
    return figure


def gates(results: Results, experiment: Experiment) -> Figure:
    """Heat maps of gate outputs, variants by experts: a row of panels a backbone, a panel a layer; means over seeds."""
    frame = results.table(experiment.name)
    backbones, layers = list(frame["backbone"].unique()), sorted(frame["layer"].unique())
    panels = dict(iter(frame.groupby(["backbone", "layer"])))
    variants = frame["variant"].nunique()
    size = (2.0 + 1.75 * len(layers), 1.2 + (0.9 + 0.2 * variants) * len(backbones))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(backbones), len(layers), squeeze=False)
    for row, backbone in zip(grid, backbones, strict=True):
        for axes, layer in zip(row, layers, strict=True):
            gate = panels[backbone, layer].groupby(["variant", "expert"], sort=False)["gate"]
            here = gate.agg(complete_mean).unstack(sort=False)
            image = axes.imshow(here.to_numpy(), vmin=0, vmax=1, cmap="viridis", aspect="auto")
            axes.set_title(f"Layer {layer}")
            labels = [expert_label(expert).removeprefix("Task ") for expert in here.columns]
            axes.set_xticks(range(len(labels)), labels)
            axes.set_xlabel("expert")
            axes.set_yticks(range(len(here)), here.index if layer == layers[0] else [""] * len(here))
            axes.tick_params(length=0)
        row[0].set_ylabel(BACKBONES[backbone].label)
    figure.colorbar(image, ax=grid, label="output of the gate", shrink=0.6)
    head(figure, f"{figure_of(experiment).title}, n={frame['num_customers'].iloc[0]}", results.scale)
    return figure


def embeddings(results: Results, experiment: Experiment) -> Figure:
    """t-SNE maps coloured by variant: a row an encoder, a column a backbone; the first seed."""
    runs = embedding_runs(results, experiment)
    if not runs:
        raise missing_analysis(results, experiment)
    backbones = list(dict.fromkeys(run.backbone for run in runs))
    encoders = [name for name in ENCODERS if name in {run.encoder for run in runs}]
    separations = results.table(experiment.name).set_index(["backbone", "encoder", "seed"])["cosine_separation"]
    alone = len(backbones) == 1  # then encoders stand side by side
    rows, columns = (1, len(encoders)) if alone else (len(encoders), len(backbones))
    figure = Figure(figsize=(max(3.2 * columns, 7.0), 1.9 + 3.0 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    grid = grid.T if alone else grid
    colours: dict[str, Any] = {}
    for run in reversed(runs):  # so that the first seed is drawn last
        axes = grid[encoders.index(run.encoder), backbones.index(run.backbone)]
        points = embeddings_of(results, run)
        axes.clear()
        variants = sorted(points["variant"].unique(), key=variant_rank)
        colours = {variant: mpl.colormaps["tab20"](rank) for rank, variant in enumerate(variants)}
        for variant, colour in colours.items():
            here = points[points["variant"] == variant]
            axes.scatter(here["x"], here["y"], s=5 if len(points) > 1000 else 15, lw=0, color=[colour])
        # Missing for a run that was analysed since the table was built.
        separation = number("{:.3f}")(separations.get((run.backbone, run.encoder, run.seed)))
        title = f"{BACKBONES[run.backbone].label}, {ENCODERS[run.encoder].label}"
        axes.set(title=f"{title}\nseparation {separation}", xticks=[], yticks=[])
    head(figure, f"{figure_of(experiment).title}, n={runs[0].num_customers}", results.scale)
    handles = [Line2D([], [], label=name, color=colour, marker="o", ls="", ms=5) for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=8 if columns > 2 else 4)
    return figure


def architectures(results: Results, experiment: Experiment) -> Figure:
    """Bars of parameters and, a panel a size, of multiply-adds in encoder and decoder; a row a network."""
    frame = results.table(experiment.name)
    sizes = sorted(frame["num_customers"].unique())
    networks = list(frame[NETWORK].drop_duplicates().itertuples(index=False, name=None))
    labels = [", ".join(network_label(*network)) for network in networks]
    figure = Figure(figsize=(3.4 + 3.2 * (1 + len(sizes)), 1.6 + 0.26 * len(networks)), layout="constrained")
    colours = dict(zip(("encoder", "decoder"), COLOURS, strict=False))
    first, *others = figure.subplots(1, 1 + len(sizes), sharey=True)
    counts = frame.drop_duplicates(NETWORK).set_index(NETWORK)["parameters"].reindex(networks) / 1e6
    first.barh(range(len(networks)), counts.astype("float64"), color=_PLAIN, height=0.75)
    first.set(title="Parameters", xlabel="million", ylim=(len(networks) - 0.5, -0.5))
    first.set_yticks(range(len(networks)), labels)
    for axes, size in zip(others, sizes, strict=True):
        here = frame[frame["num_customers"] == size].set_index(NETWORK).reindex(networks)
        left = pd.Series(0.0, here.index)
        for part, colour in colours.items():
            width = here[f"{part}_multiply_adds"].astype("float64") / 1e6
            axes.barh(range(len(networks)), width, left=left, color=colour, height=0.75)
            left += width
        axes.set(title=f"Multiply-adds, n={size}", xlabel="million")
    for axes in (first, *others):
        tidy(axes, "x")
    head(figure, figure_of(experiment).title, results.scale)
    parts = {part.capitalize(): {"color": colour, "marker": "s"} for part, colour in colours.items()}
    legend(figure, parts, line=False)
    return figure


def missing_analysis(results: Results, experiment: Experiment) -> MissingResultsError:
    """The error of a picture without the analyses that it shows."""
    return MissingResultsError(
        f"{results.root / 'analysis'} holds nothing for {experiment.name} at scale {results.scale}; "
        f"make it with: {command_for(results, experiment)}"
    )
