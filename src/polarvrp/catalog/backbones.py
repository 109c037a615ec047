"""Backbones: the networks that are trained and compared."""

import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points

from polarvrp.catalog import architectures as parts
from polarvrp.catalog.architectures import Architecture
from polarvrp.catalog.encoders import ENCODERS

ENTRY_POINT_GROUP = "polarvrp.backbones"
"""Where an installed package declares backbones of its own."""

COMMON_OPTIONS = frozenset({"glimpse_mask", "layers"})
PLE_OPTIONS = COMMON_OPTIONS | {"film", "prompt", "rope", "head", "ple_form"}
OPTIONS = PLE_OPTIONS | {"adapters", "mixture"}
"""Optional fields of a network's configuration that a backbone may have no use for."""


@dataclass(frozen=True, slots=True)
class Backbone:
    """One backbone.

    Attributes:
        name: As runs are named.
        label: As tables print it.
        architecture: Its shared encoder and its decoder; None where an installed package builds it.
        options: Those of ``OPTIONS`` that it honours.
        large: Its architecture for more than 50 customers, where that is another one.
        own_encoder: Whether it exists with its own stack (``shared``) only, as its authors published it.
        in_grids: Whether the paper's grids of paradigms and encoders compare it.
        modulated: Whether PLE scales and shifts its customers' embeddings (FiLM): the paper's own model alone.
    """

    name: str
    label: str
    architecture: Architecture | None = None
    options: frozenset[str] = COMMON_OPTIONS
    large: Architecture | None = None
    own_encoder: bool = False
    in_grids: bool = False
    modulated: bool = False

    @property
    def encoders(self) -> tuple[str, ...]:
        """Encoders that it exists with."""
        return ("shared",) if self.own_encoder else tuple(ENCODERS)


BACKBONES: dict[str, Backbone] = {
    record.name: record
    for record in (
        Backbone("mtpomo", "MTPOMO", parts.MTPOMO, own_encoder=True),
        Backbone("mvmoe", "MVMoE", parts.MVMOE, COMMON_OPTIONS | {"mixture"}, own_encoder=True),
        Backbone("routefinder", "RouteFinder", parts.ROUTEFINDER, own_encoder=True),
        Backbone("cada", "CaDA", parts.CADA, large=parts.CADA_LARGE, own_encoder=True),
        Backbone("filmmed", "FiLMMeD(CaDA)", parts.FILMMED, COMMON_OPTIONS | {"head"}, own_encoder=True),
        Backbone("moses", "MoSES(CaDA)", parts.MOSES, COMMON_OPTIONS | {"adapters"}, own_encoder=True),
        Backbone("mtpomo_ablation", "MTPOMO", parts.MTPOMO_ABLATION, PLE_OPTIONS, in_grids=True),
        Backbone("mvmoe_ablation", "MVMoE", parts.MVMOE_ABLATION, PLE_OPTIONS | {"mixture"}, in_grids=True),
        Backbone("routefinder_ablation", "RouteFinder", parts.ROUTEFINDER_ABLATION, PLE_OPTIONS, in_grids=True),
        Backbone("polarnet", "Ours", parts.POLARNET, PLE_OPTIONS, in_grids=True, modulated=True),
    )
}


def named_backbones() -> dict[str, Backbone]:
    """Backbones that a run can be named after; those of installed packages are not loaded yet."""
    return {**_installed_backbones(tuple(sys.path)), **BACKBONES}


@lru_cache(maxsize=1)
def _installed_backbones(path: tuple[str, ...]) -> dict[str, Backbone]:
    """Backbones of the packages on a path, which takes milliseconds to search: once, not for each run's name."""
    return {entry.name: Backbone(name=entry.name, label=entry.name) for entry in entry_points(group=ENTRY_POINT_GROUP)}


def grid_backbones() -> tuple[str, ...]:
    """Backbones of the paper's grids, in its order."""
    return tuple(record.name for record in BACKBONES.values() if record.in_grids)
