"""Trained policies by name: found, loaded, and verified to be the one that was asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from polarvrp.errors import CheckpointMismatchError, DataError
from polarvrp.evaluation.shipped import PREFIX, WEIGHTS, shipped_folder
from polarvrp.machine import device_name, versions
from polarvrp.model.policy import Policy
from polarvrp.model.precision import has_bfloat16
from polarvrp.model.saving import load_policy

MODELS = Path("results/models")


@dataclass(frozen=True, slots=True)
class TrainedPolicy:
    """A policy ready for inference.

    Attributes:
        policy: On ``device``.
        run: Name of its training.
        provenance: What its file says of its making.
        device: The first GPU, else the CPU.
        bfloat16: Whether its matrix products should run in bfloat16: on GPUs that compute it.
    """

    policy: Policy
    run: str
    provenance: dict[str, Any]
    device: torch.device
    bfloat16: bool

    @property
    def origin(self) -> dict[str, Any]:
        """What to record of it with the tours it finds."""
        return {
            "model": self.provenance,
            "device": device_name(self.device),
            "versions": versions(),
            "bfloat16": self.bfloat16,
        }


def load_trained(model: str, run: str | None = None, fingerprint: str | None = None) -> TrainedPolicy:
    """Load a trained policy.

    Args:
        model: Path of its weights or of their folder; its run, then found under ``results/models/``; or the name of a
            model that ships with the package.
        run: Run that the weights must be of, None for any.
        fingerprint: Specification that they must have been trained by, None for any.

    Raises:
        DataError: If there is no such file.
        CheckpointMismatchError: If the weights are another run's or were trained by another specification.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    policy, header = load_policy(_find(model), device)
    provenance = header["metadata"]
    found = {"run": provenance.get("run"), "fingerprint": provenance.get("fingerprint")}
    for name, wanted in (("run", run), ("fingerprint", fingerprint)):
        if wanted is not None and found[name] != wanted:
            raise CheckpointMismatchError(f"{model} holds {name} {found[name]}, not {wanted}; train that run first")
    return TrainedPolicy(policy, str(found["run"]), provenance, device, has_bfloat16(device))


def _find(model: str) -> Path:
    given = Path(model)
    for path in (given, given / WEIGHTS, MODELS / model / WEIGHTS):
        if path.is_file():
            return path
    if model.startswith(PREFIX):
        return shipped_folder(model) / WEIGHTS
    if given.is_dir():
        raise DataError(f"{given} is a folder without {WEIGHTS}; name a model's folder, its file or its run")
    raise DataError(f"no model {model!r}: neither a file nor a run under {MODELS}; train it with `polarvrp train`")
