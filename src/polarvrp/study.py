"""The study: names of runs, and what the result of each job depends on.

A job's *specification* is a small JSON document of everything that changes its result: settings, the specification of
its data, and a version of the code that is bumped by hand when that code's numbers change. Workflow rules carry it as
their one parameter, results embed its fingerprint. Nothing heavy is imported here: the workflow reads this module at
parse time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from polarvrp.config import PARADIGMS, ModelConfig, StageConfig, TrainConfig, TrainingRecipe, named_backbones
from polarvrp.errors import ConfigError
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS
from polarvrp.recipes import recipe_of
from polarvrp.sections import merge, one_of, read_yaml
from polarvrp.study_config import SCALES, SizeConfig, StudyConfig

# Bump one of these when the code it names computes other numbers: its jobs, and those that use them, run again.
DATASET_CODE_VERSION = 1
REFERENCE_CODE_VERSION = 1
TRAIN_CODE_VERSION = 2
EVALUATION_CODE_VERSION = 1
TABLE_CODE_VERSION = 1

Spec = dict[str, Any]

_BACKBONES = named_backbones()
_ENCODED = "|".join(f"{name}-(?:{'|'.join(encoders)})" for name, encoders in _BACKBONES.items())
STEM_PATTERN = f"(?:{_ENCODED})-(?:{'|'.join(PARADIGMS)})"
"""Regular expression of what a run's name has before its size, without capturing groups."""

TAIL_PATTERN = r"(?:-alpha[0-9.]+)?(?:-k[0-9]+)?(?:-kappa[0-9]+)?(?:-ls[0-9]+)?(?:-all)?-s[0-9]+"
"""Regular expression of what a run's name has after its size."""

RUN_PATTERN = f"{STEM_PATTERN}-n[0-9]+{TAIL_PATTERN}"

_RUN = re.compile(
    r"(?P<backbone>[A-Za-z0-9_.]+)-(?P<encoder>[a-z]+)-(?P<paradigm>[a-z]+)-n(?P<num_customers>\d+)"
    r"(?:-alpha(?P<temperature>\d+(?:\.\d+)?))?(?:-k(?P<refined_tours>\d+))?(?:-kappa(?P<task_experts>\d+))?"
    r"(?:-ls(?P<refinement_start_epoch>\d+))?(?:-(?P<variants>all))?-s(?P<seed>\d+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One trained model, identified by its name.

    Attributes:
        backbone: A key of ``config.named_backbones()``.
        encoder: ``shared``, ``deep`` or ``ple``.
        paradigm: ``rl``, ``po`` or ``polar``.
        num_customers: Size of its training instances.
        temperature: alpha where it differs from the study's default, else None; likewise the three below.
        refined_tours: k.
        task_experts: kappa.
        refinement_start_epoch: Last epoch without refinement.
        variants: ``all`` where it is trained on all 48 variants, None for the paper's 16.
        seed: Root seed of the training.
    """

    backbone: str
    encoder: str
    paradigm: str
    num_customers: int
    temperature: float | None = None
    refined_tours: int | None = None
    task_experts: int | None = None
    refinement_start_epoch: int | None = None
    variants: Literal["all"] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.backbone not in _BACKBONES:
            raise ConfigError(f"unknown backbone {self.backbone!r}; {one_of(self.backbone, _BACKBONES)}")
        if self.encoder not in _BACKBONES[self.backbone]:
            known = _BACKBONES[self.backbone]
            raise ConfigError(f"{self.backbone} has no encoder {self.encoder!r}; {one_of(self.encoder, known)}")
        if self.paradigm not in PARADIGMS:
            raise ConfigError(f"unknown paradigm {self.paradigm!r}; {one_of(self.paradigm, PARADIGMS)}")
        for value, suffix, applies, owner in (
            (self.temperature, "-alpha", self.paradigm != "rl", "paradigms po and polar"),
            (self.refined_tours, "-k", self.paradigm == "polar", "paradigm polar"),
            (self.task_experts, "-kappa", self.encoder == "ple", "encoder ple"),
            (self.refinement_start_epoch, "-ls", self.paradigm == "polar", "paradigm polar"),
        ):
            if value is not None and not applies:
                raise ConfigError(f"run {self.name}: {suffix} belongs to {owner} only; leave it out")

    @property
    def name(self) -> str:
        """The run's name, e.g. ``polarnet-ple-polar-n50-kappa2-s0``."""
        return f"{self.stem}-n{self.num_customers}{self.tail}"

    @property
    def stem(self) -> str:
        """Backbone, encoder and paradigm."""
        return f"{self.backbone}-{self.encoder}-{self.paradigm}"

    @property
    def tail(self) -> str:
        """Ablation suffixes and seed."""
        suffixes = (
            ("-alpha", self.temperature),
            ("-k", self.refined_tours),
            ("-kappa", self.task_experts),
            ("-ls", self.refinement_start_epoch),
        )
        values = "".join(f"{key}{_digits(value)}" for key, value in suffixes if value is not None)
        return f"{values}{'' if self.variants is None else f'-{self.variants}'}-s{self.seed}"

    @property
    def method(self) -> str:
        """The name without the size, so that both sizes share a row in tables."""
        return f"{self.stem}{self.tail}"


def parse_run(name: str) -> RunSpec:
    """Run of that name.

    Raises:
        ConfigError: If no run can have that name.
    """
    match = _RUN.fullmatch(name)
    if match is None:
        hint = f"did you mean {name}-s0?" if _RUN.fullmatch(f"{name}-s0") else "e.g. polarnet-ple-polar-n50-s0"
        raise ConfigError(f"{name!r} names no run; a name is BACKBONE-ENCODER-PARADIGM-nSIZE[-ablation]-sSEED, {hint}")
    words = {key: text for key, text in match.groupdict().items() if text is not None}
    texts = {"backbone", "encoder", "paradigm", "variants"}
    values = {key: text if key in texts else _number(text) for key, text in words.items()}
    run = RunSpec(**values)  # type: ignore[arg-type]
    if run.name != name:
        raise ConfigError(f"{name!r} names no run; write it {run.name}")
    return run


def _digits(value: float) -> str:
    """All digits of a number that names a run, never in scientific notation: 0.00001, 0.03, 10."""
    return f"{Decimal(repr(value)).normalize():f}"


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


def ablation_defaults(study: StudyConfig) -> dict[str, float]:
    """Value of each swept setting in runs whose name has no suffix for it."""
    return {
        "temperature": study.training.temperature,
        "refined_tours": study.training.refined_tours,
        "task_experts": ModelConfig().task_experts,
        "refinement_start_epoch": study.training.refinement_start_epoch,
    }


def canonical(spec: Mapping[str, Any]) -> str:
    """The one text of a specification, whatever the order of its keys."""
    return json.dumps(spec, sort_keys=True, allow_nan=False)


def fingerprint(spec: Mapping[str, Any]) -> str:
    """Short name of a specification: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(canonical(spec).encode()).hexdigest()[:16]


def size_config(study: StudyConfig, num_customers: int) -> SizeConfig:
    """Settings of a size; one that the study does not name takes those of the next smaller one that it names."""
    below = [size for size in study.sizes if size.num_customers <= num_customers]
    return below[-1] if below else study.sizes[0]


def dataset_spec(study: StudyConfig, split: str, variant: str, num_customers: int) -> Spec:
    """What the instances of one file depend on."""
    return {"variant": variant, "num_customers": num_customers, **_draw(study, split)}


def _draw(study: StudyConfig, split: str) -> Spec:
    seed, instances = (getattr(study.datasets, f"{split}_{key}") for key in ("seed", "instances"))
    return {"code": DATASET_CODE_VERSION, "seed": seed, "instances": instances}


def chunk_starts(study: StudyConfig, split: str) -> range:
    """First instance of each job that solves a part of a set."""
    return range(0, getattr(study.datasets, f"{split}_instances"), study.references.chunk_instances)


def reference_spec(study: StudyConfig, split: str, solver: str, variant: str, num_customers: int) -> Spec:
    """What a solver's solutions of one file depend on."""
    return {
        "code": REFERENCE_CODE_VERSION,
        "solver": solver,
        "seconds": size_config(study, num_customers).reference_seconds,
        "seed": study.references.seed,
        "dataset": dataset_spec(study, split, variant, num_customers),
    }


def train_spec(study: StudyConfig, run: RunSpec) -> Spec:
    """What a trained policy depends on; settings that its paradigm or encoder never reads are left out.

    Raises:
        ConfigError: If a suffix of the run's name repeats the study's default, so that one model would have two names.
    """
    recipe = recipe_of(run.backbone, run.num_customers)
    defaults = {key: recipe.get(key, value) for key, value in ablation_defaults(study).items()}
    values = {key: value if getattr(run, key) is None else getattr(run, key) for key, value in defaults.items()}
    for key, default in defaults.items():
        if getattr(run, key) == default:
            raise ConfigError(f"run {run.name}: {key} is {default:g} without a suffix; leave it out of the name")
    size = size_config(study, run.num_customers)
    protocol = {field.name: getattr(study.training, field.name) for field in dataclasses.fields(TrainingRecipe)}
    training: Spec = {
        **protocol,
        **recipe,
        "paradigm": run.paradigm,
        "num_customers": run.num_customers,
        "batch_size": size.batch_size,
        "seed": run.seed,
        **{key: getattr(run, key) for key in defaults if key in protocol and getattr(run, key) is not None},
    }
    if run.variants == "all":
        stages = recipe.get("stages", ({"name": StageConfig().name},))
        training["stages"] = [{"variants": tuple(VARIANTS), **stage} for stage in stages]
    if run.paradigm != "rl":
        training.pop("normalize_rewards", None)
    unread = {"rl": 3, "po": 2, "polar": 0}[run.paradigm]
    for key in ("refined_tours", "refinement_start_epoch", "temperature")[:unread]:
        del training[key]
    if run.paradigm != "polar" or training["refiner"] == TrainingRecipe().refiner:
        del training["refiner"]
    model: Spec = {"backbone": run.backbone, "encoder": run.encoder, "num_customers": run.num_customers}
    if run.encoder == "ple":
        model["task_experts"] = values["task_experts"]
    validation = _draw(study, "validation")
    if study.training_variants != TRAINING_VARIANTS:
        validation["variants"] = list(study.training_variants)
    spec = {
        "code": TRAIN_CODE_VERSION,
        "model": model,
        "training": training | {"milestones": list(study.training.milestones)},
        "validation": validation,
    }
    parse_train_spec(spec)
    return spec


def parse_train_spec(spec: Mapping[str, Any]) -> tuple[ModelConfig, TrainConfig]:
    """Network and training that a specification of ``train_spec`` describes.

    Raises:
        ConfigError: If it has an unknown key or a value out of bounds.
    """
    for key in ("model", "training"):
        if key not in spec:
            raise ConfigError(f"a training's specification needs {key!r}, got only {', '.join(spec)}")
    return ModelConfig.from_mapping(spec["model"], "model"), TrainConfig.from_mapping(spec["training"], "training")


def trained_on(config: TrainConfig) -> Literal["all"] | None:
    """What the last stage of a training draws from, as a run's name says it.

    Raises:
        ConfigError: If no name says it: neither all variants nor some of the paper's 16.
    """
    variants = config.stages[-1].variants
    if set(variants) == set(VARIANTS):
        return "all"
    unseen = [name for name in variants if name not in TRAINING_VARIANTS]
    if unseen:
        raise ConfigError(
            f"a run is named after the {len(TRAINING_VARIANTS)} variants of the paper or, with -all, all "
            f"{len(VARIANTS)}; this one also trains on {', '.join(unseen)} but not on all"
        )
    return None


def evaluation_spec(study: StudyConfig, run: RunSpec) -> Spec:
    """What a run's costs on the test sets depend on."""
    return {
        "code": EVALUATION_CODE_VERSION,
        "augmentations": study.evaluation.augmentations,
        "train": fingerprint(train_spec(study, run)),
        "test": _draw(study, "test"),
    }


def set_x_spec(study: StudyConfig, run: RunSpec) -> Spec:
    """What a run's costs on Set-X depend on."""
    return {
        "code": EVALUATION_CODE_VERSION,
        "augmentations": study.evaluation.augmentations,
        "instances": study.set_x.instances,
        "starts": study.set_x.starts,
        "train": fingerprint(train_spec(study, run)),
    }


def table_spec(study: StudyConfig, table: str, runs: Iterable[RunSpec]) -> Spec:
    """What a table depends on beside the files that it reads."""
    return {"code": TABLE_CODE_VERSION, "table": table, "scale": study.scale, "runs": [run.name for run in runs]}


def scale_file(config: Mapping[str, Any]) -> str:
    """Path of the scale's file, below the folder of ``config.yaml``.

    Raises:
        ConfigError: If there is no such scale.
    """
    scale = config.get("scale")
    if scale not in SCALES:
        raise ConfigError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    return f"scales/{scale}.yaml"


def load_study(overrides: Path | None = None, folder: Path = Path("config")) -> StudyConfig:
    """The study of the configuration files, merged as the workflow merges them.

    Args:
        overrides: A user's own file; its values win over both others, and its ``scale`` chooses the second.
        folder: Holds ``config.yaml`` and ``scales/``.

    Raises:
        ConfigError: If a file is missing or no YAML mapping, or a value is unknown, missing or contradictory.
    """
    own = {} if overrides is None else read_yaml(overrides)
    config = merge(read_yaml(folder / "config.yaml"), own)
    return StudyConfig.from_mapping(merge(merge(config, read_yaml(folder / scale_file(config))), own))
