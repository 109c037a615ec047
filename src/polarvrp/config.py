"""Configuration as frozen dataclasses: checked once at construction, without heavy imports.

A mapping (a YAML file, a JSON spec) becomes a dataclass by ``from_mapping``; unknown keys, wrong types and
contradictory values raise ``ConfigError`` with the dotted name of the key. ``workflow/schemas/config.schema.yaml`` says
the same to Snakemake; a test keeps both equal.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from polarvrp.errors import ConfigError

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
"""Every backbone with the encoders that it exists with."""


class _Section:
    """What all sections share: construction from a mapping."""

    __slots__ = ()

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], where: str = "") -> Self:
        """Section with the values of ``mapping``; absent keys take their defaults.

        Args:
            mapping: Keys are the dataclass's fields.
            where: Dotted name of the section, for messages.

        Raises:
            ConfigError: If a key is unknown or missing, or a value has the wrong type or contradicts another.
        """
        section: Self = _build(cls, mapping, where)
        return section


# --- one network -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(_Section):
    """Which network: a backbone with an encoder.

    Attributes:
        backbone: A key of ``BACKBONES``.
        encoder: One of the encoders that the backbone exists with.
        task_experts: Task experts of a PLE layer, kappa.
    """

    backbone: str
    encoder: str
    task_experts: int = 3

    def __post_init__(self) -> None:
        if self.backbone not in BACKBONES:
            raise ConfigError(f"unknown backbone {self.backbone!r}; {_one_of(self.backbone, BACKBONES)}")
        if self.encoder not in BACKBONES[self.backbone]:
            raise ConfigError(
                f"backbone {self.backbone} has no encoder {self.encoder!r}; "
                f"{_one_of(self.encoder, BACKBONES[self.backbone])}"
            )
        _at_least("model.task_experts", self.task_experts, 1)

    def to_spec(self) -> dict[str, Any]:
        """What identifies the network: its name, and each option that differs from its default."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name in {"backbone", "encoder"} or getattr(self, field.name) != field.default
        }


# --- one training ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig(_Section):
    """How a policy is trained.

    Attributes:
        paradigm: ``rl``, ``po`` or ``polar``; from the run's name.
        num_customers: Customers of each training instance; from the run's name.
        seed: Root of all random streams of the run; from the run's name.
        epochs: Passes over fresh data.
        instances_per_epoch: Instances drawn in an epoch; the last batch is the remainder.
        batch_size: Instances of a step.
        learning_rate: Of AdamW, before the first milestone.
        weight_decay: Of AdamW, on all parameters.
        milestones: Epochs after which the learning rate is multiplied by ``decay``.
        decay: Factor at each milestone.
        gradient_clip: Largest global norm of the gradient.
        temperature: alpha of the preference loss; ``po`` and ``polar`` only.
        refined_tours: Tours of an instance that local search refines, k; ``polar`` only.
        refinement_start_epoch: Epochs strictly greater than it are refined; ``polar`` only.
        refinement_workers: Processes of the local search; no part of what identifies a run.
        precision: ``float32``, ``bfloat16``, or ``auto``: bfloat16 where the device computes it natively.
        validation_instances: First instances of each validation set that are solved after an epoch.
    """

    paradigm: str
    num_customers: int
    seed: int = 0
    epochs: int = 300
    instances_per_epoch: int = 100_000
    batch_size: int = 256
    learning_rate: float = 0.0003
    weight_decay: float = 0.000001
    milestones: tuple[int, ...] = (270, 295)
    decay: float = 0.1
    gradient_clip: float = 1.0
    temperature: float = 0.05
    refined_tours: int = 1
    refinement_start_epoch: int = 250
    refinement_workers: int = 1
    precision: Literal["float32", "bfloat16", "auto"] = "auto"
    validation_instances: int = 128

    def __post_init__(self) -> None:
        if self.paradigm not in PARADIGMS:
            raise ConfigError(f"unknown paradigm {self.paradigm!r}; {_one_of(self.paradigm, PARADIGMS)}")
        for name in ("epochs", "instances_per_epoch", "batch_size", "refined_tours", "refinement_workers"):
            _at_least(f"training.{name}", getattr(self, name), 1)
        for name in ("seed", "weight_decay", "refinement_start_epoch", "validation_instances"):
            _at_least(f"training.{name}", getattr(self, name), 0)
        for name in ("learning_rate", "decay", "gradient_clip", "temperature"):
            _above_zero(f"training.{name}", getattr(self, name))
        _at_least("number of customers", self.num_customers, 2)
        if self.refined_tours > self.num_customers:
            raise ConfigError(
                f"training.refined_tours must not exceed the {self.num_customers} tours of an instance, "
                f"got {self.refined_tours}"
            )
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ConfigError(f"training.milestones must grow, got {list(self.milestones)}; sort them")


# --- checks ----------------------------------------------------------------------------------------------------------


def _one_of(got: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    close = difflib.get_close_matches(got, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"it is one of {', '.join(known)}"


def _at_least(name: str, value: float, bound: float) -> None:
    if not value >= bound:
        raise ConfigError(f"{name} must be at least {bound}, got {value}")


def _above_zero(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise ConfigError(f"{name} must be a finite number above 0, got {value}")


def _build(cls: type[Any], mapping: Any, where: str) -> Any:
    """Dataclass ``cls`` with the values of ``mapping``, each brought to its annotated type."""
    prefix = f"{where}." if where else ""
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{where or 'configuration'} must be a section of keys, got {mapping!r}")
    hints = get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for key in mapping:
        if key not in fields:
            raise ConfigError(f"unknown key {prefix}{key}; {_one_of(str(key), tuple(fields))}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in mapping:
            raise ConfigError(f"{prefix}{name} is missing; add it")
    return cls(**{key: _convert(value, hints[key], f"{prefix}{key}") for key, value in mapping.items()})


def _convert(value: Any, annotation: Any, name: str) -> Any:
    """``value`` as ``annotation`` says, or a ``ConfigError`` that names the key."""
    origin = get_origin(annotation)
    if dataclasses.is_dataclass(annotation):
        return _build(annotation, value, name)  # type: ignore[arg-type]
    if origin is tuple:
        return _convert_sequence(value, get_args(annotation)[0], name)
    if origin is Literal:
        if value not in get_args(annotation):
            raise ConfigError(f"{name} must be one of {', '.join(map(str, get_args(annotation)))}, got {value!r}")
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(value, get_args(annotation), name)
    return _convert_scalar(value, annotation, name)


def _convert_sequence(value: Any, annotation: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{name} must be a list, got {value!r}")
    return tuple(_convert(item, annotation, f"{name}[{position}]") for position, item in enumerate(value))


def _convert_union(value: Any, annotations: tuple[Any, ...], name: str) -> Any:
    for annotation in annotations:
        try:
            return _convert(value, annotation, name)
        except ConfigError:
            continue
    raise ConfigError(f"{name} has no valid value, got {value!r}")


def _convert_scalar(value: Any, annotation: type, name: str) -> Any:
    if annotation is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, annotation) and (annotation is bool or not isinstance(value, bool)):
        return value
    hint = ""
    if annotation in (int, float) and isinstance(value, str):
        hint = "; YAML reads 3e-4 and quoted numbers as text, write 0.0003"
    wanted = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(annotation, annotation)
    raise ConfigError(f"{name} must be {wanted}, got {value!r}{hint}")
