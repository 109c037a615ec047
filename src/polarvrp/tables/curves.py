"""Training curves against instances and against time; stages of a curriculum marked."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from polarvrp.catalog.experiments import Experiment
from polarvrp.problem.variants import TRAINING_VARIANTS
from polarvrp.study.runs import RunSpec
from polarvrp.tables.commands import command_for
from polarvrp.tables.drawing import MARKED_EPOCHS, dot_size, head, legend, looks_of, tidy
from polarvrp.tables.figures import figure_of
from polarvrp.tables.labels import method_label, method_rank, stem_of
from polarvrp.tables.sources import MissingResultsError, Results

VALIDATION_GAP = "gap to one local search (%)"
"""What the validation gap is to, as ``training.validation`` takes it."""

BEGINNING = 20
"""What part of a long training, the first twentieth, may lie above the axis: it falls many times as far as the rest."""

_Instances = tuple[frozenset[str], int]
"""Variants and number of customers."""

_UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def training_curves(results: Results, experiment: Experiment) -> Figure:
    """Sampled cost and validation gap by instances, and the gap by time; a row of panels a size, a line a seed.

    Costs are drawn where instances are of the variants and size that most runs end with: other stages have costs of
    their own. Dotted lines mark where the stages of a training begin.
    """
    trained, labels = results.trained_runs(), results.method_labels
    runs = [run for run in trained if stem_of(run.method) in labels] or trained
    if not runs:
        raise MissingResultsError(
            f"{results.root / 'models'} holds no trained runs at scale {results.scale}; "
            f"make them with: {command_for(results, experiment)}"
        )
    sizes = sorted({run.num_customers for run in runs})
    look = looks_of(sorted({stem_of(run.method) for run in runs}, key=lambda stem: method_rank(stem, labels)), labels)
    figure = Figure(figsize=(12.5, 0.9 + 2.6 * len(sizes)), layout="constrained")
    axes_grid = figure.subplots(len(sizes), 3, squeeze=False)
    for panels, size in zip(axes_grid, sizes, strict=True):
        of_size = {run: _instances_of_stages(results, run) for run in runs if run.num_customers == size}
        usual = Counter(kinds[-1] for kinds in of_size.values()).most_common(1)[0][0]
        histories = {run: _progress(results, run, kinds, usual) for run, kinds in of_size.items()}
        longest = max(history["elapsed"].max() for history in histories.values())
        unit, name = next(((unit, name) for unit, name in _UNITS if longest >= 2 * unit), _UNITS[-1])
        for run, history in histories.items():
            style = look[stem_of(run.method)]
            _curve(panels[0], history["instances"], history["comparable_cost"], style)
            _curve(panels[1], history["instances"], history["validation_gap_percent"], style)
            _curve(panels[2], history["elapsed"] / unit, history["validation_gap_percent"], style)
            _mark_stages(panels, history, unit, style)
        _show_the_rest(panels[:1], [history["comparable_cost"] for history in histories.values()])
        _show_the_rest(panels[1:], [history["validation_gap_percent"] for history in histories.values()])
        panels[0].set(title=f"n={size}", xlabel="training instances", ylabel="mean sampled cost")
        panels[1].set(title=f"n={size}", xlabel="training instances", ylabel=VALIDATION_GAP)
        panels[2].set(title=f"n={size}", xlabel=f"{name} of training", ylabel=VALIDATION_GAP)
        for axes in panels[:2]:
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    for axes in axes_grid.flat:
        tidy(axes, "y")
    head(figure, figure_of(experiment).title, results.scale)
    legend(figure, {method_label(stem, labels): style for stem, style in look.items()}, line=True)
    return figure


def _instances_of_stages(results: Results, run: RunSpec) -> list[_Instances]:
    """Variants and size of the instances of each stage."""
    metadata = results.metadata(run) if results.layout.metadata(run.name).is_file() else {}
    stages = metadata.get("spec", {}).get("training", {}).get("stages") or [{}]
    return [
        (frozenset(stage.get("variants", TRAINING_VARIANTS)), stage.get("num_customers", run.num_customers))
        for stage in stages
    ]


def _progress(results: Results, run: RunSpec, kinds: Sequence[_Instances], usual: _Instances) -> pd.DataFrame:
    """History with ``elapsed`` seconds, ``instances`` so far, and the costs that compare with those of other runs.

    Args:
        results: Where the history lies.
        run: The run.
        kinds: Instances of each of its stages.
        usual: Those whose costs compare.
    """
    history = results.history(run).sort_values("epoch")
    history = history.reindex(columns=[*{*history, "stage", "sampled_cost", "validation_gap_percent"}])
    rate = history["instances_per_second"] if "instances_per_second" in history else float("nan")
    own = [number for number, kind in enumerate(kinds, 1) if kind != usual]
    return history.assign(
        elapsed=history["seconds"].cumsum(),
        instances=(history["seconds"] * rate).cumsum(),
        comparable_cost=history["sampled_cost"].mask(history["stage"].isin(own)),
    )


def _curve(axes: Axes, x: pd.Series, y: pd.Series, style: Mapping[str, Any]) -> None:
    """One line over the epochs that have the value, with markers while they are few."""
    marker = style["marker"] if y.count() <= MARKED_EPOCHS else None
    axes.plot(x[y.notna()], y[y.notna()], color=style["color"], lw=1.4, marker=marker, ms=dot_size(style) ** 0.5)


def _show_the_rest(panels: Iterable[Axes], curves: Iterable[pd.Series]) -> None:
    """Fit the axes of values to what follows the beginning of each curve of more than ``MARKED_EPOCHS`` epochs."""
    found = [curve.dropna() for curve in curves]
    if all(len(curve) <= MARKED_EPOCHS for curve in found):
        return
    rest = pd.concat(curve.iloc[len(curve) // BEGINNING if len(curve) > MARKED_EPOCHS else 0 :] for curve in found)
    margin = 0.05 * (rest.max() - rest.min())
    for axes in panels:
        axes.set_ylim(rest.min() - margin, rest.max() + margin)


def _mark_stages(panels: Any, history: pd.DataFrame, unit: float, style: Mapping[str, Any]) -> None:
    """Dotted lines where a stage begins that is not the first."""
    ends = history[history["stage"].notna() & history["stage"].shift(-1).notna()]
    ends = ends[ends["stage"] != history["stage"].shift(-1).reindex(ends.index)]
    for _, row in ends.iterrows():
        for axes, place in zip(panels, (row["instances"], row["instances"], row["elapsed"] / unit), strict=True):
            axes.axvline(place, color=style["color"], lw=0.8, ls=":", zorder=0)
