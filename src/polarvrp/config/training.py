"""Configuration of one training; imports nothing heavy."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

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
from polarvrp.errors import ConfigError
from polarvrp.problem.variants import LARGEST_SIZE, TRAINING_VARIANTS, VARIANTS


def _require_growing(values: tuple[int, ...]) -> tuple[int, ...]:
    if list(values) != sorted(values):
        raise ValueError(f"must grow, got {list(values)}; sort them")
    return values


Milestones = Annotated[Distinct[PositiveInt], AfterValidator(_require_growing)]
Starts = Annotated[int, Field(ge=2)] | Literal["all"]


class TrainingRecipe(Section):
    """How policies are trained, whatever their name says."""

    epochs: PositiveInt = Field(default=300, description="Passes over fresh data.")
    instances_per_epoch: PositiveInt = Field(
        default=100_000, description="Instances drawn in an epoch; the last batch is the remainder."
    )
    learning_rate: PositiveFloat = Field(default=0.0003, description="Before the first milestone.")
    weight_decay: NonNegativeFloat = Field(default=0.000001, description="On all parameters.")
    milestones: Milestones = Field(
        default=(270, 295), description="Epochs after which the learning rate is multiplied by decay, growing."
    )
    decay: PositiveFloat = Field(default=0.1, description="Factor at each milestone.")
    gradient_clip: PositiveFloat = Field(default=1.0, description="Largest global norm of the gradient.")
    decoder_ramp_epochs: PositiveInt = Field(
        default=1,
        description="Epochs over which a training from scratch turns on the decoder's residual block, if it has one: "
        "1 as published, several where an epoch has less than some 100 steps.",
    )
    starts: Starts = Field(
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
    refinement_ramp: NonNegativeFloat = Field(
        default=0.0,
        description="Mean relative gap of the best sampled tours to their refined ones at which the loss with refined "
        "tours has all the weight; it has none at twice that gap. 0 gives it all from the first refined step on, the "
        "paper's form; paradigm polar.",
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
    validation_instances: PositiveInt = Field(
        default=128, description="First instances of each validation set that are solved after an epoch."
    )
    mixed_batches: bool = Field(
        default=True, description="Whether each instance draws its own variant, or a batch one for all its instances."
    )


class StageConfig(Section):
    """One stage of a training; what it leaves out is as in the whole training."""

    name: str = Field(default="all", description="For readers, of logs and stored networks.")
    variants: Distinct[Annotated[str, Known(VARIANTS.keys)]] = Field(
        default=TRAINING_VARIANTS,
        min_length=1,
        description="What training instances are drawn from, each variant as often as the others.",
    )
    adapters: Literal["none", "single", "mixture"] = Field(
        default="none",
        description="Network trained: none the bare one, in later stages with the weights of the stage before; single "
        "the first stage's with fresh adapters, mixture the first stage's with the adapters of all stages between. "
        "Adapters belong to moses.",
    )
    paradigm: Annotated[str, Known(PARADIGMS.keys)] | None = Field(default=None, description="Training paradigm.")
    num_customers: Annotated[int, Field(ge=2, le=LARGEST_SIZE)] | None = Field(
        default=None, description="Customers of each training instance."
    )
    epochs: PositiveInt | None = Field(default=None, description="Epochs of the stage.")
    instances_per_epoch: PositiveInt | None = Field(default=None, description="Instances drawn in an epoch.")
    batch_size: PositiveInt | None = Field(default=None, description="Instances of a step.")
    starts: Starts | None = Field(default=None, description="First customers of sampled tours, or all.")
    learning_rate: PositiveFloat | None = Field(default=None, description="Before the first milestone.")
    milestones: Milestones | None = Field(default=None, description="Counted from the beginning of the stage.")
    refinement_start_epoch: NonNegativeInt | None = Field(
        default=None, description="Counted from the beginning of the stage; paradigm polar."
    )

    @property
    def own_values(self) -> dict[str, Any]:
        """What the stage changes of its training."""
        return self.model_dump(exclude={"name", "variants", "adapters"}, exclude_none=True)


def _require_curriculum(stages: tuple[StageConfig, ...]) -> tuple[StageConfig, ...]:
    if any(stage.adapters != "none" for stage in stages):
        raise ValueError("cannot have adapters, which belong to moses alone; leave adapters out")
    if stages and "variants" in stages[-1].model_fields_set:
        raise ValueError("must end with the variants of the run's name; leave variants out in the last one")
    return stages


class StudyTraining(TrainingRecipe):
    """How the policies of a study are trained, and on what."""

    protocol: Literal["authors", "paper"] = Field(
        default="authors",
        description="Baselines of the main tables are trained as their authors do, where that differs (optimiser, "
        "composition of batches, normalised rewards, temperature, learning rate), or all by the paper's protocol.",
    )
    variants: Literal["paper", "all"] = Field(
        default="paper",
        description="What the runs of the main tables are trained on: the paper's 16 variants, or all 48, which their "
        "names then say (-all).",
    )
    stages: Annotated[Several[StageConfig], AfterValidator(_require_curriculum)] = Field(
        default=(), description="Stages of every training whose backbone has none of its own, one after the other."
    )
    initial_weights: str | None = Field(
        default=None,
        description="Trained model whose weights every training goes on from: its run, a path, or a shipped model.",
    )
    instances: str | Annotated[Distinct[str], Field(min_length=1)] | None = Field(
        default=None,
        description="Instances of one's own to train on instead of drawn ones: .npz files or patterns of their names, "
        "or a generator that an installed package declares.",
    )


class InitialWeights(Section):
    """Weights that a training goes on from."""

    model: str = Field(description="Trained model: its run, a path, or a shipped model.")
    sha256: str = Field(description="Digest of its tensors.")


class TrainingInstances(Section):
    """Instances of a user's own to train on: files, or a generator."""

    files: dict[str, str] = Field(default={}, description="Sets by their paths, each with the SHA-256 of its file.")
    generator: str | None = Field(default=None, description="Name or import path of a generator.")
    sha256: str | None = Field(default=None, description="Digest of the source of the generator's module.")


class TrainConfig(TrainingRecipe):
    """One training: the recipe, and what the run's name, size and backbone add."""

    paradigm: Annotated[str, Known(PARADIGMS.keys)] = Field(description="Training paradigm.")
    num_customers: int = Field(ge=2, le=LARGEST_SIZE, description="Customers of each training instance.")
    batch_size: PositiveInt = Field(default=256, description="Instances of a step.")
    seed: NonNegativeInt = Field(default=0, description="Root of all random streams of the run.")
    optimizer: Literal["adamw", "adam"] = Field(
        default="adamw", description="adamw decouples the weight decay, adam adds it to the gradient."
    )
    normalize_rewards: bool = Field(
        default=False,
        description="Whether REINFORCE divides rewards by a running mean of their group of variants.",
    )
    initial_weights: InitialWeights | None = Field(default=None, description="Weights that the training goes on from.")
    instances: TrainingInstances | None = Field(
        default=None, description="Where instances come from; None for the built-in generator."
    )
    stages: Several[StageConfig] = Field(
        default=(StageConfig(),),
        min_length=1,
        description="One after the other, each with the values that it names and the training's others.",
    )

    @model_validator(mode="after")
    def _keys_agree(self) -> Self:
        if self.stages[0].adapters != "none":
            raise ValueError("stages must begin with a stage without adapters")
        for number, stage in enumerate(self.stages):
            if stage.own_values:
                self._require_sound_stage(number)
        several = [name for name in self.drawn_variants if VARIANTS[name].multi_depot]
        if self.refiner == "gpu" and several:
            raise ValueError(f"refiner gpu serves one depot, but {several[0]} has several; use pyvrp")
        starts = self.num_customers if self.starts == "all" else self.starts
        if starts > self.num_customers:
            raise ValueError(
                f"starts must not exceed the {self.num_customers} customers of an instance, got {starts}; write all"
            )
        if PARADIGMS[self.paradigm].refines and self.refined_tours > starts:
            raise ValueError(
                f"refined_tours must not exceed the {starts} tours of an instance, got {self.refined_tours}"
            )
        return self

    @property
    def drawn_variants(self) -> tuple[str, ...]:
        """Variants that some stage draws from, each once, in the order of stages."""
        return tuple(dict.fromkeys(name for stage in self.stages for name in stage.variants))

    @property
    def total_epochs(self) -> int:
        """Epochs of all stages together, the rows of a complete history."""
        return sum(self.stage_epochs)

    @property
    def stage_epochs(self) -> tuple[int, ...]:
        """Epochs of each stage."""
        return tuple(self.epochs if stage.epochs is None else stage.epochs for stage in self.stages)

    def for_stage(self, number: int) -> Self:
        """The values of one stage, from 0, as a training of that stage alone."""
        stage = self.stages[number]
        return self.replace(stages=(StageConfig(name=stage.name, variants=stage.variants),), **stage.own_values)

    def _require_sound_stage(self, number: int) -> None:
        """Refuse a stage whose values contradict each other, or a last one that the run's name does not tell."""
        try:
            alone = self.for_stage(number)
        except ConfigError as error:
            raise ValueError(f"stages[{number}].{error}") from error
        for key in ("num_customers", "paradigm"):
            if number == len(self.stages) - 1 and getattr(alone, key) != (wanted := getattr(self, key)):
                raise ValueError(
                    f"stages[{number}].{key} must be that of the run's name in the last stage, {wanted}; leave it out"
                )
