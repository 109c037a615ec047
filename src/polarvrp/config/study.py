"""Configuration of the whole study: what ``config/`` holds, checked at construction; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from polarvrp.catalog.backbones import BACKBONES, grid_backbones
from polarvrp.catalog.experiments import tables
from polarvrp.catalog.methods import method_of
from polarvrp.config.sections import Section, above_zero, at_least, require_distinct, require_known
from polarvrp.config.training import StudyTraining
from polarvrp.errors import ConfigError
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS, ZERO_SHOT_VARIANTS

SCALES = ("quick", "paper")

GPU_DRIVER = Path("/dev/nvidiactl")
"""Exists where an NVIDIA driver is loaded; asking torch would cost seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeConfig(Section):
    """One instance size of the study and what depends on it.

    Attributes:
        num_customers: Customers of each instance.
        batch_size: Instances of a training step.
        reference_seconds: Time limit of a reference solver for one instance.
    """

    num_customers: int
    batch_size: int
    reference_seconds: float

    def __post_init__(self) -> None:
        at_least("sizes.num_customers", self.num_customers, 2)
        at_least("sizes.batch_size", self.batch_size, 1)
        above_zero("sizes.reference_seconds", self.reference_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetsConfig(Section):
    """Test and validation sets.

    Attributes:
        test_seed: Seed of every test set; 1234 gives the published ones.
        validation_seed: Seed of every validation set; 4321 gives the published ones.
        test_instances: First instances kept of each test set.
        validation_instances: First instances kept of each validation set.
    """

    test_seed: int = 1234
    validation_seed: int = 4321
    test_instances: int = 1000
    validation_instances: int = 1000

    def __post_init__(self) -> None:
        for name in ("test_seed", "validation_seed"):
            at_least(f"datasets.{name}", getattr(self, name), 0)
        for name in ("test_instances", "validation_instances"):
            at_least(f"datasets.{name}", getattr(self, name), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencesConfig(Section):
    """Reference solutions.

    Attributes:
        solvers: Solvers that are run on every test set.
        seed: Root of the solvers' seeds.
        chunk_instances: Instances of one job.
    """

    solvers: tuple[Literal["pyvrp", "ortools"], ...] = ("pyvrp", "ortools")
    seed: int = 0
    chunk_instances: int = 50

    def __post_init__(self) -> None:
        at_least("references.seed", self.seed, 0)
        at_least("references.chunk_instances", self.chunk_instances, 1)
        require_distinct("references.solvers", self.solvers)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationConfig(Section):
    """How trained policies are tested.

    Attributes:
        augmentations: Symmetric images of each instance that are solved, the instance itself included.
    """

    augmentations: int = 8

    def __post_init__(self) -> None:
        if not 1 <= self.augmentations <= 8:
            raise ConfigError(f"evaluation.augmentations must lie in 1 to 8, got {self.augmentations}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetXConfig(Section):
    """The benchmark instances of CVRPLIB's Set-X.

    Attributes:
        instances: How many, smallest first, or ``all`` 100.
        starts: First customers tried on each instance, or ``all`` customers.
    """

    instances: int | Literal["all"] = "all"
    starts: int | Literal["all"] = "all"

    def __post_init__(self) -> None:
        for name in ("instances", "starts"):
            if getattr(self, name) != "all":
                at_least(f"set_x.{name}", getattr(self, name), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepsConfig(Section):
    """Values of the swept hyper-parameters, beside their defaults.

    Attributes:
        temperature: alpha of the preference loss.
        refined_tours: k, tours of an instance that are refined.
        task_experts: kappa, task experts of a PLE layer.
        refinement_start: Last epoch without refinement; 0 refines from the first epoch on.
    """

    temperature: tuple[float, ...] = (0.01, 0.03, 0.05, 0.07, 0.09)
    refined_tours: tuple[int, ...] = (1, 2, 3, 4, 5)
    task_experts: tuple[int, ...] = (1, 2, 3, 4)
    refinement_start: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyConfig(Section):
    """The whole study.

    Attributes:
        scale: Label of all numbers; chooses ``config/scales/{scale}.yaml``.
        seeds: Root seeds of the trainings; each run is trained once a seed.
        variants: Variants of test and validation sets, or ``all`` 48.
        sizes: Instance sizes, ascending.
        transfer_size: Size of the models that zero-shot and Set-X use.
        backbones: Backbones of the main tables, each with its authors' encoder and paradigm.
        grid_backbones: Backbones of ``training_paradigms`` and ``encoder_settings``.
        experiments: Tables that target ``all`` builds.
        datasets: Test and validation sets.
        references: Reference solutions.
        training: How policies are trained, and on which variants.
        evaluation: How they are tested.
        set_x: Set-X.
        sweeps: Swept values.
    """

    scale: Literal["quick", "paper"]
    seeds: tuple[int, ...] = (0,)
    variants: tuple[str, ...] | Literal["all"] = "all"
    sizes: tuple[SizeConfig, ...]
    transfer_size: int
    backbones: tuple[str, ...]
    grid_backbones: tuple[str, ...]
    experiments: tuple[str, ...]
    datasets: DatasetsConfig = field(default_factory=DatasetsConfig)
    references: ReferencesConfig = field(default_factory=ReferencesConfig)
    training: StudyTraining = field(default_factory=StudyTraining)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    set_x: SetXConfig = field(default_factory=SetXConfig)
    sweeps: SweepsConfig = field(default_factory=SweepsConfig)

    def __post_init__(self) -> None:
        numbers = [size.num_customers for size in self.sizes]
        if not numbers or numbers != sorted(set(numbers)):
            raise ConfigError(f"sizes must be one or more, their num_customers growing, got {numbers}")
        if self.transfer_size not in numbers:
            raise ConfigError(f"transfer_size must be one of the sizes {numbers}, got {self.transfer_size}")
        if not self.seeds:
            raise ConfigError("seeds must hold at least one seed, got []; write [0]")
        if self.training.validation_instances > self.datasets.validation_instances:
            raise ConfigError(
                f"training.validation_instances is {self.training.validation_instances}, but a validation set has "
                f"{self.datasets.validation_instances} instances; raise datasets.validation_instances"
            )
        require_known("backbones", self.backbones, [name for name in BACKBONES if method_of(name)])
        require_known("grid_backbones", self.grid_backbones, grid_backbones())
        require_known("experiments", self.experiments, tables())
        require_known("variants", () if self.variants == "all" else self.variants, VARIANTS)
        if not self.training_variants:
            raise ConfigError(f"variants must hold one of the training variants {', '.join(TRAINING_VARIANTS)}")

    @property
    def training_variants(self) -> tuple[str, ...]:
        """Variants of the study that the paper's models are trained on; every training is validated on them."""
        return tuple(name for name in TRAINING_VARIANTS if self.variants == "all" or name in self.variants)

    @property
    def zero_shot_variants(self) -> tuple[str, ...]:
        """Variants of the study that the paper's models never saw in training."""
        return tuple(name for name in ZERO_SHOT_VARIANTS if self.variants == "all" or name in self.variants)

    @property
    def train_threads(self) -> int:
        """Cores of a training: its refinement workers at full scale, one for the small trainings of ``quick``."""
        return 1 if self.scale == "quick" else 16

    @property
    def gpus_per_job(self) -> int:
        """Share of the workflow's ``gpu`` limit that a training or evaluation takes.

        Without a GPU the small jobs of ``quick`` run side by side; all others go one after another.
        """
        return 0 if self.scale == "quick" and not GPU_DRIVER.exists() else 1
