"""Trainings shown by Weights & Biases. Nothing in training or tables depends on it.

The truth is the history that a training keeps by itself. By default (``WANDB_MODE=offline``) the history of a finished
training becomes one offline run: offline runs cannot be resumed, so nothing is written before the end, and every epoch
stands there once however often the training was interrupted. With ``WANDB_MODE=online`` epochs are sent as they end and
a resumed training goes on with its run. ``polarvrp sync-wandb`` uploads histories afterwards.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from polarvrp.errors import ConfigError, DataError
from polarvrp.files import write_text
from polarvrp.training.wandb_ledger import Ledger
from polarvrp.training.wandb_runs import Description, Mode, has_key, start_training_run

Row = Mapping[str, Any]

MARKER = "wandb.json"
"""File in a training's state that remembers its run in W&B."""

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
        description: What the run shows beside its epochs.
        directory: Folder that holds ``wandb/``.
    """

    def __init__(self, description: Description, directory: Path) -> None:
        self._description = description
        self._directory = directory
        self._rows: dict[int, Row] = {}

    def log_epoch(self, row: Row) -> None:
        """Keep the epoch until ``finish``."""
        self._rows[row["epoch"]] = row

    def finish(self) -> None:
        """Write the offline run if the training is complete."""
        if len(self._rows) == self._description.total_epochs:
            replay(self._description, list(self._rows.values()), self._directory, "offline")


class OnlineTracker:
    """Sends each epoch as it ends; a resumed training goes on with the run that its state names.

    Args:
        description: What the run shows beside its epochs.
        directory: Folder that holds ``wandb/``.
        state: Folder of the training's state; remembers the id and the last epoch sent.
        live: Whether the training itself sends, or another process does what it did not.

    Attributes:
        identity: Id of the run in W&B.
    """

    def __init__(self, description: Description, directory: Path, state: Path, live: bool = True) -> None:
        self._marker = state / MARKER
        self._ledger = Ledger(directory, description.run, "online")
        self._live = live
        known = read_marker(state)
        self.identity: str = known["id"] if known else self._ledger.new_id()
        self._rows: dict[int, Row] = {}
        self._epochs = description.total_epochs
        self._last_epoch = known["epoch"] if known else 0
        if known is None:
            self._ledger.add(self.identity, [])  # taken, whether or not this training comes to its end
        self._remember()
        self._wandb_run = start_training_run(self.identity, description, directory, "online")

    def log_epoch(self, row: Row) -> None:
        """Send the epoch, and remember that."""
        self._rows[row["epoch"]] = row
        if row["epoch"] > self._last_epoch:
            _log(self._wandb_run, list(self._rows.values()))
            self._last_epoch = row["epoch"]
            self._remember()

    def finish(self) -> None:
        """Close the run; a complete history counts as uploaded."""
        self._wandb_run.finish()
        if len(self._rows) == self._epochs:
            self._ledger.add(self.identity, list(self._rows.values()))

    def _remember(self) -> None:
        write_text(self._marker, json.dumps({"id": self.identity, "epoch": self._last_epoch, "live": self._live}))


def open_tracker(description: Description, directory: Path, state: Path) -> Tracker:
    """Tracker as the environment asks for it: ``WANDB_MODE`` is ``offline`` (default), ``online`` or ``disabled``.

    Args:
        description: What the run shows beside its epochs; its name is also its id in W&B.
        directory: Folder that holds ``wandb/``, by default ``results``.
        state: Folder of the training's state.

    Returns:
        A null tracker where W&B is off or not installed; else one that no failure of W&B gets out of, offline where
        there is no key to go online with.

    Raises:
        ConfigError: If ``WANDB_MODE`` is none of the three.
    """
    run = description.run
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
            return OnlineTracker(description, directory, state)
        if mode == "online":
            logger.info("%s: no W&B key, tracking offline; polarvrp sync-wandb uploads the history later", run)
        return OfflineTracker(description, directory)

    return GuardedTracker(run, open_inner)


def replay(description: Description, rows: Sequence[Row], directory: Path, mode: Mode) -> str | None:
    """Write a whole history as one run, once.

    Args:
        description: What the run shows beside its epochs.
        rows: Its history.
        directory: Folder that holds ``wandb/``.
        mode: Whether to write an offline run or to upload.

    Returns:
        Id of the new run, the name with ``-r2`` for a second training of the name and so on; None if this very history
        was written before.
    """
    return _replay(description, description.run, rows, directory, mode)


def snapshot(description: Description, rows: Sequence[Row], directory: Path) -> str | None:
    """Write what there is of an unfinished training as an offline run of its own, tagged ``unfinished``, once.

    Offline runs cannot be gone on with, so the run is named after the last epoch, and the whole history follows under
    the training's own name when it is complete.

    Returns:
        Its id, e.g. ``polarnet-ple-polar-n50-s0-epoch37``; None if it was written before.
    """
    return _replay(description, f"{description.run}-epoch{len(rows)}", rows, directory, "offline", ("unfinished",))


def catch_up(description: Description, rows: Sequence[Row], directory: Path, state: Path) -> str | None:
    """Send the epochs of a training that were not sent yet; what follows later goes on with the same run.

    Args:
        description: What the run shows beside its epochs.
        rows: Its history so far.
        directory: Folder that holds ``wandb/``.
        state: Folder of the training's state; remembers the id and the last epoch sent.

    Returns:
        Id of the run; None if all was sent, or the training runs and sends its epochs by itself.
    """
    known = read_marker(state)
    if known and (known["epoch"] >= len(rows) or (known.get("live", True) and _runs(state))):
        return None
    tracker = OnlineTracker(description, directory, state, live=False)
    try:
        for row in rows:
            tracker.log_epoch(row)
    finally:
        tracker.finish()
    return tracker.identity


def read_marker(state: Path) -> dict[str, Any] | None:
    """What a training's state remembers of its run in W&B: ``id``, ``epoch`` and ``live``; None if nothing was sent."""
    path = state / MARKER
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def _runs(state: Path) -> bool:
    """Whether a process trains."""
    from polarvrp.training.locks import file_lock  # imports torch

    try:
        with file_lock(state / "lock", "the training", wait=False):
            return False
    except DataError:
        return True


def _replay(
    description: Description, name: str, rows: Sequence[Row], directory: Path, mode: Mode, tags: Sequence[str] = ()
) -> str | None:
    ledger = Ledger(directory, name, mode)
    if ledger.holds(rows):
        return None
    identity = ledger.new_id()
    wandb_run = start_training_run(identity, description, directory, mode, tags)
    try:
        for count in range(1, len(rows) + 1):
            _log(wandb_run, rows[:count])
    finally:
        wandb_run.finish()
    ledger.add(identity, rows)
    return identity


def _log(wandb_run: Any, rows: Sequence[Row]) -> None:
    """The last of some rows, with the seconds of all, which W&B does not add up by itself."""
    values = {**rows[-1], "trained_seconds": math.fsum(row["seconds"] for row in rows)}
    wandb_run.log({key: value for key, value in values.items() if value is not None}, step=values["epoch"])
