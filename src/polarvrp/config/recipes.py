"""Where a backbone's own recipe departs from the paper's protocol, as values of ``config.training.TrainConfig``.

The forms of the paper's grids (``*_ablation``) and its own model follow the protocol. For all others the loss, the
optimiser, the composition of batches and the stages are their authors'; epochs, instances and batch sizes are the
study's, so that every backbone sees the same data.
"""

from collections.abc import Mapping
from typing import Any

from polarvrp.catalog.architectures import LARGEST_SMALL_SIZE

MOSES_STAGES = (
    {"name": "base", "variants": ("CVRP",)},
    {"name": "expert-O", "variants": ("OVRP",), "adapters": "single"},
    {"name": "expert-TW", "variants": ("VRPTW",), "adapters": "single"},
    {"name": "expert-L", "variants": ("VRPL",), "adapters": "single"},
    {"name": "expert-B", "variants": ("VRPB",), "adapters": "single"},
    {"name": "mixture", "adapters": "mixture"},
)
"""A base on CVRP, one adapter per constraint on it, then gates and a fresh adapter on all variants."""

RECIPES: Mapping[str, Mapping[str, Any]] = {
    "mtpomo": {"optimizer": "adam", "mixed_batches": False},
    "mvmoe": {"optimizer": "adam", "mixed_batches": False},
    "routefinder": {"optimizer": "adam", "normalize_rewards": True},
    "filmmed": {"temperature": 0.03},
    "moses": {"optimizer": "adam", "normalize_rewards": True, "stages": MOSES_STAGES},
}
LARGE_RECIPES: Mapping[str, Mapping[str, Any]] = {"cada": {"learning_rate": 0.0001}}
"""Beyond 50 customers, where the authors of CaDA trained another network by another recipe."""


def recipe_of(backbone: str, num_customers: int, protocol: str = "authors") -> dict[str, Any]:
    """Departures of a backbone's authors from the protocol.

    Args:
        backbone: Name; one without a recipe of its own follows the protocol.
        num_customers: Size trained for.
        protocol: ``authors``, or ``paper``: only the stages, without which a network of several stages is none.
    """
    large = LARGE_RECIPES.get(backbone, {}) if num_customers > LARGEST_SMALL_SIZE else {}
    recipe = {**RECIPES.get(backbone, {}), **large}
    return recipe if protocol == "authors" else {key: recipe[key] for key in ("stages",) if key in recipe}
