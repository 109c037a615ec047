"""Policies as safetensors files that say what they are; no pickle is ever read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from polarvrp import __version__
from polarvrp.catalog.backbones import BACKBONES
from polarvrp.config.model import ModelConfig
from polarvrp.errors import CheckpointMismatchError, ConfigError, DataError
from polarvrp.files import atomic_path
from polarvrp.model.architectures import architecture_of
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy

HEADER_KEY = "polarvrp"


def save_policy(path: str | Path, policy: Policy, metadata: dict[str, Any]) -> None:
    """Write a policy's weights with its configuration, atomically.

    Args:
        path: Final path, usually ``weights.safetensors``.
        policy: The policy, on any device.
        metadata: What else a reader should know, as JSON can hold it: specification, fingerprint, revision.
    """
    header = {
        "model": policy.config.model_dump(),
        "versions": {"polarvrp": __version__, "torch": torch.__version__},
        "metadata": metadata,
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in policy.state_dict().items()}
    with atomic_path(path) as temporary:
        save_file(tensors, temporary, metadata={HEADER_KEY: json.dumps(header, sort_keys=True)})


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
        DataError: If the file is missing, truncated or was not written by :func:`save_policy`.
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
    if expected is not None and not _same_network(config, expected):
        raise CheckpointMismatchError(
            f"{path} holds {network_name(config)}, wanted {network_name(expected)}; {_difference(config, expected)}"
        )
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
    if not path.is_file():
        raise DataError(f"no weights at {path}; train the run first or name another file")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} is truncated or no safetensors file ({error}); copy or train it again") from error
    try:
        header = json.loads(metadata[HEADER_KEY])
        header["model"]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} does not say which network it holds; it was not written by polarvrp") from error
    return header, tensors


def _same_network(first: ModelConfig, second: ModelConfig) -> bool:
    if first.backbone in BACKBONES and second.backbone in BACKBONES:
        return architecture_of(first) == architecture_of(second) and first.backbone == second.backbone
    return first == second


def _difference(got: ModelConfig, wanted: ModelConfig) -> str:
    pairs = [(name, getattr(got, name), getattr(wanted, name)) for name in ModelConfig.model_fields]
    differing = ", ".join(f"{name} {mine!r} instead of {other!r}" for name, mine, other in pairs if mine != other)
    return f"it has {differing}"
