"""Names to networks: the built-in backbones, and users' own from outside the package.

A backbone from outside is a :class:`RegisteredBackbone`. An installed package declares it in the entry-point group
``polarvrp.backbones``, or its name is an import path ``package.module:attribute``. Importing this module imports no
torch.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarvrp.catalog.backbones import BACKBONES, ENTRY_POINT_GROUP
from polarvrp.config.architectures import architecture_of
from polarvrp.config.model import ModelConfig
from polarvrp.errors import ConfigError

if TYPE_CHECKING:
    from polarvrp.model.policy import Policy


@dataclass(frozen=True, slots=True)
class RegisteredBackbone:
    """A backbone by its encoders and its builder.

    Attributes:
        encoders: Names of encoders it exists with.
        build: Makes a policy, drawing initial weights from torch's global generator.
    """

    encoders: tuple[str, ...]
    build: Callable[[ModelConfig], Policy]


def available() -> list[tuple[str, str]]:
    """All pairs of a backbone and an encoder, built-in ones first; import paths cannot be listed."""
    pairs = [(name, encoder) for name, record in BACKBONES.items() for encoder in record.encoders]
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        pairs += [(entry.name, encoder) for encoder in _checked(entry.load(), entry.value).encoders]
    return pairs


def build_policy(config: ModelConfig, seed: int | None = None) -> Policy:
    """A freshly initialised network in float32 on the CPU.

    Args:
        config: What to build.
        seed: Of the initial weights, the same on every platform; the state of torch's global generator is kept.
            ``None`` draws from the global generator.

    Raises:
        ConfigError: If there is no such backbone, or not with this encoder or option.
    """
    import torch

    backbone = _look_up(config.backbone)
    if backbone is None or config.encoder not in backbone.encoders:
        pairs = ", ".join(f"{name}-{encoder}" for name, encoder in available())
        raise ConfigError(f"no backbone {config.backbone!r} with encoder {config.encoder!r}; there are {pairs}")
    if seed is None:
        return backbone.build(config)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return backbone.build(config)


def _compose(config: ModelConfig) -> Policy:
    from polarvrp.model.compose import compose

    return compose(architecture_of(config), config)


def _look_up(name: str) -> RegisteredBackbone | None:
    if name in BACKBONES:
        return RegisteredBackbone(BACKBONES[name].encoders, _compose)
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=name):
        return _checked(entry.load(), entry.value)
    module_name, separator, attribute = name.partition(":")
    if not separator:
        return None
    try:
        return _checked(getattr(importlib.import_module(module_name), attribute), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"backbone {name!r} cannot be imported ({error}); write package.module:attribute") from error


def _checked(found: object, path: str) -> RegisteredBackbone:
    if not isinstance(found, RegisteredBackbone):
        raise ConfigError(f"backbone {path!r} must be a RegisteredBackbone, got {type(found).__name__}")
    return found
