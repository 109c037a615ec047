"""``polarvrp describe BACKBONE ENCODER``: parts, parameters and multiply-adds of a network as JSON."""

import argparse
import dataclasses
import json
from typing import Any

from polarvrp.catalog.backbones import BACKBONES
from polarvrp.config.model import ModelConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backbone", metavar="BACKBONE", help=f"one of {', '.join(BACKBONES)}, or your own")
    parser.add_argument("encoder", metavar="ENCODER", help="shared, deep or ple")
    parser.add_argument("--num-customers", type=int, default=50, metavar="N", help="size of an instance (default 50)")
    parser.add_argument("--task-experts", type=int, default=3, metavar="K", help="task experts of a PLE layer")


def execute(options: argparse.Namespace) -> int:
    config = ModelConfig(
        backbone=options.backbone,
        encoder=options.encoder,
        num_customers=options.num_customers,
        task_experts=options.task_experts,
    )
    print(json.dumps(describe(config), indent=2))
    return 0


def describe(config: ModelConfig) -> dict[str, Any]:
    """What ``polarvrp describe`` prints.

    Args:
        config: The network; ``num_customers`` is also the size of the instance whose cost is counted.

    Raises:
        ConfigError: If there is no such network.
    """
    from polarvrp.model.architectures import architecture_of
    from polarvrp.model.cost import multiply_adds, parameter_counts
    from polarvrp.model.registry import build_policy

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
