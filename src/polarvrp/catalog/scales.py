"""Scales: how large a whole study is, and what its numbers are worth; its settings stand in ``config/scales``."""

from dataclasses import dataclass
from typing import Literal

ScaleName = Literal["quick", "laptop", "paper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """One scale.

    Attributes:
        name: As ``scale`` of a configuration names it.
        own_folder: Whether its results lie in a folder of their own below ``results``, since its sizes are others' too.
        is_demonstration: Whether its numbers prove nothing but that everything runs.
        is_papers: Whether it trains and tests as the paper does, on the published sizes alone, so that its numbers are
            compared with the paper's.
        solves_everywhere: Whether references are solved of all sizes, and not only where nobody published any.
        small_jobs: Whether its jobs run side by side, a core each.
    """

    name: ScaleName
    own_folder: bool = False
    is_demonstration: bool = False
    is_papers: bool = False
    solves_everywhere: bool = False
    small_jobs: bool = False


SCALES: dict[str, Scale] = {
    record.name: record
    for record in (
        Scale(name="quick", is_demonstration=True, small_jobs=True),
        Scale(name="laptop", own_folder=True, small_jobs=True),
        Scale(name="paper", is_papers=True, solves_everywhere=True),
    )
}

USUAL = "quick"
"""The scale where no configuration names one."""
