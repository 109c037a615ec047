"""What a run is trained by, from configuration files or as JSON: options that commands share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polarvrp.errors import ConfigError

if TYPE_CHECKING:
    from polarvrp.config.study import StudyConfig
    from polarvrp.study.runs import RunSpec


def add_specification_arguments(parser: argparse.ArgumentParser) -> None:
    """A configuration of the user's own, or a whole specification."""
    from polarvrp.catalog.scales import SCALES

    parser.add_argument("--configfile", type=Path, help="your own configuration, merged over config/")
    parser.add_argument("--scale", choices=SCALES, help="study of that scale (default: the one that the files name)")
    parser.add_argument("--spec", help="specification of the run as JSON instead of configuration files")


def read_specification(options: argparse.Namespace, run: RunSpec) -> tuple[dict[str, Any], StudyConfig | None]:
    """Specification of a run, and the study that it comes from, None where it was given as JSON.

    Raises:
        ConfigError: If it is unreadable, or trains something else than the run's name says.
    """
    from polarvrp.config.loading import load_study
    from polarvrp.study.layout import Layout
    from polarvrp.study.specs import train_spec

    if options.spec is None:
        study = load_study(options.configfile, scale=options.scale)
        return train_spec(study, run, Layout(options.results) if options.results else None), study
    for option in ("configfile", "scale"):
        if getattr(options, option) is not None:
            raise ConfigError(f"give either --{option} or --spec, not both")
    spec = _parse_json(options.spec)
    _require_same_run(run, spec)
    return spec, None


def _require_same_run(run: RunSpec, spec: Mapping[str, Any]) -> None:
    """Refuse a specification that trains something else than the run's name says."""
    from polarvrp.study.runs import SUFFIXES
    from polarvrp.study.specs import parse_train_spec, trained_on

    model, training = parse_train_spec(spec)
    found = {"backbone": model.backbone, "encoder": model.encoder, "task_experts": model.task_experts}
    of_training = ("paradigm", "num_customers", "seed", *(name for name in SUFFIXES if name not in found))
    found |= {name: getattr(training, name) for name in of_training} | {"variants": trained_on(training)}
    for name, value in found.items():
        wanted = getattr(run, name)
        is_said = name not in SUFFIXES or wanted is not None  # a name without a suffix does not tell the default
        if is_said and value != wanted:
            got, asked = ("of the paper" if one is None else one for one in (value, wanted))
            raise ConfigError(f"run {run.name} has {name} {asked}, its specification {got}")


def _parse_json(text: str) -> dict[str, Any]:
    try:
        spec = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--spec is no JSON: {error}") from error
    if not isinstance(spec, dict):
        raise ConfigError(f"--spec must be a JSON object, got {type(spec).__name__}")
    return spec


def _refuse_constant(name: str) -> float:
    """JSON has no NaN and no infinity; Python's reader does."""
    raise ValueError(f"{name} is no number")
