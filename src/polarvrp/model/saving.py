"""Policies as safetensors files that say what they are; no pickle is ever read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from polarvrp import __version__
from polarvrp.catalog.backbones import BACKBONES
from polarvrp.config.architectures import architecture_of
from polarvrp.config.model import ModelConfig
from polarvrp.errors import CheckpointMismatchError, ConfigError, DataError
from polarvrp.files import atomic_path, is_file, reading
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy

HEADER_KEY = "polarvrp"
DIGEST_KEY = "sha256"
"""Entry of the header: digest of what else it says and of all tensors."""


def save_policy(path: str | Path, policy: Policy, metadata: dict[str, Any]) -> None:
    """Write a policy's weights with its configuration, atomically.

    Args:
        path: Final path, usually ``weights.safetensors``.
        policy: The policy, on any device.
        metadata: What else a reader should know, as JSON can hold it: specification, fingerprint, revision.
    """
    header: dict[str, Any] = {
        "model": policy.config.model_dump(),
        "versions": {"polarvrp": __version__, "torch": torch.__version__},
        "metadata": metadata,
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in policy.state_dict().items()}
    header[DIGEST_KEY] = _digest(header, tensors)
    with atomic_path(path) as temporary:
        save_tensors(temporary, tensors, {HEADER_KEY: json.dumps(header, sort_keys=True)})


def save_tensors(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file.

    Raises:
        OSError: If it cannot be written, whatever the library calls that.
    """
    try:
        save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        raise OSError(str(error)) from error


def load_policy(
    path: str | Path, device: torch.device | str = "cpu", expected: ModelConfig | None = None
) -> tuple[Policy, dict[str, Any]]:
    """Read a policy, in evaluation mode.

    Args:
        path: File written by :func:`save_policy`.
        device: Where the weights go.
        expected: The network that the caller wants; ``None`` takes whatever the file holds.

    Returns:
        The policy, and the header: ``model``, ``versions`` and ``metadata``.

    Raises:
        DataError: If the file is missing, damaged or was not written by :func:`save_policy`, or holds a number that is
            not finite.
        CheckpointMismatchError: If it holds another network than the expected one, or weights that do not fit the
            network that it names.
    """
    path = Path(path)
    header, tensors = _read(path)
    try:
        config = ModelConfig.from_mapping(header["model"])
        policy = build_policy(config, seed=0)
    except ConfigError as error:
        reason = "; ".join(str(error).splitlines())
        raise CheckpointMismatchError(f"{path} holds a network that does not exist here: {reason}") from error
    if expected is not None:
        if not _same_network(config, expected):
            raise CheckpointMismatchError(
                f"{path} holds {network_name(config)}, wanted {network_name(expected)}; {_difference(config, expected)}"
            )
        policy = build_policy(expected, seed=0)
    try:
        policy.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise CheckpointMismatchError(f"weights in {path} do not fit {network_name(config)}: {reason}") from error
    return policy.to(device).eval(), header


def network_name(config: ModelConfig) -> str:
    """Backbone and encoder, as in a run's name."""
    return f"{config.backbone}-{config.encoder}"


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    if not is_file(path):
        raise DataError(f"no weights at {path}; train the run first or name another file")
    damage = "is truncated or no safetensors file ({reason}); copy or train it again"
    with reading(path, damage=damage, damages=(SafetensorError,)):
        with path.open("rb"):  # whose error says why it cannot be read
            pass
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    try:
        header = json.loads(metadata[HEADER_KEY])
        header["model"].items(), header["metadata"].items()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path} does not say which network it holds; it was not written by polarvrp") from error
    digest = header.pop(DIGEST_KEY, None)  # files of earlier versions have none
    if digest is not None and digest != _digest(header, tensors):
        raise DataError(f"{path} was changed after it was written; copy or train it again")
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise DataError(f"{path}: {name} holds numbers that are not finite; train the run again")
    return header, tensors


def _digest(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _same_network(first: ModelConfig, second: ModelConfig) -> bool:
    """Whether weights of one may serve the other; what a size does to a user's own network, its weights tell."""
    if first.backbone in BACKBONES and second.backbone in BACKBONES:
        return architecture_of(first) == architecture_of(second) and first.backbone == second.backbone
    return first.replace(num_customers=second.num_customers) == second


def _difference(got: ModelConfig, wanted: ModelConfig) -> str:
    pairs = [(name, getattr(got, name), getattr(wanted, name)) for name in ModelConfig.model_fields]
    differing = ", ".join(f"{name} {mine!r} instead of {other!r}" for name, mine, other in pairs if mine != other)
    return f"it has {differing}"
