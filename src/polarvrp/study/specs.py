"""Specifications: what the result of each job of a study depends on.

A job's *specification* is a small JSON document of everything that changes its result: settings, the specification of
its data, and a version of the code that is bumped by hand when that code's numbers change. Workflow rules carry it as
their one parameter, results embed its fingerprint. Nothing heavy is imported here: the workflow reads this module at
parse time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from polarvrp.catalog.encoders import ENCODERS
from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.catalog.limits import LIMITED_INSTANCES
from polarvrp.catalog.paradigms import unread_settings
from polarvrp.config.architectures import ramps_decoder
from polarvrp.config.model import ModelConfig
from polarvrp.config.recipes import recipe_of
from polarvrp.config.study import EvaluationConfig, SizeConfig, StudyConfig
from polarvrp.config.training import StageConfig, TrainConfig, TrainingRecipe
from polarvrp.errors import ConfigError, DataError
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS
from polarvrp.study.instances import instances_spec
from polarvrp.study.layout import Layout, unseen_protocols
from polarvrp.study.runs import SUFFIXES, RunSpec
from polarvrp.study.shipped import (
    WEIGHTS,
    shipped_folder,
    shipped_models,
    shipped_name,
    shipped_size,
    solutions_digest,
)
from polarvrp.study.weights import find_weights, weights_digest

# Bump one of these when the code it names computes other numbers, or draws them otherwise: its jobs, and those that use
# them, run again.
DATASET_CODE_VERSION = 1
REFERENCE_CODE_VERSION = 1
TRAIN_CODE_VERSION = 4
EVALUATION_CODE_VERSION = 2
ANALYSIS_CODE_VERSION = 1
TABLE_CODE_VERSION = 4
FIGURE_CODE_VERSION = 1

PROTOCOLS = unseen_protocols(masked=False)
"""Rules that unseen variants are solved by, each from the same trained policies."""

ABSENT_AT_DEFAULT = ("refiner", "starts", "refinement_ramp", "decoder_ramp_epochs", "mixed_batches")
"""Settings of a training that specifications leave out at their defaults, so that a new one retrains nothing."""

Spec = dict[str, Any]


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


def limited_spec(study: StudyConfig, solver: str, part: float, variant: str, num_customers: int) -> Spec:
    """What a solver's solutions in a part of its time limit depend on."""
    whole = reference_spec(study, "test", solver, variant, num_customers)
    return whole | {"seconds": part * whole["seconds"], "first": limited_instances(study)}


def limited_instances(study: StudyConfig) -> int:
    """First instances of a test set that are solved in a part of the time limit."""
    return min(LIMITED_INSTANCES, study.datasets.test_instances)


def initial_weights_spec(study: StudyConfig, results: Layout | None = None) -> Spec | None:
    """The model that every training goes on from, with the digest of its tensors; ``None`` without one.

    Raises:
        DataError: If it does not exist or is damaged.
    """
    model = study.training.initial_weights
    if model is None:
        return None
    try:
        return {"model": model, "sha256": weights_digest(find_weights(model, results or Layout.of_scale(study.scale)))}
    except DataError as error:
        raise DataError(f"training.initial_weights: {error}") from error


def require_other_weights(study: StudyConfig, run: RunSpec) -> None:
    """A run of the workflow goes on from no weights of its own, which the workflow removes before it trains the run.

    Raises:
        ConfigError: If it would.
        DataError: If there are no such weights.
    """
    model, layout = study.training.initial_weights, Layout.of_scale(study.scale)
    if model is not None and find_weights(model, layout).resolve() == layout.weights(run.name).resolve():
        raise ConfigError(
            f"run {run.name}: training.initial_weights are its own, whose place its training takes; train another "
            "seed, or name a copy elsewhere"
        )


def train_spec(study: StudyConfig, run: RunSpec, results: Layout | None = None) -> Spec:
    """What a trained policy depends on; settings that its paradigm or encoder never reads are left out.

    Args:
        study: The study.
        run: The run.
        results: Where initial weights are looked for by their run, the scale's folder if None.

    Raises:
        ConfigError: If a suffix of the run's name repeats the study's default, so that one model would have two names,
            a stage sets what a suffix says, or the recipe of the backbone's authors would override a value that the
            study changed.
        DataError: If the initial weights do not exist.
    """
    recipe = recipe_of(run.backbone, run.num_customers, study.training.protocol)
    _require_agreement(study, run, recipe)
    defaults = {key: recipe.get(key, value) for key, value in ablation_defaults(study).items()}
    values = {key: value if getattr(run, key) is None else getattr(run, key) for key, value in defaults.items()}
    for key, default in defaults.items():
        if getattr(run, key) == default:
            raise ConfigError(f"run {run.name}: {key} is {default:g} without a suffix; leave it out of the name")
    size = size_config(study, run.num_customers)
    protocol = {name: getattr(study.training, name) for name in TrainingRecipe.model_fields}
    training: Spec = {
        **protocol,
        **recipe,
        "paradigm": run.paradigm,
        "num_customers": run.num_customers,
        "batch_size": size.batch_size,
        "seed": run.seed,
        **{key: getattr(run, key) for key in defaults if key in protocol and getattr(run, key) is not None},
    }
    stages = list(recipe.get("stages", [_changes(stage, run) for stage in study.training.stages]))
    if run.variants == "all":
        stages = [{"variants": tuple(VARIANTS), **stage} for stage in stages or [{"name": StageConfig().name}]]
    _require_read(run, stages)
    if stages not in ([], [{}]):
        training["stages"] = stages
    if study.training.initial_weights is not None:
        training["initial_weights"] = initial_weights_spec(study, results)
    if study.training.instances is not None:
        training["instances"] = instances_spec(study.training.instances)
    for key in unread_settings({stage.get("paradigm", run.paradigm) for stage in stages or [{}]}):
        training.pop(key, None)
    network = _network(run, values)
    if study.training.initial_weights is not None or not ramps_decoder(ModelConfig.from_mapping(network, "model")):
        training.pop("decoder_ramp_epochs", None)
    usual = TrainingRecipe()
    for key in ABSENT_AT_DEFAULT:
        if key in training and training[key] == getattr(usual, key):
            del training[key]
    validation = _draw(study, "validation")
    if study.training_variants != TRAINING_VARIANTS:
        validation["variants"] = list(study.training_variants)
    spec = {
        "code": TRAIN_CODE_VERSION,
        "model": network,
        "training": training | {"milestones": list(study.training.milestones)},
        "validation": validation,
    }
    parse_train_spec(spec)
    return spec


def _network(run: RunSpec, values: Mapping[str, Any]) -> Spec:
    """Network of a run, with those of its swept values that its encoder reads."""
    network: Spec = {"backbone": run.backbone, "encoder": run.encoder, "num_customers": run.num_customers}
    if "task_experts" in ENCODERS[run.encoder].settings:
        network["task_experts"] = values["task_experts"]
    return network


def _changes(stage: StageConfig, run: RunSpec) -> Spec:
    """What a stage changes of a run's training; the paper's 16 variants are a change where the run draws from all."""
    changes = stage.model_dump(exclude_defaults=True)
    if run.variants == "all" and "variants" in stage.model_fields_set:
        changes["variants"] = stage.variants
    return changes


def _require_read(run: RunSpec, stages: Iterable[Mapping[str, Any]]) -> None:
    """No stage sets what a suffix of the run's name says, for the stage would win and the name be wrong.

    Raises:
        ConfigError: If one does.
    """
    for key, suffix in SUFFIXES.items():
        if getattr(run, key) is not None and any(key in stage for stage in stages):
            raise ConfigError(
                f"run {run.name}: training.stages set {key}, so -{suffix} would change nothing; leave it out of the "
                "name or of the stages"
            )


def _require_agreement(study: StudyConfig, run: RunSpec, recipe: Mapping[str, Any]) -> None:
    """No value of the recipe takes the place of one that the study changed from the protocol's.

    Raises:
        ConfigError: If one would; the message names both.
    """
    usual = TrainingRecipe()
    paradigms = {stage.paradigm or run.paradigm for stage in study.training.stages} or {run.paradigm}
    for key in TrainingRecipe.model_fields.keys() & recipe.keys() - set(unread_settings(paradigms)):
        ours, theirs = getattr(study.training, key), recipe[key]
        if ours not in (getattr(usual, key), theirs) and getattr(run, key, None) is None:
            raise ConfigError(
                f"training.{key} is {ours:g}, but the authors of {run.backbone} train with {theirs:g}: "
                f"leave it at {getattr(usual, key):g}, or set training.protocol: paper"
            )


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


def evaluation_spec(study: StudyConfig, run: RunSpec, split: str = "test") -> Spec:
    """What a run's costs on the sets of a split depend on."""
    return {
        "code": EVALUATION_CODE_VERSION,
        "augmentations": study.evaluation.augmentations,
        "train": fingerprint(train_spec(study, run)),
        split: _draw(study, split),
    }


def zero_shot_spec(study: StudyConfig, run: RunSpec) -> Spec:
    """What a run's costs on unseen variants depend on; flags that instances may set there are left out as published.

    Costs without flags, which a study may ask for beside them, depend on ``masked_spec``.
    """
    flags = {"mask_unseen_flags": study.evaluation.mask_unseen_flags is True, "mb_sets_b": study.evaluation.mb_sets_b}
    usual = EvaluationConfig()
    changed = {key: value for key, value in flags.items() if value != getattr(usual, key)}
    return evaluation_spec(study, run) | {"protocols": list(PROTOCOLS)} | changed


def masked_spec(study: StudyConfig, run: RunSpec) -> Spec:
    """What a run's costs on unseen variants depend on where it is not told of attributes that it never saw."""
    return zero_shot_spec(study, run) | {"mask_unseen_flags": True}


def shipped_spec(study: StudyConfig, num_customers: int) -> Spec:
    """What the costs of a shipped model on the test sets of its size depend on."""
    return {
        "code": EVALUATION_CODE_VERSION,
        "augmentations": study.evaluation.augmentations,
        "weights": _shipped_digest(num_customers),
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


def margins_spec(study: StudyConfig, run: RunSpec) -> Spec:
    """What the margins of a training depend on."""
    return {"code": ANALYSIS_CODE_VERSION, "train": fingerprint(train_spec(study, run))}


def analysis_spec(study: StudyConfig, run: RunSpec) -> Spec:
    """What an analysis of a trained model on the test sets depends on."""
    return margins_spec(study, run) | {"test": _draw(study, "test")}


def architectures_spec(study: StudyConfig) -> Spec:
    """What the sizes of all networks depend on."""
    return {"code": ANALYSIS_CODE_VERSION, "sizes": [size.num_customers for size in study.sizes]}


def table_spec(study: StudyConfig, table: str, runs: Iterable[RunSpec]) -> Spec:
    """What a table depends on beside the files that it reads; those of shipped models stand outside of the results."""
    listed = {"shipped", "set_x"}.intersection(EXPERIMENTS[table].needs)
    ships = shipped_models() if listed else []
    return {
        "code": TABLE_CODE_VERSION,
        "table": table,
        "scale": study.scale,
        "runs": [run.name for run in runs],
        "shipped": {str(size): _shipped_digest(size) for size in map(shipped_size, ships)},
        **({"shipped_solutions": {name: solutions_digest(name) for name in ships}} if ships else {}),
    }


def figure_spec(study: StudyConfig, figure: str, runs: Iterable[RunSpec]) -> Spec:
    """What a picture depends on beside the files that it reads."""
    return {
        "code": FIGURE_CODE_VERSION,
        "figure": figure,
        "scale": study.scale,
        "runs": [run.name for run in runs],
    }


def report_spec(study: StudyConfig, experiments: Iterable[str]) -> Spec:
    """What the page of all tables and figures depends on beside these."""
    return {"code": FIGURE_CODE_VERSION, "report": list(experiments), "scale": study.scale}


def _shipped_digest(num_customers: int) -> str:
    return weights_digest(shipped_folder(shipped_name(num_customers)) / WEIGHTS)
