"""``polarvrp status``: what of a study is done, runs, failed or is missing, and how long the rest takes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from polarvrp.machine import usable_cores

if TYPE_CHECKING:
    from polarvrp.study.status import Status

MOST_FAILED = 10
"""Failed jobs whose logs are named."""

MOST_CHARACTERS = 200
"""Of the last line of a log."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    from polarvrp.catalog.scales import SCALES

    parser.add_argument(
        "--configfile", type=Path, help="your own values over those of config/, as the workflow takes it"
    )
    parser.add_argument("--scale", choices=SCALES, help="study of that scale (default: the one that the files name)")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="folder of results (default: the scale's)")
    parser.add_argument("--cores", type=int, default=usable_cores(), help="cores of the rest (default: all here)")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of the rest (default: 1)")


def execute(options: argparse.Namespace) -> int:
    """Print the state of the study."""
    from polarvrp.config.loading import load_study
    from polarvrp.errors import ConfigError
    from polarvrp.study.layout import Layout
    from polarvrp.study.status import study_status

    for name in ("cores", "gpus"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name} must be at least 1, got {getattr(options, name)}")
    study = load_study(options.configfile, scale=options.scale)
    layout = Layout(options.results) if options.results else Layout.of_scale(study.scale)
    print(f"scale {study.scale} in {layout.root}\n")
    for line in _lines(study_status(study, layout), options.cores, options.gpus):
        print(line)
    return 0


def _lines(status: Status, cores: int, gpus: int) -> Iterator[str]:
    from polarvrp.study.status import STATES

    yield _row("", *STATES, "of")
    for stage, states in status.states.items():
        if states:
            yield _row(stage, *(states.count(state) or "-" for state in STATES), len(states))
    yield from _rest(status, cores, gpus)
    for training in status.trainings:
        if training.state != "missing" or training.epochs:
            rest = "" if training.seconds is None else f", {time_needed(training.seconds)} left"
            state = "stopped" if training.state == "missing" else training.state
            yield f"{state}: {training.run}, epoch {training.epochs} of {training.total_epochs}{rest}"
    for run in status.outdated:
        yield f"outdated: {run} was trained by another configuration and will be trained anew"
    for log in status.failed[:MOST_FAILED]:
        yield f"failed: {log}: {_last_line(log)}"
    if len(status.failed) > MOST_FAILED:
        yield f"failed: {len(status.failed) - MOST_FAILED} more"
    sizes = ", ".join(f"{folder or 'other'} {data_size(size)}" for folder, size in status.disk.items())
    yield f"\ndisk: {data_size(sum(status.disk.values()))}{f' ({sizes})' if sizes else ''}"


def _last_line(log: Path) -> str:
    """What a failed job said last."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        return str(error.strerror)
    return next((line.strip()[:MOST_CHARACTERS] for line in reversed(lines) if line.strip()), "said nothing")


def _row(stage: str, *cells: object) -> str:
    return f"{stage:<12}" + "".join(f"{cell!s:>9}" for cell in cells)


def _rest(status: Status, cores: int, gpus: int) -> Iterator[str]:
    """How long what is left takes: trainings and evaluations after each other on each GPU, references on the cores."""
    yield ""
    on_gpus = f" on {gpus} GPUs" if gpus > 1 else " on a GPU"
    known = [training.seconds for training in status.trainings if training.seconds is not None]
    if known:
        yield f"rest: {len(known)} trainings {time_needed(sum(known) / gpus)}{on_gpus}"
    if unknown := len(status.trainings) - len(known):
        yield f"rest: {unknown} trainings, unknown until one has ended an epoch"
    if status.timed_evaluations:
        yield f"rest: {status.timed_evaluations} evaluations {time_needed(status.evaluation_seconds / gpus)}{on_gpus}"
    if status.untimed_evaluations:
        yield f"rest: {status.untimed_evaluations} evaluations, unknown until one of their size was made"
    if status.reference_core_seconds:
        seconds = status.reference_core_seconds
        yield f"rest: references {time_needed(seconds / cores)} on {cores} cores ({seconds / 3600:,.1f} core-hours)"


def time_needed(seconds: float) -> str:
    """An estimate of seconds, in the one unit that suits it."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def data_size(size: int) -> str:
    """Bytes in the decimal unit that suits them."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 1000:.1f} kB"
