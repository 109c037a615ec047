"""Names of runs: one string names one trained model in paths, tables and trackers alike."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from polarvrp.catalog.backbones import named_backbones
from polarvrp.catalog.encoders import ENCODERS
from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.errors import ConfigError, one_of

SUFFIXES = {
    "temperature": "alpha",
    "refined_tours": "k",
    "task_experts": "kappa",
    "refinement_start_epoch": "ls",
}
"""Settings that a run's name holds where they differ from the study's default, and how it writes each."""

_NUMBERS = {"temperature": r"[0-9]+(?:\.[0-9]+)?"}
_SUFFIX_PATTERN = "".join(
    f"(?:-{suffix}(?P<{setting}>{_NUMBERS.get(setting, '[0-9]+')}))?" for setting, suffix in SUFFIXES.items()
)
_RUN = re.compile(
    r"(?P<backbone>[A-Za-z0-9_.]+)-(?P<encoder>[a-z0-9_]+)-(?P<paradigm>[a-z0-9_]+)-n(?P<num_customers>\d+)"
    rf"{_SUFFIX_PATTERN}(?:-(?P<variants>all))?-s(?P<seed>\d+)"
)


def stem_pattern() -> str:
    """Regular expression of what a run's name has before its size, without capturing groups."""
    encoded = "|".join(f"{name}-(?:{'|'.join(record.encoders)})" for name, record in named_backbones().items())
    return f"(?:{encoded})-(?:{'|'.join(PARADIGMS)})"


def tail_pattern() -> str:
    """Regular expression of what a run's name has after its size, without capturing groups."""
    return re.sub(r"\(\?P<\w+>", "(?:", _SUFFIX_PATTERN) + r"(?:-all)?-s[0-9]+"


def run_pattern() -> str:
    """Regular expression of a run's whole name, without capturing groups."""
    return f"{stem_pattern()}-n[0-9]+{tail_pattern()}"


def is_run_name(name: str) -> bool:
    """Whether a run may be called so; a folder or a file of another name is none of ours."""
    return re.fullmatch(run_pattern(), name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One trained model, identified by its name.

    Attributes:
        backbone: A key of ``named_backbones()``.
        encoder: One of the backbone's, e.g. ``ple``.
        paradigm: A key of ``PARADIGMS``, e.g. ``polar``.
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
        backbones = named_backbones()
        if self.backbone not in backbones:
            raise ConfigError(f"unknown backbone {self.backbone!r}; {one_of(self.backbone, backbones)}")
        encoders = backbones[self.backbone].encoders
        if self.encoder not in encoders:
            raise ConfigError(f"{self.backbone} has no encoder {self.encoder!r}; {one_of(self.encoder, encoders)}")
        if self.paradigm not in PARADIGMS:
            raise ConfigError(f"unknown paradigm {self.paradigm!r}; {one_of(self.paradigm, PARADIGMS)}")
        read = (*PARADIGMS[self.paradigm].settings, *ENCODERS[self.encoder].settings)
        for setting, suffix in SUFFIXES.items():
            if getattr(self, setting) is not None and setting not in read:
                raise ConfigError(f"run {self.name}: -{suffix} belongs to {_owners(setting)} only; leave it out")

    @property
    def name(self) -> str:
        """The run's name, e.g. ``polarnet-ple-polar-n50-kappa2-s0``."""
        return f"{self.stem}-n{self.num_customers}{self.tail}"

    @property
    def stem(self) -> str:
        """Backbone, encoder and paradigm."""
        return f"{self.backbone}-{self.encoder}-{self.paradigm}"

    @property
    def departures(self) -> tuple[str, ...]:
        """What the name says of settings off their defaults, e.g. ``("kappa2",)``."""
        values = {suffix: getattr(self, setting) for setting, suffix in SUFFIXES.items()}
        swept = tuple(f"{suffix}{_digits(value)}" for suffix, value in values.items() if value is not None)
        return swept if self.variants is None else (*swept, self.variants)

    @property
    def tail(self) -> str:
        """Ablation suffixes and seed."""
        return "".join(f"-{word}" for word in (*self.departures, f"s{self.seed}"))

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


def _owners(setting: str) -> str:
    """The paradigms or the encoders that read a setting, for messages."""
    for kind, records in (("paradigm", PARADIGMS), ("encoder", ENCODERS)):
        names = [name for name, record in records.items() if setting in record.settings]
        if names:
            return f"{kind}{'s' if len(names) > 1 else ''} {' and '.join(names)}"
    return "no run"
