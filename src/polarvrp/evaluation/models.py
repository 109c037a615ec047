"""Trained policies by name: found, loaded, and verified to be the one that was asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from polarvrp.errors import CheckpointMismatchError, ConfigError
from polarvrp.machine import card_identity, device_name, versions
from polarvrp.model.policy import Policy
from polarvrp.model.precision import has_bfloat16
from polarvrp.model.saving import load_policy
from polarvrp.problem.variants import VARIANTS
from polarvrp.study.layout import Layout
from polarvrp.study.specs import parse_train_spec
from polarvrp.study.weights import find_weights


@dataclass(frozen=True, slots=True)
class Model:
    """A trained policy ready for inference.

    Attributes:
        policy: The network, on ``device``.
        run: Name of its training.
        provenance: What its file says of its making.
        device: Where it computes.
        bfloat16: Whether its matrix products should run in bfloat16: on GPUs that compute it.
        path: File of its weights.
    """

    policy: Policy
    run: str
    provenance: dict[str, Any]
    device: torch.device
    bfloat16: bool
    path: Path

    @property
    def num_customers(self) -> int:
        """Customers of the instances that it was trained on; it solves any size."""
        return self.policy.config.num_customers

    @property
    def variants(self) -> tuple[str, ...]:
        """Variants that it was trained on; it solves all 48. Empty if its file does not say."""
        if "spec" not in self.provenance:
            return ()
        _, training = parse_train_spec(self.provenance["spec"])
        drawn = set(training.drawn_variants)
        return tuple(name for name in VARIANTS if name in drawn)

    @property
    def origin(self) -> dict[str, Any]:
        """What to record of it with the tours it finds."""
        return {
            "model": self.provenance,
            "device": device_name(self.device),
            "card": card_identity(self.device),
            "versions": versions(),
            "bfloat16": self.bfloat16,
        }


def load_trained(
    model: str | Path, run: str | None = None, fingerprint: str | None = None, device: str = "auto"
) -> Model:
    """Load a trained policy.

    Args:
        model: Path of its weights or of their folder; its run, then found under ``results/models/``; or the name of a
            model that ships with the package.
        run: Run that the weights must be of, None for any.
        fingerprint: Specification that they must have been trained by, None for any.
        device: ``cpu``, ``cuda``, ``cuda:1`` and so on; ``auto`` is the first GPU, else the CPU.

    Raises:
        ConfigError: If there is no such device.
        DataError: If there is no such file.
        CheckpointMismatchError: If the weights are another run's or were trained by another specification.
    """
    chosen = _find_device(device)
    path = find_weights(str(model), Layout())
    policy, header = load_policy(path, chosen)
    provenance = header["metadata"]
    found = {"run": provenance.get("run"), "fingerprint": provenance.get("fingerprint")}
    for name, wanted in (("run", run), ("fingerprint", fingerprint)):
        if wanted is not None and found[name] != wanted:
            raise CheckpointMismatchError(f"{model} holds {name} {found[name]}, not {wanted}; train that run first")
    return Model(policy, str(found["run"]), provenance, chosen, has_bfloat16(chosen), path)


def _find_device(name: str) -> torch.device:
    gpus = torch.cuda.device_count()
    if name == "auto":
        return torch.device("cuda" if gpus else "cpu")
    known = ["cpu", *(["cuda"] if gpus else []), *(f"cuda:{number}" for number in range(gpus))]
    if name not in known:
        raise ConfigError(f"there is no device {name!r} here; choose auto, {', '.join(known)}")
    return torch.device(name)
