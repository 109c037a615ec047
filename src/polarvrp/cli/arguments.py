"""Options that commands share."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from polarvrp.errors import ConfigError
from polarvrp.problem.symmetries import NUM_SYMMETRIES

if TYPE_CHECKING:
    from polarvrp.config.study import ExternalMethod
    from polarvrp.problem.library_instances import Rounding


def add_policy_arguments(parser: argparse.ArgumentParser) -> None:
    """Which trained policy, and how hard it tries."""
    parser.add_argument(
        "--model",
        required=True,
        metavar="RUN_OR_PATH",
        help="a run, its folder or its weights.safetensors, or a model that ships, e.g. pretrained-n50",
    )
    parser.add_argument(
        "--augmentations",
        type=int,
        default=NUM_SYMMETRIES,
        choices=range(1, NUM_SYMMETRIES + 1),
        help=f"symmetries (default: {NUM_SYMMETRIES})",
    )
    add_engine_argument(parser)
    parser.add_argument("--run", help="refuse weights of another run")
    parser.add_argument("--fingerprint", help="refuse weights trained by another specification")


def add_library_arguments(parser: argparse.ArgumentParser) -> None:
    """How costs of library files count, where the files do not say it."""
    from polarvrp.problem.library_instances import Rounding

    parser.add_argument(
        "--distances",
        choices=[str(rounding) for rounding in Rounding],
        help="how costs of library files count distances: nearest integer, next integer above or below, one decimal "
        "cut off, not rounded (default: the convention of the instance's set)",
    )
    parser.add_argument("--open", action="store_true", help="routes of library files end at their last customer")


def library_convention(options: argparse.Namespace) -> tuple[Rounding | None, bool]:
    """How the options say that costs count, as those who read library files take it."""
    from polarvrp.problem.library_instances import Rounding

    return None if options.distances is None else Rounding(options.distances), options.open


def refuse_library_options(options: argparse.Namespace) -> None:
    """Refuse the options of library files beside a set.

    Raises:
        ConfigError: If one is given.
    """
    if options.distances is not None or options.open:
        option = "--open" if options.distances is None else "--distances"
        raise ConfigError(f"{option} is for library files; files of solutions say what they hold")


def add_engine_argument(parser: argparse.ArgumentParser) -> None:
    """How rollouts and gradients are computed; the results are the same, the time is not."""
    parser.add_argument(
        "--engine",
        default=os.environ.get("POLARVRP_ENGINE", "auto"),
        help="auto, parallel or fused (default: $POLARVRP_ENGINE, else auto: the fastest that fits)",
    )


def add_results_arguments(parser: argparse.ArgumentParser) -> None:
    """Which results are read, and of which scale they are."""
    from polarvrp.catalog.scales import SCALES

    parser.add_argument("--results", type=Path, metavar="FOLDER", help="default: the scale's, results for most")
    parser.add_argument(
        "--scale",
        choices=SCALES,
        help="scale of the results, which tables and figures say (default: that of config/config.yaml, else quick)",
    )


def results_of(options: argparse.Namespace) -> tuple[Path, str]:
    """The folder that was named, else the scale's, and the scale.

    Raises:
        ConfigError: If none was named and ``config/config.yaml`` is of no use.
    """
    from polarvrp.config.loading import usual_scale
    from polarvrp.study.layout import Layout

    scale = options.scale or usual_scale()
    return options.results or Layout.of_scale(scale).root, scale


def add_variants_argument(parser: argparse.ArgumentParser) -> None:
    """Which variants are looked at."""
    parser.add_argument("--variants", nargs="+", metavar="V", help="only these variants; default: all that were solved")


def chosen_variants(options: argparse.Namespace) -> tuple[str, ...] | None:
    """The variants of ``--variants``, None for all.

    Raises:
        ConfigError: If one does not exist.
    """
    from polarvrp.problem.variants import parse_variant

    return None if options.variants is None else tuple(parse_variant(name).name for name in options.variants)


def add_labels_argument(parser: argparse.ArgumentParser) -> None:
    """How methods of the study's own are printed."""
    parser.add_argument(
        "--labels",
        type=_labels,
        default={},
        metavar="JSON",
        help='label of each compared method that the catalog lacks, e.g. \'{"cada-shared-po": "CaDA with PO"}\'',
    )


def add_external_argument(parser: argparse.ArgumentParser) -> None:
    """Which imported solutions are rows of the main tables."""
    parser.add_argument(
        "--external",
        default="[]",
        metavar="JSON",
        help='imported solutions to list, e.g. \'[{"name": "hgs", "label": "HGS", "files": ["hgs/*.parquet"]}]\'',
    )


def external_methods(options: argparse.Namespace) -> tuple[ExternalMethod, ...]:
    """The methods of ``--external``.

    Raises:
        ConfigError: If the option holds anything else.
    """
    from polarvrp.config.study import ExternalMethod

    try:
        methods = json.loads(options.external)
    except ValueError as error:
        raise ConfigError(f"--external is no JSON: {error}") from error
    if not isinstance(methods, list):
        raise ConfigError(f"--external must be a list, got {options.external[:60]}")
    return tuple(ExternalMethod.from_mapping(method, f"external[{number}]") for number, method in enumerate(methods))


def _labels(text: str) -> dict[str, str]:
    try:
        labels = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON") from error
    if not isinstance(labels, dict) or not all(isinstance(label, str) for label in labels.values()):
        raise argparse.ArgumentTypeError(f"{text!r} must hold a label for each method")
    return labels
