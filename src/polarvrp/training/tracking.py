"""Weights & Biases, the only module that imports it. Nothing in training or tables depends on it.

The truth is the history that a training keeps by itself. By default (``WANDB_MODE=offline``) the history of a finished
training becomes one offline run: offline runs cannot be resumed, so nothing is written before the end, and every epoch
stands there once however often the training was interrupted. With ``WANDB_MODE=online`` epochs are sent as they end and
a resumed training goes on with its run. ``polarvrp sync-wandb`` uploads histories afterwards.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

from polarvrp.errors import ConfigError, DataError
from polarvrp.files import provenance, read_parquet, write_text
from polarvrp.study.specs import parse_train_spec

Row = Mapping[str, Any]
Mode = Literal["offline", "online"]

PROJECT = "polarvrp"

logger = logging.getLogger(__name__)


class Tracker(Protocol):
    """Where the epochs of one training are shown."""

    def log_epoch(self, row: Row) -> None:
        """Show one epoch; an epoch that was shown before is skipped.

        Args:
            row: A row of the history, with ``epoch``.
        """

    def finish(self) -> None:
        """Close the run: the training is complete, or stops and goes on later."""


class NullTracker:
    """Shows nothing: tests, ``WANDB_MODE=disabled``, or wandb is not installed."""

    def log_epoch(self, row: Row) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""


class GuardedTracker:
    """Passes epochs on until the tracker behind it fails; from then on it shows nothing. A training never fails by it.

    Args:
        run: Name of the run, for the log line.
        open_inner: Opens the tracker to pass epochs on to.
    """

    def __init__(self, run: str, open_inner: Callable[[], Tracker]) -> None:
        self._run = run
        self.inner: Tracker = NullTracker()
        with self._guard():
            self.inner = open_inner()

    def log_epoch(self, row: Row) -> None:
        """Show one epoch."""
        with self._guard():
            self.inner.log_epoch(row)

    def finish(self) -> None:
        """Close the run."""
        with self._guard():
            self.inner.finish()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever a foreign service raises
            self.inner = NullTracker()
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            logger.warning(
                "%s: W&B failed (%s); the training goes on untracked, polarvrp sync-wandb uploads its history later",
                self._run,
                reason,
            )


class OfflineTracker:
    """Collects the epochs and writes them as one offline run once all are there, unless that was done before.

    Args:
        run: Name of the run.
        spec: Its specification (``study.train_spec``), shown as the run's configuration.
        directory: Folder that holds ``wandb/``.
    """

    def __init__(self, run: str, spec: Mapping[str, Any], directory: Path) -> None:
        self._run = run
        self._spec = spec
        self._directory = directory
        self._rows: dict[int, Row] = {}

    def log_epoch(self, row: Row) -> None:
        """Keep the epoch until ``finish``."""
        self._rows[row["epoch"]] = row

    def finish(self) -> None:
        """Write the offline run if the training is complete."""
        if len(self._rows) == _total_epochs(self._spec):
            replay(self._run, self._spec, list(self._rows.values()), self._directory, "offline")


class OnlineTracker:
    """Sends each epoch as it ends; a resumed training goes on with the run that its state names.

    Args:
        run: Name of the run.
        spec: Its specification (``study.train_spec``), shown as the run's configuration.
        directory: Folder that holds ``wandb/``.
        state: Folder of the training's state; remembers the id and the last epoch sent.
    """

    def __init__(self, run: str, spec: Mapping[str, Any], directory: Path, state: Path) -> None:
        self._marker = state / "wandb.json"
        self._ledger = _Ledger(directory, run, "online")
        known = json.loads(self._marker.read_text(encoding="utf-8")) if self._marker.exists() else None
        self._id = known["id"] if known else self._ledger.new_id()
        self._rows: dict[int, Row] = {}
        self._epochs = _total_epochs(spec)
        self._last_epoch = known["epoch"] if known else 0
        self._remember()
        self._wandb_run = _start(self._id, spec, directory, "online")

    def log_epoch(self, row: Row) -> None:
        """Send the epoch, and remember that."""
        self._rows[row["epoch"]] = row
        if row["epoch"] > self._last_epoch:
            _log(self._wandb_run, row)
            self._last_epoch = row["epoch"]
            self._remember()

    def finish(self) -> None:
        """Close the run; a complete history counts as uploaded."""
        self._wandb_run.finish()
        if len(self._rows) == self._epochs:
            self._ledger.add(self._id, list(self._rows.values()))

    def _remember(self) -> None:
        write_text(self._marker, json.dumps({"id": self._id, "epoch": self._last_epoch}))


def open_tracker(run: str, spec: Mapping[str, Any], directory: Path, state: Path) -> Tracker:
    """Tracker as the environment asks for it: ``WANDB_MODE`` is ``offline`` (default), ``online`` or ``disabled``.

    Args:
        run: Name of the run; also its id in W&B.
        spec: Specification of the training.
        directory: Folder that holds ``wandb/``, by default ``results``.
        state: Folder of the training's state.

    Returns:
        A null tracker where W&B is off or not installed; else one that no failure of W&B gets out of, offline where
        there is no key to go online with.

    Raises:
        ConfigError: If ``WANDB_MODE`` is none of the three.
    """
    said = os.environ.get("WANDB_MODE", "").strip().lower() or "offline"
    mode = {"dryrun": "offline", "run": "online"}.get(said, said)  # W&B's own older words
    if mode not in {"offline", "online", "disabled"}:
        raise ConfigError(f"WANDB_MODE must be offline, online or disabled, got {said!r}")
    if mode == "disabled":
        return NullTracker()
    if importlib.util.find_spec("wandb") is None:
        logger.info("%s: wandb is not installed, the training is not tracked", run)
        return NullTracker()

    def open_inner() -> Tracker:
        if mode == "online" and has_key():
            return OnlineTracker(run, spec, directory, state)
        if mode == "online":
            logger.info("%s: no W&B key, tracking offline; polarvrp sync-wandb uploads the history later", run)
        return OfflineTracker(run, spec, directory)

    return GuardedTracker(run, open_inner)


def has_key() -> bool:
    """Whether W&B accepts a key that is configured on this machine; never asks for one."""
    import wandb

    try:
        return bool(wandb.login(prompt=False))
    except wandb.Error:
        return False


def replay(run: str, spec: Mapping[str, Any], rows: Sequence[Row], directory: Path, mode: Mode) -> str | None:
    """Write a whole history as one run, once.

    Args:
        run: Name of the run.
        spec: Specification of the training.
        rows: Its history.
        directory: Folder that holds ``wandb/``.
        mode: Whether to write an offline run or to upload.

    Returns:
        Id of the new run, the name with ``-r2`` for a second training of the name and so on; None if this very history
        was written before.
    """
    ledger = _Ledger(directory, run, mode)
    if ledger.holds(rows):
        return None
    identity = ledger.new_id()
    wandb_run = _start(identity, spec, directory, mode)
    try:
        for row in rows:
            _log(wandb_run, row)
    finally:
        wandb_run.finish()
    ledger.add(identity, rows)
    return identity


def read_training(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Specification and history of a finished training.

    Args:
        folder: Folder of the model, with ``history.parquet``.

    Raises:
        DataError: If the history is missing, truncated or names no specification.
    """
    path = folder / "history.parquet"
    table = read_parquet(path, "train the run first")
    spec = provenance(table).get("spec")
    if not isinstance(spec, dict):
        raise DataError(f"{path} names no specification; delete it and train the run again")
    return spec, table.to_pylist()


class _Ledger:
    """Which trainings of a run were written, in ``wandb/ledger/{mode}/{run}.json``: id to digest of the history."""

    def __init__(self, directory: Path, run: str, mode: Mode) -> None:
        self._run = run
        self._path = directory / "wandb" / "ledger" / mode / f"{run}.json"
        text = self._path.read_bytes() if self._path.exists() else b"{}"
        try:
            self._entries: dict[str, str] = dict(json.loads(text))
        except (ValueError, TypeError) as error:
            raise DataError(
                f"{self._path} is no ledger; delete it, histories of {run} may be uploaded twice"
            ) from error

    def new_id(self) -> str:
        count = len(self._entries)
        return f"{self._run}-r{count + 1}" if count else self._run

    def holds(self, rows: Sequence[Row]) -> bool:
        return _digest(rows) in self._entries.values()

    def add(self, identity: str, rows: Sequence[Row]) -> None:
        self._entries[identity] = _digest(rows)
        write_text(self._path, json.dumps(self._entries, indent=1))


def _total_epochs(spec: Mapping[str, Any]) -> int:
    return parse_train_spec(spec)[1].total_epochs


def _digest(rows: Sequence[Row]) -> str:
    text = json.dumps([dict(row) for row in rows], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _start(identity: str, spec: Mapping[str, Any], directory: Path, mode: Mode) -> Any:
    import wandb

    directory.mkdir(parents=True, exist_ok=True)
    return wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        job_type="train",
        id=identity,
        name=identity,
        resume="allow",
        mode=mode,
        config=dict(spec),
        dir=str(directory),
        settings=wandb.Settings(console="off", silent=True),
    )


def _log(wandb_run: Any, row: Row) -> None:
    wandb_run.log({key: value for key, value in row.items() if value is not None}, step=row["epoch"])
