"""Configuration of the whole study: what ``config/`` holds; imports nothing heavy."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from polarvrp.catalog.backbones import BACKBONES, grid_backbones, named_backbones
from polarvrp.catalog.encoders import ENCODERS
from polarvrp.catalog.experiments import tables
from polarvrp.catalog.methods import (
    EXTERNAL,
    PUBLISHED_SEED,
    PUBLISHED_SIZES,
    SOLVERS,
    Method,
    method_of,
    published_method,
)
from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.catalog.scales import SCALES, ScaleName
from polarvrp.config.base import Distinct, Known, Section, Several
from polarvrp.config.training import StudyTraining
from polarvrp.errors import one_of
from polarvrp.problem.symmetries import NUM_SYMMETRIES
from polarvrp.problem.variants import LARGEST_SIZE, TRAINING_VARIANTS, VARIANTS, ZERO_SHOT_VARIANTS


def _compared_backbones() -> list[str]:
    """Backbones that are trained as their authors published them."""
    return [name for name in BACKBONES if method_of(name)]


VariantName = Annotated[str, Known(VARIANTS.keys)]
Solver = Annotated[str, Known(lambda: SOLVERS)]
ComparedBackbone = Annotated[str, Known(_compared_backbones)]
GridBackbone = Annotated[str, Known(grid_backbones)]
TableName = Annotated[str, Known(tables)]


class OwnRow(Section):
    """A row of the user's own in the main tables."""

    name: Annotated[str, Known(named_backbones)] = Field(
        description="Backbone: a built-in one, or one that an installed package declares."
    )
    encoder: Annotated[str, Known(ENCODERS.keys)] = Field(description="Its encoder.")
    paradigm: Annotated[str, Known(PARADIGMS.keys)] = Field(description="How it is trained.")
    label: str = Field(min_length=1, description="As tables and figures print it.")

    @model_validator(mode="after")
    def _backbone_has_encoder(self) -> Self:
        encoders = named_backbones()[self.name].encoders
        if self.encoder not in encoders:
            raise ValueError(f"encoder is {self.encoder!r}, which {self.name} lacks; {one_of(self.encoder, encoders)}")
        return self

    @property
    def method(self) -> Method:
        """The row as a record of the catalog."""
        return Method(label=self.label, backbone=self.name, encoder=self.encoder, paradigm=self.paradigm)


def _require_plain(name: str) -> str:
    """A name without hyphens, which end in seeds elsewhere."""
    if not re.fullmatch(r"[A-Za-z0-9_.]+", name):
        raise ValueError(f"must hold letters, digits, points and underscores only, got {name!r}")
    return name


class ExternalMethod(Section):
    """A method of others whose imported solutions are a row of the main tables."""

    name: Annotated[str, AfterValidator(_require_plain)] = Field(
        description="In tables external- and this; letters, digits, points, underscores."
    )
    label: str = Field(min_length=1, description="As tables and figures print it.")
    files: Distinct[str] = Field(
        min_length=1, description="Files of polarvrp import, or patterns of their names; each says what it solves."
    )

    @property
    def method(self) -> str:
        """Its name in tables."""
        return f"{EXTERNAL}{self.name}"


class SizeConfig(Section):
    """One instance size of the study and what depends on it."""

    num_customers: int = Field(ge=2, le=LARGEST_SIZE, description="Customers of each instance.")
    batch_size: PositiveInt = Field(description="Instances of a training step.")
    reference_seconds: PositiveFloat = Field(
        description="Time limit of a reference solver for one instance, in seconds."
    )


class DatasetsConfig(Section):
    """Test and validation sets."""

    test_seed: NonNegativeInt = Field(
        default=1234, description="Seed of every test set; 1234 gives the published ones."
    )
    validation_seed: NonNegativeInt = Field(
        default=4321, description="Seed of every validation set; 4321 gives the published ones."
    )
    test_instances: PositiveInt = Field(default=1000, description="First instances kept of each test set.")
    validation_instances: PositiveInt = Field(default=1000, description="First instances kept of each validation set.")


class ReferencesConfig(Section):
    """Reference solutions."""

    solvers: Distinct[Solver] = Field(
        default=SOLVERS,
        description="Solvers that are run on every test set; none leaves the published costs only.",
    )
    seed: NonNegativeInt = Field(default=0, description="Root of the solvers' seeds.")
    chunk_instances: PositiveInt = Field(default=50, description="Instances of one job.")


class EvaluationConfig(Section):
    """How trained policies are tested."""

    augmentations: int = Field(
        default=NUM_SYMMETRIES,
        ge=1,
        le=NUM_SYMMETRIES,
        description="Symmetric images of each instance that are solved, the instance itself included.",
    )
    mask_unseen_flags: bool | Literal["both"] = Field(
        default=False,
        description="Whether the networks are not told of mixed backhauls and several depots, which they never saw; "
        "both evaluates the networks that have such flags with and without them.",
    )
    mb_sets_b: bool = Field(
        default=True,
        description="Whether mixed backhauls set flag B beside MB, as in the published tests, or MB alone.",
    )


class SetXConfig(Section):
    """The benchmark instances of CVRPLIB's Set-X."""

    instances: PositiveInt | Literal["all"] = Field(default="all", description="How many, smallest first, or all 100.")
    starts: PositiveInt | Literal["all"] = Field(
        default="all", description="First customers tried on each instance, or all customers."
    )


class SweepsConfig(Section):
    """Values of the swept hyper-parameters, beside their defaults."""

    temperature: Distinct[PositiveFloat] = Field(
        default=(0.01, 0.03, 0.05, 0.07, 0.09), description="alpha of the preference loss."
    )
    refined_tours: Distinct[PositiveInt] = Field(
        default=(1, 2, 3, 4, 5), description="k, tours of an instance that are refined."
    )
    task_experts: Distinct[PositiveInt] = Field(default=(1, 2, 3, 4), description="kappa, task experts of a PLE layer.")
    refinement_start: Distinct[NonNegativeInt] = Field(
        default=(0,), description="Last epoch without refinement; 0 refines from the first epoch on."
    )


class SolveConfig(Section):
    """A folder of one's own files, which the target solve works through."""

    folder: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Folder of the files, subfolders included; none by default."
    )
    model: str | None = Field(
        default=None,
        description="Model that builds the tours PyVRP starts from: a run, a path, a shipped model, or none; null for "
        "the shipped one whose size is nearest.",
    )
    seconds: PositiveFloat = Field(default=10.0, description="Wall-clock limit of each file, in seconds.")


class StudyConfig(Section):
    """What is trained, tested and compared."""

    scale: ScaleName = Field(description="Label of all numbers; chooses config/scales/{scale}.yaml.")
    seeds: Distinct[NonNegativeInt] = Field(
        default=(0,), min_length=1, description="Root seeds of the trainings; each run is trained once a seed."
    )
    variants: Distinct[VariantName] | Literal["all"] = Field(
        default="all", description="Variants of test and validation sets, or all 48."
    )
    sizes: Several[SizeConfig] = Field(min_length=1, description="Instance sizes, ascending, and what depends on them.")
    transfer_size: int = Field(
        ge=2, description="Size of the models that zero-shot and Set-X use, in customers; one of the sizes."
    )
    backbones: Distinct[ComparedBackbone | OwnRow] = Field(
        description="Rows of the main tables: backbones with their authors' encoder and paradigm, or rows of one's own."
    )
    external_methods: Several[ExternalMethod] = Field(
        default=(), description="Methods of others whose imported solutions the main tables list."
    )
    grid_backbones: Distinct[GridBackbone] = Field(description="Backbones of training_paradigms and encoder_settings.")
    experiments: Distinct[TableName] = Field(description="Tables that target all builds.")
    datasets: DatasetsConfig = Field(default=DatasetsConfig(), description="Test and validation sets.")
    references: ReferencesConfig = Field(default=ReferencesConfig(), description="Reference solutions.")
    training: StudyTraining = Field(
        default=StudyTraining(), description="How policies are trained, and on which variants."
    )
    evaluation: EvaluationConfig = Field(default=EvaluationConfig(), description="How trained policies are tested.")
    set_x: SetXConfig = Field(default=SetXConfig(), description="The benchmark instances of CVRPLIB's Set-X.")
    sweeps: SweepsConfig = Field(
        default=SweepsConfig(), description="Values of the swept hyper-parameters, beside their defaults."
    )
    solve: SolveConfig = Field(
        default=SolveConfig(), description="A folder of one's own files, which the target solve works through."
    )

    @model_validator(mode="after")
    def _keys_agree(self) -> Self:
        numbers = [size.num_customers for size in self.sizes]
        if numbers != sorted(set(numbers)):
            raise ValueError(f"sizes must have growing num_customers, got {numbers}")
        if self.transfer_size not in numbers:
            raise ValueError(f"transfer_size must be one of the sizes {numbers}, got {self.transfer_size}")
        if self.training.validation_instances > self.datasets.validation_instances:
            raise ValueError(
                f"training.validation_instances is {self.training.validation_instances}, but a validation set has "
                f"{self.datasets.validation_instances} instances; raise datasets.validation_instances"
            )
        for key in ("stem", "label"):
            values = [getattr(method, key) for method in self.methods]
            twice = next((value for value in values if values.count(value) > 1), None)
            if twice is not None:
                raise ValueError(f"backbones holds two rows of {key} {twice!r}; drop or rename one")
        for key in ("name", "label"):
            taken = [getattr(method, key) for method in self.external_methods]
            taken += [method.label for method in self.methods] if key == "label" else []
            twice = next((value for value in taken if taken.count(value) > 1), None)
            if twice is not None:
                raise ValueError(f"external_methods repeats the {key} {twice!r}; rename one")
        if not self.training_variants:
            raise ValueError(f"variants must hold one of the training variants {', '.join(TRAINING_VARIANTS)}")
        return self

    @property
    def methods(self) -> tuple[Method, ...]:
        """Trained methods of the main tables, a row each."""
        return tuple(row.method if isinstance(row, OwnRow) else published_method(row) for row in self.backbones)

    @property
    def solved_sizes(self) -> tuple[int, ...]:
        """Sizes whose references must be solved, since no published solution is of the study's test sets."""
        published = PUBLISHED_SIZES if self.datasets.test_seed == PUBLISHED_SEED else ()
        return tuple(size.num_customers for size in self.sizes if size.num_customers not in published)

    @property
    def reference_sizes(self) -> tuple[int, ...]:
        """Sizes whose references are solved, whether or not a table needs them."""
        everywhere = SCALES[self.scale].solves_everywhere
        return tuple(size.num_customers for size in self.sizes) if everywhere else self.solved_sizes

    @property
    def training_variants(self) -> tuple[str, ...]:
        """Variants of the study that the paper's models are trained on; every training is validated on them."""
        return tuple(name for name in TRAINING_VARIANTS if self.variants == "all" or name in self.variants)

    @property
    def zero_shot_variants(self) -> tuple[str, ...]:
        """Variants of the study that the paper's models never saw in training."""
        return tuple(name for name in ZERO_SHOT_VARIANTS if self.variants == "all" or name in self.variants)
