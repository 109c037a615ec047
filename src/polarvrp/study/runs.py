"""Names of runs: one string names one trained model in paths, tables and trackers alike."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from polarvrp.catalog.backbones import named_backbones
from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.config.sections import one_of
from polarvrp.errors import ConfigError

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
