"""``polarvrp train``: train one run, or go on with it."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polarvrp.cli.arguments import add_engine_argument
from polarvrp.cli.specification import add_specification_arguments, read_specification
from polarvrp.errors import ConfigError, DataError
from polarvrp.machine import usable_cores
from polarvrp.outputs import require_output, stated_subject

if TYPE_CHECKING:
    from polarvrp.config.study import StudyConfig
    from polarvrp.study.layout import Layout
    from polarvrp.study.runs import RunSpec

EXIT_RESUMABLE = 75


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("run", metavar="RUN", help="name of the run, e.g. polarnet-ple-polar-n50-s0")
    add_specification_arguments(parser)
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="folder of results (default: the scale's)")
    parser.add_argument("--state", type=Path, help="resumable state (default: checkpoints/RUN in that folder)")
    parser.add_argument("--validation", type=Path, nargs="+", help="validation sets (default: made where missing)")
    parser.add_argument("--output", type=Path, help="weights (default: models/RUN/weights.safetensors there)")
    parser.add_argument("--workers", type=int, help="processes of local search (default: OMP_NUM_THREADS or all cores)")
    add_engine_argument(parser)
    parser.add_argument("--max-seconds", type=float, help="stop after that long, keep the state, exit with 75")


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    from polarvrp.study.layout import Layout
    from polarvrp.study.runs import parse_run

    run = parse_run(options.run)
    _require_time(options.max_seconds)
    spec, study = read_specification(options, run)
    usual = Layout() if study is None else Layout.of_scale(study.scale)
    layout = Layout(options.results) if options.results else usual
    if options.output is None:
        _require_own(layout.weights(run.name), spec)
    validation = options.validation
    if not validation:
        if study is None:
            raise ConfigError("--spec needs --validation FILE.npz ...")
        validation = [_validation_set(layout, study, name, run) for name in study.training_variants]
    missing = [path for path in validation if not path.is_file()]
    if missing:
        raise DataError(f"validation set {missing[0]} does not exist; make it with `polarvrp generate`")
    workers = _threads() if options.workers is None else options.workers
    if workers < 1:
        raise ConfigError(f"--workers must be at least 1, got {workers}")

    from polarvrp.study.shipped import MODEL_FILES, WEIGHTS
    from polarvrp.study.specs import fingerprint
    from polarvrp.training.trainer import TrainJob, train

    if options.output is not None:
        subject = {"run": run.name, "fingerprint": fingerprint(spec)}
        for name in MODEL_FILES:
            path = options.output if name == WEIGHTS else options.output.with_name(name)
            require_output(path, Path(name).suffix, subject, validation)

    job = TrainJob(
        run=run.name,
        spec=spec,
        state=options.state or layout.checkpoints(run.name),
        validation=validation,
        output=options.output or layout.weights(run.name),
        tracking=layout.root if options.output is None else options.results or options.output.parent,
        workers=workers,
        max_seconds=options.max_seconds,
        engine=options.engine,
        layout=layout,
        scale=os.environ.get("POLARVRP_SCALE") if study is None else study.scale,
    )
    return 0 if train(job) else EXIT_RESUMABLE


def _validation_set(layout: Layout, study: StudyConfig, variant: str, run: RunSpec) -> Path:
    """Validation set of the study, made if it is missing."""
    from polarvrp.problem.sets import ensure_set

    path = layout.dataset("validation", variant, run.num_customers)
    ensure_set(path, variant, run.num_customers, study.datasets.validation_instances, study.datasets.validation_seed)
    return path


def _require_own(weights: Path, spec: Mapping[str, Any]) -> None:
    """Refuse to train in the place of the same run's model of another specification, such as that of another scale.

    The workflow removes a model before it trains another in its place.
    """
    from polarvrp.study.specs import fingerprint

    held, wanted = (stated_subject(weights) or {}).get("fingerprint"), fingerprint(spec)
    if held not in (None, wanted):
        raise DataError(
            f"{weights.parent} holds a model of other settings (fingerprint {held} instead of {wanted}), as of another "
            "scale; move it away or name another folder by --results"
        )


def _require_time(max_seconds: float | None) -> None:
    """Refuse what is no time, before anything is written; ``nan`` and ``inf`` are numbers to the parser."""
    if max_seconds is not None and not 0 <= max_seconds < math.inf:
        raise ConfigError(
            f"--max-seconds must be a finite number of at least 0, got {max_seconds}; leave it out to train to the end"
        )


def _threads() -> int:
    """Threads that the environment grants, else all cores that the process may use."""
    granted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(granted) if granted.isdecimal() and int(granted) > 0 else usable_cores()
