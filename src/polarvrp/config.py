"""Configuration of one network and one training, checked at construction; imports nothing heavy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from typing import Any, Literal

from polarvrp.errors import ConfigError
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS
from polarvrp.sections import Section, above_zero, at_least, one_of, require_known

ENCODERS = ("shared", "deep", "ple")
PARADIGMS = ("rl", "po", "polar")

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


MAIN_METHODS: dict[str, tuple[str, str]] = {
    "mtpomo": ("shared", "rl"),
    "mvmoe": ("shared", "rl"),
    "routefinder": ("shared", "rl"),
    "cada": ("shared", "rl"),
    "filmmed": ("shared", "po"),
    "moses": ("shared", "rl"),
    "polarnet": ("ple", "polar"),
}
"""Encoder and paradigm of each backbone in the main tables: what its authors published."""

GRID_BACKBONES = ("mtpomo_ablation", "mvmoe_ablation", "routefinder_ablation", "polarnet")
"""Backbones of the paper's grids of paradigms and encoders."""

MODEL_CHOICES: dict[str, tuple[str, ...]] = {
    "rope": ("proper", "as_released", "off"),
    "head": ("plain", "gated", "reld"),
    "glimpse_mask": ("hard", "plus_one", "none"),
    "ple_form": ("pre", "post"),
    "adapters": ("none", "single", "mixture"),
    "mixture": ("full", "light"),
}


@dataclass(frozen=True, slots=True)
class ModelConfig(Section):
    """One network: a backbone, an encoder, and where it departs from what the backbone's authors published.

    ``None`` always means: as published. A backbone refuses the options that it has no use for.

    Attributes:
        backbone: Registered name, or ``package.module:attribute`` of a user's own backbone.
        encoder: ``shared``, ``deep`` or ``ple``.
        task_experts: Task experts in each PLE layer.
        num_customers: Size trained for; the authors of CaDA use another network beyond 50 customers.
        film: Whether customers' embeddings are scaled and shifted by the constraint flags.
        prompt: Whether constraint flags enter the encoder as prompt tokens.
        rope: Rotary position embedding of the coordinates; ``as_released`` repeats the pairing of the released code,
            which is no rotation.
        head: What follows the decoder's glimpse.
        glimpse_mask: How the glimpse treats infeasible nodes: excluded, or as in released codes with 1 added to the
            scores of feasible ones, or not at all.
        ple_form: Norms outside the experts (``pre``, the paper's form) or only inside (``post``).
        adapters: LoRA adapters around every map of MoSES: none in its first stage, one gated adapter in its second,
            the mixture of experts in its third.
        mixture: Output map of MVMoE's decoder: always a mixture of experts, or, in its light form, that or a dense map
            by a gate of its own.
        layers: Encoder layers.
        width: Features of a node.
        heads: Attention heads.
        feedforward_width: Hidden features of feed-forward networks.
    """

    backbone: str = "polarnet"
    encoder: str = "ple"
    task_experts: int = 3
    num_customers: int = 50
    film: bool | None = None
    prompt: bool | None = None
    rope: str | None = None
    head: str | None = None
    glimpse_mask: str | None = None
    ple_form: str | None = None
    adapters: str | None = None
    mixture: str | None = None
    layers: int | None = None
    width: int = 128
    heads: int = 8
    feedforward_width: int = 512

    def __post_init__(self) -> None:
        for name, choices in MODEL_CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        for name in ("task_experts", "num_customers", "width", "heads", "feedforward_width"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.layers is not None and self.layers < 1:
            raise ConfigError(f"layers must be at least 1, got {self.layers}")
        if self.width % self.heads:
            raise ConfigError(f"width must be a multiple of heads, got {self.width} and {self.heads}")
        if (self.width // self.heads) % 4:
            raise ConfigError(
                f"width / heads must be a multiple of 4 (two axes, pairs of features), got {self.width // self.heads}"
            )

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, as JSON and YAML hold them."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecipe(Section):
    """How policies are trained, whatever their name says.

    Attributes:
        epochs: Passes over fresh data.
        instances_per_epoch: Instances drawn in an epoch; the last batch is the remainder.
        learning_rate: Before the first milestone.
        weight_decay: On all parameters.
        milestones: Epochs after which the learning rate is multiplied by ``decay``.
        decay: Factor at each milestone.
        gradient_clip: Largest global norm of the gradient.
        temperature: alpha of the preference loss; ``po`` and ``polar`` only.
        refined_tours: Tours of an instance that local search refines, k; ``polar`` only.
        refinement_start_epoch: Epochs strictly greater than it are refined; ``polar`` only.
        refiner: Local search: ``pyvrp`` on CPU cores beside the device, or ``gpu``, batched on the device itself;
            ``polar`` only.
        precision: ``float32``, ``bfloat16``, or ``auto``: bfloat16 where the device computes it natively.
        validation_instances: First instances of each validation set that are solved after an epoch.
    """

    epochs: int = 300
    instances_per_epoch: int = 100_000
    learning_rate: float = 0.0003
    weight_decay: float = 0.000001
    milestones: tuple[int, ...] = (270, 295)
    decay: float = 0.1
    gradient_clip: float = 1.0
    temperature: float = 0.05
    refined_tours: int = 1
    refinement_start_epoch: int = 250
    refiner: Literal["pyvrp", "gpu"] = "pyvrp"
    precision: Literal["float32", "bfloat16", "auto"] = "auto"
    validation_instances: int = 128

    def __post_init__(self) -> None:
        for name in ("epochs", "instances_per_epoch", "refined_tours"):
            at_least(f"training.{name}", getattr(self, name), 1)
        for name in ("weight_decay", "refinement_start_epoch", "validation_instances"):
            at_least(f"training.{name}", getattr(self, name), 0)
        for name in ("learning_rate", "decay", "gradient_clip", "temperature"):
            above_zero(f"training.{name}", getattr(self, name))
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ConfigError(f"training.milestones must grow, got {list(self.milestones)}; sort them")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTraining(TrainingRecipe):
    """How the policies of a study are trained, and on what.

    Attributes:
        variants: What the runs of the main tables are trained on: the paper's 16 variants, or all 48, which their names
            then say (``-all``).
    """

    variants: Literal["paper", "all"] = "paper"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageConfig(Section):
    """One stage of a training; each takes all epochs and starts with a new optimiser.

    Attributes:
        name: Distinguishes the stages of a run.
        variants: What training instances are drawn from, each variant as often as the others.
        adapters: Network trained: ``none`` the bare one, ``single`` the first stage's with fresh adapters, ``mixture``
            the first stage's with the adapters of all stages between.
    """

    name: str = "all"
    variants: tuple[str, ...] = TRAINING_VARIANTS
    adapters: Literal["none", "single", "mixture"] = "none"

    def __post_init__(self) -> None:
        if not self.variants:
            raise ConfigError(f"stage {self.name}: variants must hold at least one variant, got []")
        require_known(f"stage {self.name}: variants", self.variants, VARIANTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig(TrainingRecipe):
    """One training: the recipe, and what the run's name, size and backbone add.

    Attributes:
        paradigm: ``rl``, ``po`` or ``polar``.
        num_customers: Customers of each training instance.
        batch_size: Instances of a step.
        seed: Root of all random streams of the run.
        optimizer: ``adamw`` decouples the weight decay, ``adam`` adds it to the gradient.
        mixed_batches: Whether each instance draws its own variant, or a batch one for all its instances.
        normalize_rewards: Whether REINFORCE divides rewards by a running mean of their group of variants.
        stages: One for all backbones but MoSES.
    """

    paradigm: str
    num_customers: int
    batch_size: int = 256
    seed: int = 0
    optimizer: Literal["adamw", "adam"] = "adamw"
    mixed_batches: bool = True
    normalize_rewards: bool = False
    stages: tuple[StageConfig, ...] = (StageConfig(),)

    def __post_init__(self) -> None:
        TrainingRecipe.__post_init__(self)
        if self.paradigm not in PARADIGMS:
            raise ConfigError(f"unknown paradigm {self.paradigm!r}; {one_of(self.paradigm, PARADIGMS)}")
        at_least("number of customers", self.num_customers, 2)
        at_least("batch_size", self.batch_size, 1)
        at_least("seed", self.seed, 0)
        if not self.stages or self.stages[0].adapters != "none":
            raise ConfigError("training.stages must begin with a stage without adapters")
        several = [name for stage in self.stages for name in stage.variants if VARIANTS[name].multi_depot]
        if self.refiner == "gpu" and several:
            raise ConfigError(f"training.refiner gpu serves one depot, but {several[0]} has several; use pyvrp")
        if self.refined_tours > self.num_customers:
            raise ConfigError(
                f"training.refined_tours must not exceed the {self.num_customers} tours of an instance, "
                f"got {self.refined_tours}"
            )

    @property
    def total_epochs(self) -> int:
        """Epochs of all stages together, the rows of a complete history."""
        return self.epochs * len(self.stages)
