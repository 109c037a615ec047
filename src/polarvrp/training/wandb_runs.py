"""Runs of Weights & Biases: what they are called, say and hold; the only module that imports wandb."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from polarvrp.files import file_digest
from polarvrp.study.runs import parse_run
from polarvrp.study.specs import fingerprint, parse_train_spec
from polarvrp.training.resolved import resolved_config

if TYPE_CHECKING:
    import pandas as pd

Mode = Literal["offline", "online"]

PROJECT = "polarvrp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What W&B shows of a training beside its numbers.

    Attributes:
        run: Its name.
        spec: Its specification (``study.specs.train_spec``).
        scale: Of its study, None where it is not known.
        facts: ``parameters``, ``device``, ``card``, ``engine`` and ``precision``, as far as they are known.
    """

    run: str
    spec: Mapping[str, Any]
    scale: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def total_epochs(self) -> int:
        """Rows of its complete history."""
        return parse_train_spec(self.spec)[1].total_epochs

    @property
    def tags(self) -> list[str]:
        """Backbone, encoder, paradigm, size, settings off their defaults, and scale, by which runs are found."""
        run = parse_run(self.run)
        words = (run.backbone, run.encoder, run.paradigm, f"n{run.num_customers}", *(run.departures or ("default",)))
        return [*words, *([] if self.scale is None else [self.scale])]

    @property
    def config(self) -> dict[str, Any]:
        """The run's name in its parts, what it was trained on, and every resolved setting."""
        run, (network, training) = parse_run(self.run), parse_train_spec(self.spec)
        names = ("backbone", "encoder", "paradigm", "num_customers", "seed")
        precision = str(self.facts.get("precision", training.precision))
        return {
            **{name: getattr(run, name) for name in names},
            "scale": self.scale,
            "method": run.method,
            "fingerprint": fingerprint(self.spec),
            **self.facts,
            **resolved_config(self.run, self.spec, network, precision),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture of numbers that W&B draws by itself.

    Attributes:
        title: Above it.
        frame: Its numbers.
        x: Column along the horizontal axis; of bars, their labels.
        y: Column of the values.
        line: Column whose values are a line each; None for bars.
    """

    title: str
    frame: pd.DataFrame
    x: str
    y: str
    line: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a run of results holds.

    Attributes:
        summary: Numbers by name.
        tables: Frames by name.
        images: Picture files by name.
        charts: Charts by name.
        artifacts: Files of each artifact, by its name.
    """

    summary: Mapping[str, float] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    images: Mapping[str, Path] = field(default_factory=dict)
    charts: Mapping[str, Chart] = field(default_factory=dict)
    artifacts: Mapping[str, Sequence[Path]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of its numbers and files; pictures follow from these."""
        frames = {**self.tables, **{name: chart.frame for name, chart in self.charts.items()}}
        files = {name: [file_digest(path) for path in paths] for name, paths in self.artifacts.items()}
        texts = {name: frame.to_json() for name, frame in frames.items()}
        text = json.dumps([dict(self.summary), texts, files], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def has_key() -> bool:
    """Whether W&B accepts a key that is configured on this machine; never asks for one."""
    return login_fault() is None


def login_fault() -> str | None:
    """Why W&B cannot be used online, None if it can; it reports a wrong key and a missing network alike."""
    import wandb

    try:
        return None if wandb.login(prompt=False) else "no key on this machine"
    except wandb.Error as error:
        return " ".join(str(error).split())


def start_training_run(
    identity: str, description: Description, directory: Path, mode: Mode, tags: Sequence[str] = ()
) -> Any:
    """Open the run of a training, or go on with it.

    Args:
        identity: Its id and name.
        description: What it shows.
        directory: Folder that holds ``wandb/``.
        mode: Whether it is written here or sent.
        tags: Beside those of the description.
    """
    return _start(identity, "train", description.scale, [*description.tags, *tags], description.config, directory, mode)


def publish(
    identity: str,
    job_type: str,
    content: Content,
    directory: Path,
    mode: Mode,
    scale: str | None,
    tags: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
) -> None:
    """Write results as one run.

    Args:
        identity: Its id and name.
        job_type: ``evaluate`` or ``tables``.
        content: What it holds.
        directory: Folder that holds ``wandb/``.
        mode: Whether it is written here or sent.
        scale: Of the study.
        tags: By which it is found.
        config: What it was computed from.
    """
    import wandb

    run = _start(identity, job_type, scale, tags, config or {}, directory, mode)
    try:
        media: dict[str, Any] = {name: wandb.Table(dataframe=frame) for name, frame in content.tables.items()}
        media |= {name: wandb.Image(str(path)) for name, path in content.images.items()}
        media |= {name: _chart(chart) for name, chart in content.charts.items()}
        if media:
            run.log(media)
        run.summary.update(dict(content.summary))
        for name, paths in content.artifacts.items():
            artifact = wandb.Artifact(name, type="table")
            for path in paths:
                artifact.add_file(str(path))
            run.log_artifact(artifact)
    finally:
        run.finish()


def _chart(chart: Chart) -> Any:
    import wandb

    if chart.line is None:
        return wandb.plot.bar(wandb.Table(dataframe=chart.frame), chart.x, chart.y, title=chart.title)
    lines = list(chart.frame.groupby(chart.line, sort=False))
    return wandb.plot.line_series(
        xs=[frame[chart.x].tolist() for _, frame in lines],
        ys=[frame[chart.y].tolist() for _, frame in lines],
        keys=[str(name) for name, _ in lines],
        title=chart.title,
        xname=chart.x,
    )


def _start(
    identity: str,
    job_type: str,
    scale: str | None,
    tags: Sequence[str],
    config: Mapping[str, Any],
    directory: Path,
    mode: Mode,
) -> Any:
    import wandb

    directory.mkdir(parents=True, exist_ok=True)
    return wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        group=os.environ.get("WANDB_RUN_GROUP", scale or PROJECT),
        job_type=job_type,
        tags=list(tags),
        id=identity,
        name=identity,
        resume="allow",
        mode=mode,
        config=dict(config),
        dir=str(directory),
        settings=wandb.Settings(console="off", silent=True),
    )
