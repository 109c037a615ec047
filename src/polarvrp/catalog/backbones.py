"""Backbones, and the encoders that each exists with."""

from importlib.metadata import entry_points

from polarvrp.catalog.encoders import ENCODERS

BACKBONES: dict[str, tuple[str, ...]] = {
    "mtpomo": ("shared",),
    "mvmoe": ("shared",),
    "routefinder": ("shared",),
    "cada": ("shared",),
    "filmmed": ("shared",),
    "moses": ("shared",),
    "mtpomo_ablation": ENCODERS,
    "mvmoe_ablation": ENCODERS,
    "routefinder_ablation": ENCODERS,
    "polarnet": ENCODERS,
}
"""Every built-in backbone with the encoders that it exists with."""

ENTRY_POINT_GROUP = "polarvrp.backbones"
"""Where an installed package declares backbones of its own."""


def named_backbones() -> dict[str, tuple[str, ...]]:
    """Backbones that a run can be named after, and their encoders; those of installed packages are not loaded yet."""
    outside = {entry.name: ENCODERS for entry in entry_points(group=ENTRY_POINT_GROUP)}
    return {**outside, **BACKBONES}


GRID_BACKBONES = ("mtpomo_ablation", "mvmoe_ablation", "routefinder_ablation", "polarnet")
"""Backbones of the paper's grids of paradigms and encoders."""
