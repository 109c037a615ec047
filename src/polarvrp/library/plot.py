"""Pictures of solutions: the routes on a map and, with time windows, their schedules beside it.

Depots are black squares. A customer's area grows with its demand: deliveries are filled circles, pickups triangles.
Each route has a colour of its own, which its neighbours around the depot differ from; first and last legs are thin, so
that they do not hide what happens between. In a schedule each customer has a row: a bar from the opening of its window
to its end, and a narrow one for its service.

Shape legend: N nodes, depots first.
"""

import colorsys
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from polarvrp.files import write_figure
from polarvrp.library.results import shown_cost
from polarvrp.outputs import marked
from polarvrp.problem.library_instances import LibraryInstance
from polarvrp.problem.library_prices import check_routes, service_starts
from polarvrp.problem.tours import Route
from polarvrp.problem.vrplib import variant_of_library

GOLDEN_SECTION = (math.sqrt(5) - 1) / 2
"""Steps of this part of the colour circle keep neighbours apart, however many there are."""

LIGHTNESS = (0.36, 0.50, 0.28)
LABELLED_CUSTOMERS = 60
"""Up to so many customers carry their numbers."""

SIDE = 9.0
"""Inches of the map; the schedule is as high."""

COMMENTS = {".png": "Comment", ".pdf": "Keywords", ".svg": "Description"}
"""Entry of each format's metadata that says what the picture is of."""

Colour = tuple[float, float, float]


def save_plot(
    path: Path, library: LibraryInstance, routes: Sequence[Route], title: str, subject: dict[str, Any]
) -> None:
    """Draw a solution into a file, whose suffix says in which format.

    Args:
        path: To be written, e.g. ``.png`` or ``.pdf``.
        library: The instance.
        routes: Of the solution, feasible or not.
        title: Above it; see ``title_of``.
        subject: What the picture says that it is of; see ``outputs.require_output``.

    Raises:
        DataError: If the file cannot be written.
    """
    figure = draw_solution(library, routes, title)
    write_figure(path, figure, dpi=130, metadata={COMMENTS[path.suffix.lower()]: marked(subject)})


def draw_solution(library: LibraryInstance, routes: Sequence[Route], title: str) -> Figure:
    """The picture of a solution; arguments as ``save_plot``."""
    routes = _around_their_depots(library, [route for route in routes if route.customers])
    colours = _distinct_colours(len(routes))
    timed = library.time_windows is not None
    figure = Figure(figsize=(SIDE * (1.8 if timed else 1.0), SIDE + 0.7), layout="constrained")
    if timed:
        map_axes, schedule_axes = figure.subplots(1, 2, width_ratios=(1.0, 0.8))
        _draw_schedule(schedule_axes, library, routes, colours)
    else:
        map_axes = figure.subplots()
    _draw_map(map_axes, library, routes, colours)
    if timed:
        _number_routes(map_axes, library, routes, colours)
    figure.suptitle(title, fontsize=12)
    return figure


def title_of(library: LibraryInstance, routes: Sequence[Route]) -> str:
    """Name, variant, size, cost and, if there is one, the rule that is broken, in two lines.

    Raises:
        InfeasibleTourError: If a customer is out of range, missing or served twice.
    """
    report = check_routes(library, list(routes))
    wrong = "" if report.first_problem is None else f"; infeasible: {report.first_problem}"
    head = f"{library.name}: {variant_of_library(library).name}, {library.num_customers} customers"
    return f"{head}\ncost {shown_cost(report.cost)}, {report.num_routes} routes{wrong}"


def _draw_map(axes: Axes, library: LibraryInstance, routes: Sequence[Route], colours: Sequence[Colour]) -> None:
    xy, depots = library.coordinates, library.num_depots
    sizes, collects = _area(library, _loads(library)), _pickups(library) > 0
    for route, colour in zip(routes, colours, strict=True):
        inner, outer = xy[list(route.customers)], xy[route.depot]
        axes.plot(*inner.T, color=colour, lw=1.6, zorder=2, solid_capstyle="round")
        ends = [inner[0]] if library.open_routes else [inner[0], inner[-1]]
        legs = LineCollection([[outer, end] for end in ends], colors=[colour], linewidths=0.7, alpha=0.55, zorder=1)
        axes.add_collection(legs)
        if library.open_routes:
            (x, y), around = inner[-1], sizes[route.customers[-1]] + 70
            axes.scatter(x, y, s=around, facecolors="none", edgecolors=[colour], zorder=2)
        for marker, sought in (("o", ~collects), ("^", collects)):
            nodes = [node for node in route.customers if sought[node]]
            face = "white" if marker == "^" else colour
            x, y = xy[nodes].T
            axes.scatter(x, y, s=sizes[nodes], marker=marker, color=face, edgecolors=[colour], linewidths=1.1, zorder=3)
    axes.scatter(
        xy[:depots, 0], xy[:depots, 1], s=150, marker="s", color="black", edgecolors="white", linewidths=1.2, zorder=5
    )
    if depots > 1:
        for depot, place in enumerate(xy[:depots]):
            axes.annotate(str(depot), place, color="white", ha="center", va="center", fontsize=8, zorder=6)
    if library.num_customers <= LABELLED_CUSTOMERS:
        for node in range(depots, len(xy)):
            aside = 2.0 + 0.4 * math.sqrt(sizes[node])
            axes.annotate(
                str(node),
                xy[node],
                xytext=(aside, aside),
                textcoords="offset points",
                fontsize=7,
                color="#333",
                zorder=7,
            )
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.04)
    axes.tick_params(length=2, labelsize=8, colors="#555555")
    for spine in axes.spines.values():
        spine.set_color("#BBBBBB")
    if library.matrix is not None:
        axes.set_xlabel("positions resemble the matrix of distances, which alone counts", fontsize=8)
    _draw_key(axes, library)


def _draw_key(axes: Axes, library: LibraryInstance) -> None:
    """What marks mean, below the map."""
    served = _loads(library)[library.num_depots :]
    shown = sorted({int(served.min()), int(np.median(served)), int(served.max())})
    pickups, deliveries = (
        bool((sign[library.num_depots :] > 0).any()) for sign in (_pickups(library), library.demands)
    )
    kinds: list[tuple[str, str, str]] = []
    if deliveries or not pickups:
        kinds.append(("o", "#666666", "delivery" if pickups else "demand"))
    if pickups:
        kinds.append(("^", "white", "pickup"))
    handles: list[Any] = [_mark("s", "black", 10, "depot")]
    for marker, face, label in kinds:
        for load in shown if marker == "o" or len(kinds) == 1 else shown[-1:]:
            handles.append(_mark(marker, face, math.sqrt(_area(library, load)), f"{label} {load}"))
    if library.open_routes:
        handles.append(_mark("o", "none", 11, "last customer"))
    axes.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.04 if library.matrix is None else -0.07),
        ncols=len(handles),
        frameon=False,
        fontsize=9,
    )


def _mark(marker: str, face: str, size: float, label: str) -> Line2D:
    return Line2D(
        [], [], linestyle="", marker=marker, markersize=size, color=face, markeredgecolor="#444444", label=label
    )


def _draw_schedule(axes: Axes, library: LibraryInstance, routes: Sequence[Route], colours: Sequence[Colour]) -> None:
    windows = library.time_windows
    assert windows is not None
    service = np.zeros(len(windows)) if library.service_times is None else library.service_times
    first_opening, horizon = float(windows[:, 0].min()), float(windows[np.isfinite(windows)].max())
    row, ticks = 0, []
    for number, (route, colour) in enumerate(zip(routes, colours, strict=True), start=1):
        first = row
        for customer, start in zip(route.customers, service_starts(library, route), strict=True):
            earliest, latest = windows[customer]
            axes.barh(row, min(latest, horizon) - earliest, left=earliest, height=0.9, color=colour, alpha=0.28, lw=0)
            axes.barh(
                row,
                max(service[customer], 0.004 * (horizon - first_opening)),
                left=start,
                height=0.45,
                color=colour,
                lw=0,
            )
            row += 1
        ticks.append(((first + row - 1) / 2, f"{number}"))
        axes.axhline(row - 0.5, color="#DDDDDD", lw=0.6, zorder=0)
    closings = [] if library.open_routes else sorted(set(windows[: library.num_depots, 1].tolist()))
    for closing in closings:
        axes.axvline(closing, color="black", lw=1.0, ls=":")
    axes.set(ylim=(row - 0.4, -0.6), xlim=(first_opening, horizon + 0.02 * (horizon - first_opening)))
    axes.set_yticks([place for place, _ in ticks], [name for _, name in ticks])
    axes.set_xlabel("time; dotted: a depot closes" if closings else "time")
    axes.set_ylabel("routes, a row a customer: window (broad), service (narrow)")
    axes.tick_params(axis="both", length=2, labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _number_routes(axes: Axes, library: LibraryInstance, routes: Sequence[Route], colours: Sequence[Colour]) -> None:
    """The numbers of the schedule, each at the customer farthest from its depot."""
    for number, (route, colour) in enumerate(zip(routes, colours, strict=True), start=1):
        places = library.coordinates[list(route.customers)]
        outward = places - library.coordinates[route.depot]
        farthest = int((outward**2).sum(axis=1).argmax())
        shift = 11 * outward[farthest] / max(float(np.hypot(*outward[farthest])), 1e-9)
        axes.annotate(
            str(number),
            places[farthest],
            xytext=(float(shift[0]), float(shift[1])),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=9,
            fontweight="bold",
            color=colour,
            zorder=7,
        )


def _around_their_depots(library: LibraryInstance, routes: Sequence[Route]) -> list[Route]:
    """Routes by depot, then by the direction in which they leave it: neighbours follow one another."""

    def direction(route: Route) -> tuple[int, float]:
        east, north = (library.coordinates[list(route.customers)] - library.coordinates[route.depot]).mean(axis=0)
        return route.depot, math.atan2(north, east)

    return sorted(routes, key=direction)


def _distinct_colours(count: int) -> list[Colour]:
    """Colours of which neighbours in the list differ most."""
    hues = [(0.6 + rank * GOLDEN_SECTION) % 1.0 for rank in range(count)]
    return [colorsys.hls_to_rgb(hue, LIGHTNESS[rank % len(LIGHTNESS)], 0.75) for rank, hue in enumerate(hues)]


def _loads(library: LibraryInstance) -> NDArray[np.int64]:
    return library.demands + _pickups(library)


def _pickups(library: LibraryInstance) -> NDArray[np.int64]:
    return np.zeros_like(library.demands) if library.pickups is None else library.pickups


def _area(library: LibraryInstance, loads: NDArray[np.int64] | int) -> Any:
    """Square points of a mark: proportional to the load, smaller the more customers there are, never invisible."""
    largest = 9000.0 / max(library.num_customers, 45)
    return np.maximum(8.0, min(largest, 200.0) * loads / max(int(_loads(library).max()), 1))
