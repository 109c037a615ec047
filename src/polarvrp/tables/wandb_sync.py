"""Everything of a results folder that W&B shows, written once: trainings, test results, and the study's tables."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from polarvrp.errors import DataError
from polarvrp.study.layout import Layout
from polarvrp.study.runs import RunSpec, is_run_name, parse_run
from polarvrp.study.specs import fingerprint
from polarvrp.tables.wandb_results import run_content, study_content, table_scales
from polarvrp.training.recorded import read_training, read_unfinished
from polarvrp.training.tracking import MARKER, catch_up, replay, snapshot
from polarvrp.training.wandb_ledger import Ledger
from polarvrp.training.wandb_runs import Content, Mode, publish

Written = tuple[str, str | None]
"""Name of a run in W&B, and its id; None as the id where the same was written before."""


def begun_runs(layout: Layout) -> list[RunSpec]:
    """Trainings that ended an epoch, by name; folders whose name is no run's are not ours."""
    finished = (path.parent.name for path in layout.model("any").parent.glob("*/history.parquet"))
    begun = (path.parent.parent.name for path in layout.checkpoints("any").parent.glob("*/*/history.jsonl"))
    return [parse_run(name) for name in sorted({*finished, *begun}) if is_run_name(name)]


def sync(layout: Layout, runs: Sequence[RunSpec], mode: Mode, whole: bool) -> Iterator[Written]:
    """Write what was not written before.

    Args:
        layout: Of the results.
        runs: Trainings, complete or not.
        mode: Whether to upload, or to write offline runs.
        whole: Whether the study's tables are written too.

    Yields:
        Each run of W&B.

    Raises:
        DataError: If a training has no history, or a file is damaged.
    """
    for run in runs:
        yield run.name, _sync_history(layout, run, mode)
    trained = [run for run in runs if layout.history(run.name).is_file()]
    for run in trained:
        yield from _sync_results(layout, run, mode)
    scales = table_scales(layout) if whole else {}
    if scales:
        scale, content = next(iter(scales.values())), study_content(layout, trained, scales)
        name = f"{scale}-tables"
        yield name, _publish(layout, name, "tables", content, mode, scale, [scale], {})


def _sync_history(layout: Layout, run: RunSpec, mode: Mode) -> str | None:
    """Write a training's epochs: all at once, or those that its run in W&B lacks."""
    if layout.history(run.name).is_file():
        description, rows = read_training(layout.model(run.name))
        state = layout.checkpoints(run.name) / fingerprint(description.spec)
        if mode == "online" and (state / MARKER).exists():
            return catch_up(description, rows, layout.root, state)
        return replay(description, rows, layout.root, mode)
    states = sorted(layout.checkpoints(run.name).glob("*/history.jsonl"), key=lambda path: path.stat().st_mtime)
    begun = read_unfinished(states[-1].parent) if states else None
    if begun is None:
        raise DataError(f"{layout.history(run.name)} does not exist, nor did a training of {run.name} end an epoch yet")
    description, rows = begun
    if mode == "offline":
        return snapshot(description, rows, layout.root)
    return catch_up(description, rows, layout.root, states[-1].parent)


def _sync_results(layout: Layout, run: RunSpec, mode: Mode) -> Iterator[Written]:
    """Write a run's test results, if tables hold some."""
    with tempfile.TemporaryDirectory() as pictures:
        content = run_content(layout, run, Path(pictures))
        if content.summary:
            description, _ = read_training(layout.model(run.name))
            name, tags, config = f"{run.name}-test", description.tags, description.config
            yield name, _publish(layout, name, "evaluate", content, mode, description.scale, tags, config)


def _publish(
    layout: Layout,
    name: str,
    job_type: str,
    content: Content,
    mode: Mode,
    scale: str | None,
    tags: Sequence[str],
    config: dict[str, object],
) -> str | None:
    """Write results unless the same were written before; uploaded ones take the place of earlier ones."""
    ledger = Ledger(layout.root, name, mode)
    if ledger.holds(content.digest):
        return None
    identity = name if mode == "online" else ledger.new_id()
    publish(identity, job_type, content, layout.root, mode, scale, tags, config)
    ledger.add(identity, content.digest)
    return identity
