"""Configuration of one training; imports nothing heavy."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.config.base import Distinct, Known, Section, Several
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS


def _require_growing(values: tuple[int, ...]) -> tuple[int, ...]:
    if list(values) != sorted(values):
        raise ValueError(f"must grow, got {list(values)}; sort them")
    return values


class TrainingRecipe(Section):
    """How policies are trained, whatever their name says."""

    epochs: PositiveInt = Field(default=300, description="Passes over fresh data.")
    instances_per_epoch: PositiveInt = Field(
        default=100_000, description="Instances drawn in an epoch; the last batch is the remainder."
    )
    learning_rate: PositiveFloat = Field(default=0.0003, description="Before the first milestone.")
    weight_decay: NonNegativeFloat = Field(default=0.000001, description="On all parameters.")
    milestones: Annotated[Distinct[PositiveInt], AfterValidator(_require_growing)] = Field(
        default=(270, 295), description="Epochs after which the learning rate is multiplied by decay, growing."
    )
    decay: PositiveFloat = Field(default=0.1, description="Factor at each milestone.")
    gradient_clip: PositiveFloat = Field(default=1.0, description="Largest global norm of the gradient.")
    starts: Annotated[int, Field(ge=2)] | Literal["all"] = Field(
        default="all",
        description="First customers from which tours of an instance are sampled, drawn anew for each batch, or all. "
        "With several depots each customer starts a tour from every depot.",
    )
    temperature: PositiveFloat = Field(
        default=0.05, description="alpha of the preference loss; paradigms po and polar."
    )
    refined_tours: PositiveInt = Field(
        default=1, description="Tours of an instance that local search refines, k; paradigm polar."
    )
    refinement_start_epoch: NonNegativeInt = Field(
        default=250, description="Epochs strictly greater than it are refined; paradigm polar."
    )
    refiner: Literal["pyvrp", "gpu"] = Field(
        default="pyvrp",
        description="Local search: pyvrp on CPU cores beside the device, or gpu, batched on the device itself; "
        "paradigm polar.",
    )
    precision: Literal["float32", "bfloat16", "auto"] = Field(
        default="auto",
        description="Arithmetic of rollout and loss; auto is bfloat16 where the device computes it natively.",
    )
    validation_instances: NonNegativeInt = Field(
        default=128, description="First instances of each validation set that are solved after an epoch."
    )


class StudyTraining(TrainingRecipe):
    """How the policies of a study are trained, and on what."""

    variants: Literal["paper", "all"] = Field(
        default="paper",
        description="What the runs of the main tables are trained on: the paper's 16 variants, or all 48, which their "
        "names then say (-all).",
    )


class StageConfig(Section):
    """One stage of a training; each takes all epochs and starts with a new optimiser."""

    name: str = Field(default="all", description="Distinguishes the stages of a run.")
    variants: Distinct[Annotated[str, Known(VARIANTS.keys)]] = Field(
        default=TRAINING_VARIANTS,
        min_length=1,
        description="What training instances are drawn from, each variant as often as the others.",
    )
    adapters: Literal["none", "single", "mixture"] = Field(
        default="none",
        description="Network trained: none the bare one, single the first stage's with fresh adapters, mixture the "
        "first stage's with the adapters of all stages between.",
    )


class TrainConfig(TrainingRecipe):
    """One training: the recipe, and what the run's name, size and backbone add."""

    paradigm: Annotated[str, Known(PARADIGMS.keys)] = Field(description="Training paradigm.")
    num_customers: int = Field(ge=2, description="Customers of each training instance.")
    batch_size: PositiveInt = Field(default=256, description="Instances of a step.")
    seed: NonNegativeInt = Field(default=0, description="Root of all random streams of the run.")
    optimizer: Literal["adamw", "adam"] = Field(
        default="adamw", description="adamw decouples the weight decay, adam adds it to the gradient."
    )
    mixed_batches: bool = Field(
        default=True, description="Whether each instance draws its own variant, or a batch one for all its instances."
    )
    normalize_rewards: bool = Field(
        default=False,
        description="Whether REINFORCE divides rewards by a running mean of their group of variants.",
    )
    stages: Several[StageConfig] = Field(
        default=(StageConfig(),), min_length=1, description="One for all backbones but MoSES."
    )

    @model_validator(mode="after")
    def _keys_agree(self) -> Self:
        if self.stages[0].adapters != "none":
            raise ValueError("stages must begin with a stage without adapters")
        several = [name for stage in self.stages for name in stage.variants if VARIANTS[name].multi_depot]
        if self.refiner == "gpu" and several:
            raise ValueError(f"refiner gpu serves one depot, but {several[0]} has several; use pyvrp")
        starts = self.num_customers if self.starts == "all" else self.starts
        if starts > self.num_customers:
            raise ValueError(
                f"starts must not exceed the {self.num_customers} customers of an instance, got {starts}; write all"
            )
        if self.refined_tours > starts:
            raise ValueError(
                f"refined_tours must not exceed the {starts} tours of an instance, got {self.refined_tours}"
            )
        return self

    @property
    def total_epochs(self) -> int:
        """Epochs of all stages together, the rows of a complete history."""
        return self.epochs * len(self.stages)
