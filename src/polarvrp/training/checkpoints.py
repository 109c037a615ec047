"""Resumable state of a training: written aside and renamed, the newest two kept, never a pickle.

A checkpoint is a folder ``checkpoint-{steps}`` with ``state.safetensors`` (parameters and the optimiser's moments),
``state.json`` (where the training stands and the history so far) and ``digests.json`` (SHA-256 of both).
"""

import json
import logging
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from polarvrp.errors import DataError
from polarvrp.files import file_digest, writing
from polarvrp.model.saving import save_tensors

logger = logging.getLogger(__name__)

KEPT = 2

STATE_FILES = ("state.safetensors", "state.json")
DIGESTS = "digests.json"


@dataclass
class Position:
    """Where a training stands.

    Attributes:
        stage: Stage in work, from 0.
        epoch: Epoch of the stage in work, from 1.
        step: Steps done in it.
        sums: What those steps returned, added up.
        elapsed_s: Wall seconds of training so far, over all processes.
        reward_means: Running means that normalise rewards, empty before the first batch or without normalisation.
        refinement_gap: Running mean of the gap between best sampled and refined tours, None without a ramp.
        history: One row per finished epoch.
        splits: Parts that microbatches are cut into because memory was short.
    """

    stage: int = 0
    epoch: int = 1
    step: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    elapsed_s: float = 0.0
    reward_means: list[float] = field(default_factory=list)
    refinement_gap: float | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    splits: int = 1


class CheckpointStore:
    """Checkpoints of one training.

    Args:
        folder: Where they live; made if missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with writing(folder, "choose another folder"):
            folder.mkdir(parents=True, exist_ok=True)

    def save(self, position: Position, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        """Write a checkpoint, then remove those older than the newest two.

        Without an optimiser it is the last one of a finished training: it needs no moments and stays alone.

        Raises:
            DataError: If it cannot be written; the one before it stays.
        """
        kept = KEPT if optimizer is not None else 1
        self._remove_leftovers()
        final = self._folder / f"checkpoint-{position.stage:02d}-{position.epoch:05d}-{position.step:08d}"
        try:
            self._write(final, position, state_tensors(model, optimizer))
        except OSError as error:
            self._remove_leftovers()
            reason = error.strerror or error
            raise DataError(f"{final} cannot be written ({reason}); free space, the same command goes on") from error
        for old in _existing(self._folder)[:-kept]:
            shutil.rmtree(old)

    def _write(self, final: Path, position: Position, tensors: dict[str, Tensor]) -> None:
        """Write a checkpoint aside and rename it."""
        temporary = self._folder / f".partial-{os.getpid()}"
        temporary.mkdir()
        save_tensors(temporary / STATE_FILES[0], tensors)
        (temporary / STATE_FILES[1]).write_text(json.dumps(asdict(position)), encoding="utf-8")
        digests = {name: file_digest(temporary / name) for name in STATE_FILES}
        (temporary / DIGESTS).write_text(json.dumps(digests), encoding="utf-8")
        for name in (*STATE_FILES, DIGESTS):
            with (temporary / name).open("rb") as handle:
                os.fsync(handle.fileno())
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)

    def _remove_leftovers(self) -> None:
        """Remove what killed processes left half written; the run's lock keeps others away."""
        for partial in self._folder.glob(".partial-*"):
            shutil.rmtree(partial, ignore_errors=True)

    def load(self) -> tuple[Position, dict[str, Tensor]]:
        """The newest readable checkpoint, for ``restore``; without one, the beginning and no tensors."""
        self._remove_leftovers()
        return read_newest(self._folder)


def read_newest(folder: Path) -> tuple[Position, dict[str, Tensor]]:
    """The newest readable checkpoint in a folder, which is left as it is; without one, the beginning and no tensors."""
    checkpoints = _existing(folder)
    for checkpoint in reversed(checkpoints):
        try:
            return _read(checkpoint)
        except (OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
            left = "the training begins anew" if checkpoint == checkpoints[0] else "trying the checkpoint before it"
            logger.warning("%s is unreadable (%s); %s", checkpoint, error, left)
    return Position(), {}


def _read(checkpoint: Path) -> tuple[Position, dict[str, Tensor]]:
    tensors, position = (checkpoint / name for name in STATE_FILES)
    if (checkpoint / DIGESTS).exists():  # checkpoints of earlier versions have none
        digests = json.loads((checkpoint / DIGESTS).read_text(encoding="utf-8"))
        for path in (tensors, position):
            if file_digest(path) != digests[path.name]:
                raise ValueError(f"{path.name} was changed after it was written")
    return Position(**json.loads(position.read_text(encoding="utf-8"))), load_file(tensors)


def weights_of(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The model's own among the tensors of a checkpoint."""
    return {key.removeprefix("model."): value for key, value in tensors.items() if key.startswith("model.")}


def restore(tensors: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Put the tensors of a checkpoint into ``model`` and ``optimizer``; nothing without tensors."""
    if not tensors:
        return
    model.load_state_dict(weights_of(tensors))
    for name, parameter in model.named_parameters():
        for key in ("step", "exp_avg", "exp_avg_sq"):
            value = tensors.get(f"optimizer.{key}.{name}")
            if value is not None:
                # The step counter lives in main memory unless the optimiser is to be captured in a graph.
                in_memory = key == "step" and not optimizer.defaults.get("capturable")
                optimizer.state[parameter][key] = value if in_memory else value.to(parameter.device)


def _existing(folder: Path) -> list[Path]:
    return sorted(folder.glob("checkpoint-*"))


def state_tensors(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Tensor]:
    """Parameters, buffers and the optimiser's state by name."""
    tensors = {f"model.{name}": tensor.contiguous() for name, tensor in model.state_dict().items()}
    if optimizer is not None:
        for name, parameter in model.named_parameters():
            for key, value in optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer.{key}.{name}"] = value.contiguous()
    return tensors
