"""What all figures look like: colours, markers, headings, legends and grids."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from polarvrp.tables.formats import scale_warning
from polarvrp.tables.labels import is_external, is_imported, is_shipped

# Okabe and Ito's colours, told apart with every common colour blindness; markers tell them apart in grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#000000", "#D55E00")
MARKERS = ("o", "s", "^", "D", "v", "P", "*")
_OURS_COLOUR, _SHIPPED_MARKERS = COLOURS[6], ("p", "h", "d")
"""Shipped models are of our method and told from it, and from each other, by their markers."""

_SOLVER_LOOKS = {
    "pyvrp": {"color": "#8C8C8C", "marker": "<"},
    "ortools": {"color": "#8C8C8C", "marker": "X"},
    "published-ortools": {"color": "#5A5A5A", "marker": "|"},
}
STYLE: dict[Any, Any] = {
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


def looks_of(series: Sequence[str], labels: Mapping[str, str]) -> Look:
    """One look a series, by its place among the labels: a method has the same in every figure."""
    places = [name for name in labels if not is_external(name) or is_imported(name)]
    looks: Look = {}
    for position, name in enumerate(series):
        rank = places.index(name) if name in places else position
        colour, marker = rank % len(COLOURS), (rank + rank // len(COLOURS)) % len(MARKERS)
        looks[name] = _SOLVER_LOOKS.get(name, {"color": COLOURS[colour], "marker": MARKERS[marker]})
        if is_shipped(name):
            looks[name] = {"color": _OURS_COLOUR, "marker": _SHIPPED_MARKERS[position % len(_SHIPPED_MARKERS)]}
    return looks


def dot_size(style: Mapping[str, Any]) -> float:
    """Area in square points; a star needs more for the same weight."""
    return 60 if style["marker"] == "*" else 20


def tidy(axes: Axes, axis: str) -> None:
    """Draw a pale grid behind the data along one axis, and no ticks."""
    axes.grid(axis=axis, color="#DDDDDD", lw=0.6)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.tick_params(length=0)


def head(figure: Figure, title: str, scale: str) -> None:
    """Title of a whole picture, and the scale of its numbers."""
    figure.suptitle(f"{title}\n{scale_warning(scale) or f'Scale {scale}'}", fontsize=10.5)


def legend(figure: Figure, styles: Look, line: bool) -> None:
    """Legend below the panels: a dot, or a line with a marker, for each label."""
    handles = [
        Line2D([], [], label=label, linestyle="-" if line else "", markersize=dot_size(style) ** 0.5, **style)
        for label, style in styles.items()
    ]
    # An entry takes its marker and some 0.08 inches a character; a legend wider than the figure would be clipped.
    widest = 0.6 + 0.08 * max(map(len, styles), default=0)
    columns = max(int(figure.get_figwidth() / widest), 1)
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), columns, 5))
