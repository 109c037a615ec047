"""Routes of one test instance of each variant, as a trained model drives them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from polarvrp.catalog.experiments import Experiment
from polarvrp.catalog.methods import OWN
from polarvrp.problem.datasets import read_instances
from polarvrp.problem.instances import Instances, NodeArrays, instance_digests
from polarvrp.problem.tours import Route, actions_to_routes
from polarvrp.problem.variants import VARIANTS
from polarvrp.solutions.origin import require_same_instances
from polarvrp.solutions.solutions import read_solutions
from polarvrp.study.shipped import shipped_models, shipped_size
from polarvrp.tables.commands import command_for
from polarvrp.tables.drawing import COLOURS, head
from polarvrp.tables.figures import figure_of
from polarvrp.tables.labels import method_label, method_rank, shipped_method, stem_of, variant_rank
from polarvrp.tables.sources import InstanceSet, MissingResultsError, Results

COLUMNS = 8
"""Panels beside each other."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A model whose routes are drawn.

    Attributes:
        label: As figures print it.
        num_customers: Size of the instances.
        solutions: File of its solutions of a variant.
        variants: Those that were solved and whose instances are at hand, in the paper's order.
    """

    label: str
    num_customers: int
    solutions: Callable[[str], Path]
    variants: Sequence[str]


def sample_routes(results: Results, experiment: Experiment) -> Figure:
    """A panel a variant: the routes of its first test instance, and what they cost.

    Raises:
        MissingResultsError: If nothing was solved whose instances are at hand.
        DataError: If solutions are of other instances than those at hand.
    """
    drawn = _model(results)
    if drawn is None:
        raise MissingResultsError(
            f"{results.root} holds no evaluations beside their test sets at scale {results.scale}; "
            f"make them with: {command_for(results, experiment)}"
        )
    rows = -(-len(drawn.variants) // COLUMNS)
    figure = Figure(figsize=(1.7 * min(COLUMNS, max(len(drawn.variants), 4)), 1.1 + 1.95 * rows), layout="constrained")
    panels = list(figure.subplots(rows, COLUMNS if rows > 1 else max(len(drawn.variants), 4), squeeze=False).flat)
    for axes in panels:
        axes.set_axis_off()
    for axes, variant in zip(panels, drawn.variants, strict=False):
        dataset, path = results.dataset(InstanceSet(variant, drawn.num_customers)), drawn.solutions(variant)
        instances, solutions = read_instances(dataset, first=1), read_solutions(path)
        require_same_instances(path, solutions, dict(enumerate(instance_digests(instances))), dataset)
        first = next(row for row in solutions.to_pylist() if row["instance"] == 0)
        _draw(axes, instances, actions_to_routes(first["actions"], instances.num_depots))
        cost = "no tour" if first["cost"] is None else f"{first['cost']:.3f}"
        axes.set_title(f"{variant}\n{cost}", fontsize=7.5)
    head(figure, f"{figure_of(experiment).title}: {drawn.label}, n={drawn.num_customers}", results.scale)
    figure.legend(handles=_signs(), loc="outside lower center", ncols=4)
    return figure


def _model(results: Results) -> Drawn | None:
    """The model with most variants; of several a shipped one that the study evaluated, then ours, then by rank."""
    layout, labels, found = results.layout, results.method_labels, []
    for name in shipped_models():
        size = shipped_size(name)
        if not results.has_size(size):
            continue
        solutions = partial(layout.shipped_evaluation, name, num_customers=size)
        found.append(_drawn(results, method_label(shipped_method(size), labels), size, solutions))
    ranked = sorted(results.evaluated_runs(), key=lambda run: method_rank(run.method, labels))
    ours = [run for run in ranked if stem_of(run.method) == OWN.stem]
    for run in [*ours, *ranked]:
        solutions = partial(layout.evaluation, run.name, num_customers=run.num_customers)
        found.append(_drawn(results, method_label(run.method, labels), run.num_customers, solutions))
    return max((model for model in found if model.variants), key=lambda model: len(model.variants), default=None)


def _drawn(results: Results, label: str, size: int, solutions: Callable[[str], Path]) -> Drawn:
    at_hand = [
        name
        for name in filter(results.has_variant, VARIANTS)
        if solutions(name).is_file() and results.dataset(InstanceSet(name, size)).is_file()
    ]
    return Drawn(label, size, solutions, sorted(at_hand, key=variant_rank))


def _draw(axes: Axes, instances: Instances[NodeArrays], routes: Sequence[Route]) -> None:
    """One instance: depots, customers that get and customers that give goods, a colour a route."""
    places, depots = instances.locs[0], instances.num_depots
    closed = not bool(instances.open_route[0])
    for number, route in enumerate(routes):
        nodes = [route.depot, *route.customers, *([route.depot] if closed else [])]
        axes.plot(*places[nodes].T, color=COLOURS[number % len(COLOURS)], lw=0.8, zorder=1)
    collects = instances.demand_backhaul[0] > 0
    collects[:depots] = False
    delivers = ~collects
    delivers[:depots] = False
    for nodes, sign in ((delivers, _SIGNS["delivery"]), (collects, _SIGNS["pickup"])):
        axes.plot(*places[nodes].T, ls="", zorder=2, **sign)
    axes.plot(*places[:depots].T, ls="", zorder=3, **_SIGNS["depot"])
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")


_SIGNS: dict[str, dict[str, Any]] = {
    "depot": {"marker": "s", "color": "black", "ms": 4},
    "delivery": {"marker": "o", "color": "#444444", "ms": 1.8},
    "pickup": {"marker": "^", "markerfacecolor": "white", "markeredgecolor": "#444444", "ms": 3, "mew": 0.7},
}


def _signs() -> list[Line2D]:
    return [Line2D([], [], ls="", label=name, **sign) for name, sign in _SIGNS.items()]
