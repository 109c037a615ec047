"""Configuration of one training, checked at construction; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.config.sections import Section, above_zero, at_least, one_of, require_known
from polarvrp.errors import ConfigError
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS


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
        starts: First customers from which tours of an instance are sampled, drawn anew for each batch, or ``all``. With
            several depots each customer starts a tour from every depot.
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
    starts: int | Literal["all"] = "all"
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
        if self.starts != "all":
            at_least("training.starts", self.starts, 2)
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
        starts = self.num_customers if self.starts == "all" else self.starts
        if starts > self.num_customers:
            raise ConfigError(
                f"training.starts must not exceed the {self.num_customers} customers of an instance, got {starts}; "
                f"write all"
            )
        if self.refined_tours > starts:
            raise ConfigError(
                f"training.refined_tours must not exceed the {starts} tours of an instance, got {self.refined_tours}"
            )

    @property
    def total_epochs(self) -> int:
        """Epochs of all stages together, the rows of a complete history."""
        return self.epochs * len(self.stages)
