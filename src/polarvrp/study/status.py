"""What of a study is done, runs, failed or is missing, how long the rest takes, and the disk that it uses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, get_args

from polarvrp.config.study import StudyConfig
from polarvrp.outputs import stated_subject
from polarvrp.study.at_hand import trained_runs
from polarvrp.study.inventory import inventory
from polarvrp.study.layout import Layout
from polarvrp.study.metadata import recorded
from polarvrp.study.needs import Job
from polarvrp.study.runs import RunSpec, parse_run
from polarvrp.study.specs import fingerprint, parse_train_spec, train_spec

State = Literal["done", "running", "failed", "missing"]
STATES: tuple[State, ...] = get_args(State)

TIMED = ("evaluations", "zero-shot", "Set-X")
"""Stages whose files say how many seconds each instance took."""

LAST_EPOCHS = 3
"""Epochs of a begun training whose mean is expected of the rest, since refinement makes later ones longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training that is not complete.

    Attributes:
        run: Its name.
        state: Of its job.
        epochs: Epochs that ended.
        total_epochs: Epochs of all its stages.
        seconds: Expected until its end; None where no training has ended an epoch yet.
    """

    run: str
    state: State
    epochs: int
    total_epochs: int
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """State of a study.

    Attributes:
        states: State of each job, by stage.
        trainings: Those that are not complete.
        reference_core_seconds: What is left to solve, by the solvers' limits.
        evaluation_seconds: Expected for those evaluations that are left of whose size one was made.
        timed_evaluations: Number of these.
        untimed_evaluations: Number of the others.
        outdated: Runs whose model was trained by another specification than the study's; it counts as missing, and so
            does what was solved or analysed by it.
        failed: Logs of failed jobs.
        disk: Bytes by folder of results.
    """

    states: dict[str, list[State]]
    trainings: list[Training]
    reference_core_seconds: float
    evaluation_seconds: float
    timed_evaluations: int
    untimed_evaluations: int
    outdated: list[str]
    failed: list[Path]
    disk: dict[str, int]


def study_status(study: StudyConfig, layout: Layout) -> Status:
    """State of a study by its files, and by the files that processes of this machine hold open.

    A job runs if a process has its log open, or, for a training, its state; it failed if it left a log, no results,
    and does not run. Jobs on other machines, as on a cluster, cannot be told from failed ones. Tables, figures and the
    report of another scale in the same folder, as of ``quick`` in that of ``paper``, count as missing.

    Args:
        study: The study.
        layout: Of its results.
    """
    files = _files(layout.root)
    jobs = inventory(study, layout, trained_runs(study, layout))
    specs = {str(job.run.name): train_spec(study, job.run) for job in jobs["trainings"] if job.run}
    outdated = [run for run in specs if layout.weights(run) in files and _foreign(layout, run, specs[run])]
    built = [job for job in (*jobs["tables"], *jobs["report"]) if job.outputs[0] in files]
    others = {job.outputs[0] for job in built if _scale_of(job.outputs[0]) not in (None, study.scale)}
    opened = _open_files(layout.root)

    def is_foreign(job: Job) -> bool:
        """Whether files of the job that are there are none of this study."""
        if job.rule.startswith("draw_"):  # which says nothing of itself, unlike its table
            return layout.table(job.name) in others
        return job.outputs[0] in others or (job.run is not None and job.run.name in outdated)

    def state_of(job: Job) -> State:
        training = job.rule == "train_policy"
        done = all(path in files for path in job.outputs) or job.whole in files
        if done and not is_foreign(job):
            return "done"
        log = layout.log(job.rule, job.name)
        if log in opened or (training and any(path.is_relative_to(layout.checkpoints(job.name)) for path in opened)):
            return "running"
        return "failed" if log in files and not done else "missing"

    states = {stage: [state_of(job) for job in stage_jobs] for stage, stage_jobs in jobs.items()}
    left = {
        stage: [job for job, state in zip(jobs[stage], states[stage], strict=True) if state != "done"] for stage in jobs
    }
    timed = {stage: _evaluation_seconds(jobs[stage], files) for stage in TIMED if left[stage]}
    evaluations = [timed[stage].get(job.run.num_customers) for stage in timed for job in left[stage] if job.run]
    return Status(
        states=states,
        trainings=_trainings(layout, dict(zip(specs, states["trainings"], strict=True)), specs),
        reference_core_seconds=sum(job.core_seconds or 0.0 for job in left["references"]),
        evaluation_seconds=sum(known := [seconds for seconds in evaluations if seconds is not None]),
        timed_evaluations=len(known),
        untimed_evaluations=evaluations.count(None),
        outdated=outdated,
        failed=[layout.log(job.rule, job.name) for stage in left for job in left[stage] if state_of(job) == "failed"],
        disk=_disk(layout.root, files),
    )


def _files(root: Path) -> dict[Path, int]:
    """Bytes of every file below a folder."""
    found: dict[Path, int] = {}
    folders = [os.fspath(root)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    with suppress(OSError):  # gone meanwhile
                        found[Path(entry.path)] = entry.stat().st_size
    return found


def _disk(root: Path, files: Mapping[Path, int]) -> dict[str, int]:
    """Bytes by the first folder below ``root``, the largest first; of files beside these under ``""``."""
    sizes: dict[str, int] = {}
    for path, size in files.items():
        parts = path.relative_to(root).parts
        folder = parts[0] if len(parts) > 1 else ""
        sizes[folder] = sizes.get(folder, 0) + size
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def _open_files(root: Path) -> set[Path]:
    """Files below ``root`` that a process of this machine has open; none where the system does not tell."""
    real = root.resolve()
    return {root / path.relative_to(real) for path in _opened() if path.is_relative_to(real)}


def _opened() -> Iterator[Path]:
    """Every open file of the processes that this user may look at."""
    for process in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):  # another user's, or gone
            for link in process.iterdir():
                with suppress(OSError):
                    yield link.readlink()


def _foreign(layout: Layout, run: str, spec: Mapping[str, Any]) -> bool:
    """Whether a model was trained by another specification, as far as its metadata says."""
    known = recorded(layout.metadata(run)).get("fingerprint")
    return known is not None and known != fingerprint(spec)


def _scale_of(path: Path) -> str | None:
    """Scale that a table or the report says it is of; None if it says nothing."""
    said = stated_subject(path) or {}
    found: str | None = said.get("scale", said.get("report"))
    return found


def _trainings(layout: Layout, states: Mapping[str, State], specs: Mapping[str, Mapping[str, Any]]) -> list[Training]:
    """Those that are not complete; the time of one that has not begun is that of those most like it."""
    histories = {run: [] if states[run] == "done" else _history(layout, run, specs[run]) for run in specs}
    measured = {run: seconds for run in specs if (seconds := _epoch_seconds(layout, run, histories[run]))}
    trainings = []
    for run in specs:
        if states[run] == "done":
            continue
        total = parse_train_spec(specs[run])[1].total_epochs
        seconds = measured.get(run) or _like(parse_run(run), measured)
        ended = len(histories[run])
        trainings.append(
            Training(
                run=run,
                state=states[run],
                epochs=ended,
                total_epochs=total,
                seconds=None if seconds is None else seconds * (total - ended),
            )
        )
    return trainings


def _history(layout: Layout, run: str, spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Epochs of a training that has begun."""
    path = layout.checkpoints(run) / fingerprint(spec) / "history.jsonl"
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return []


def _epoch_seconds(layout: Layout, run: str, history: list[dict[str, Any]]) -> float | None:
    """Seconds of an epoch: lately, where the training goes on; on average, where it is complete."""
    if history:
        return fmean(row["seconds"] + (row.get("seconds_validate") or 0.0) for row in history[-LAST_EPOCHS:])
    metadata = recorded(layout.metadata(run))
    return metadata["total_seconds"] / metadata["epochs"] if metadata.get("epochs") else None


def _like(run: RunSpec, measured: Mapping[str, float]) -> float | None:
    """Mean of the measured runs that share the most with a run: size and paradigm, else the size, else anything."""
    others = {name: parse_run(name) for name in measured}
    for keys in (("num_customers", "paradigm"), ("num_customers",), ()):
        near = [name for name, other in others.items() if all(getattr(other, key) == getattr(run, key) for key in keys)]
        if near:
            return fmean(measured[name] for name in near)
    return None


def _evaluation_seconds(jobs: Iterable[Job], files: Mapping[Path, int]) -> dict[int, float]:
    """Seconds that one of the jobs took which are done, by its size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    seconds: dict[int, float] = {}
    for job in jobs:
        size = job.run.num_customers if job.run else 0
        if size not in seconds and all(path in files for path in job.outputs):
            with suppress(pa.ArrowException, OSError, KeyError):
                columns = [pq.read_table(path, columns=["seconds"], partitioning=None)[0] for path in job.outputs]
                seconds[size] = float(sum(value or 0.0 for column in columns for value in column.to_pylist()))
    return seconds
