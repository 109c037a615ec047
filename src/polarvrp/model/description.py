"""A network in numbers: its parts, its parameters and the multiply-adds of one instance."""

import dataclasses
from typing import Any

from polarvrp.catalog.backbones import BACKBONES
from polarvrp.config.architectures import architecture_of
from polarvrp.config.model import ModelConfig
from polarvrp.model.cost import multiply_adds, parameter_counts
from polarvrp.model.registry import build_policy


def describe_network(config: ModelConfig) -> dict[str, Any]:
    """What ``polarvrp describe`` prints.

    Args:
        config: The network; ``num_customers`` is also the size of the instance whose cost is counted.

    Returns:
        ``backbone`` and ``encoder``; ``parts``, empty for a backbone from outside the package; ``parameters``,
        ``trainable_parameters`` and ``parameters_by_part``; ``multiply_adds`` of one instance.

    Raises:
        ConfigError: If there is no such network.
    """
    policy = build_policy(config, seed=0).eval()
    counts = parameter_counts(policy)
    built_in = config.backbone in BACKBONES
    return {
        "backbone": config.backbone,
        "encoder": config.encoder,
        "parts": dataclasses.asdict(architecture_of(config)) if built_in else {},
        "parameters": sum(counts.values()),
        "trainable_parameters": sum(weights.numel() for weights in policy.parameters() if weights.requires_grad),
        "parameters_by_part": counts,
        "multiply_adds": {"num_customers": config.num_customers} | multiply_adds(policy, config.num_customers),
    }
