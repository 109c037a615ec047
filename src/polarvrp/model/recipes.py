"""How each backbone's authors trained it, as data; the trainer decides what of it to follow. Imports no torch.

The paper trains all networks of its grids, and its own, by one protocol (``PAPER``); the published numbers of the
other backbones come from their authors' recipes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from polarvrp.model.architectures import LARGEST_SMALL_SIZE
from polarvrp.problem.variants import TRAINING_VARIANTS


@dataclass(frozen=True, slots=True)
class Stage:
    """One training of a recipe; each takes as many epochs and starts with a new optimizer.

    Attributes:
        name: Distinguishes the stages of a run.
        variants: What instances are drawn from.
        adapters: The network trained: ``none`` the bare one, ``single`` the first stage's with fresh adapters
            (``adapters.specialize``), ``mixture`` that with all experts (``adapters.mix``).
    """

    name: str
    variants: tuple[str, ...] = TRAINING_VARIANTS
    adapters: Literal["none", "single", "mixture"] = "none"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One row of the literature's training recipes; all use 300 epochs of 100,000 instances and clip gradients at 1.

    Attributes:
        optimizer: ``adam`` adds the weight decay to the gradient, ``adamw`` decouples it.
        learning_rate: Before the first milestone.
        weight_decay: On all parameters.
        batch_size: Instances of a step.
        batch: ``mixed`` variants, or ``single``: one variant a batch, drawn anew each time.
        normalize_rewards: REINFORCE on rewards divided by the absolute exponential mean (0.75 old, 0.25 new) of
            their group; groups are the combinations of open routes, windows and limits.
        temperature: alpha of the preference loss, for backbones whose authors trained with it.
        stages: One for all backbones but MoSES.
    """

    optimizer: Literal["adam", "adamw"]
    batch_size: int
    learning_rate: float = 3e-4
    weight_decay: float = 1e-6
    batch: Literal["mixed", "single"] = "mixed"
    normalize_rewards: bool = False
    temperature: float | None = None
    stages: tuple[Stage, ...] = (Stage("all"),)


MOSES_STAGES = (
    Stage("base", variants=("CVRP",)),
    Stage("expert-O", variants=("OVRP",), adapters="single"),
    Stage("expert-TW", variants=("VRPTW",), adapters="single"),
    Stage("expert-L", variants=("VRPL",), adapters="single"),
    Stage("expert-B", variants=("VRPB",), adapters="single"),
    Stage("mixture", adapters="mixture"),
)

PAPER = Recipe(optimizer="adamw", batch_size=256, temperature=0.05)
ROUTEFINDER = Recipe(optimizer="adam", batch_size=256, normalize_rewards=True)

SMALL_RECIPES: dict[str, Recipe] = {
    "mtpomo": replace(ROUTEFINDER, normalize_rewards=False, batch="single"),
    "mvmoe": replace(ROUTEFINDER, normalize_rewards=False, batch="single"),
    "routefinder": ROUTEFINDER,
    "cada": Recipe(optimizer="adamw", batch_size=256),
    "filmmed": Recipe(optimizer="adamw", batch_size=256, temperature=0.03),
    "moses": replace(ROUTEFINDER, stages=MOSES_STAGES),
}
LARGE_RECIPES: dict[str, Recipe] = {
    "cada": Recipe(optimizer="adamw", batch_size=128, learning_rate=1e-4),
}


def recipe_of(backbone: str, num_customers: int) -> Recipe:
    """The recipe by which a backbone's published numbers came about.

    Args:
        backbone: The paper's own model, the backbones of its grids and those from outside follow ``PAPER``.
        num_customers: Size trained for.
    """
    large = num_customers > LARGEST_SMALL_SIZE
    if backbone not in SMALL_RECIPES:
        return replace(PAPER, batch_size=128) if large else PAPER
    return LARGE_RECIPES.get(backbone, SMALL_RECIPES[backbone]) if large else SMALL_RECIPES[backbone]
