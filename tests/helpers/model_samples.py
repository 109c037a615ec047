"""Small networks, and what their decoders are asked."""

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from polarvrp.config.model import ModelConfig
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy
from polarvrp.problem.instances import Instances

Network = TypeVar("Network", bound=nn.Module)

SMALL: dict[str, Any] = {"layers": 2, "width": 32, "heads": 2, "feedforward_width": 64}


def policy_of(
    backbone: str = "polarnet", encoder: str = "ple", seed: int = 0, dtype: torch.dtype = torch.float32, **options: Any
) -> Policy:
    """A small freshly initialised network in evaluation mode."""
    config = ModelConfig(backbone=backbone, encoder=encoder, **(SMALL | options))
    return build_policy(config, seed).to(dtype).eval()


def shaken(policy: Network, seed: int = 1, scale: float = 0.3) -> Network:
    """The same network with every trainable number moved, so that no zero or one of the initialisation hides a term."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in (parameter for parameter in policy.parameters() if parameter.requires_grad):
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(parameter.dtype)
            width = parameter.shape[-1] if parameter.dim() else 1
            parameter.add_(noise, alpha=scale * width**-0.5)
    return policy


def queries(instances: Instances[Tensor], count: int = 5, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random current nodes, states and masks for each instance."""
    generator = torch.Generator().manual_seed(seed)
    batch, nodes, dtype = len(instances), instances.num_nodes, instances.locs.dtype
    current = torch.randint(0, nodes, (batch, count), generator=generator)
    state = torch.rand(batch, count, 5, generator=generator, dtype=torch.float64).to(dtype)
    state[..., 1] = torch.where(state[..., 1] > 0.5, 1.0, state[..., 1])
    state[..., 4] = instances.open_route[:, None].to(dtype)
    mask = torch.rand(batch, count, nodes, generator=generator) < 0.5
    mask[..., 0] |= ~mask.any(-1)
    return current, state, mask
