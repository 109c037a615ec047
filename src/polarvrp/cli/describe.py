"""``polarvrp describe BACKBONE ENCODER``: parts, parameters and multiply-adds of a network as JSON."""

import argparse
import json

from polarvrp.catalog.backbones import BACKBONES
from polarvrp.catalog.encoders import ENCODERS
from polarvrp.config.model import ModelConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("backbone", metavar="BACKBONE", help=f"one of {', '.join(BACKBONES)}, or your own")
    parser.add_argument("encoder", metavar="ENCODER", help=f"one of {', '.join(ENCODERS)}, or your own")
    parser.add_argument("--num-customers", type=int, default=50, metavar="N", help="size of an instance (default: 50)")
    parser.add_argument(
        "--task-experts", type=int, default=3, metavar="K", help="task experts of a PLE layer (default: 3)"
    )


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    from polarvrp.model.description import describe_network

    names = ("backbone", "encoder", "num_customers", "task_experts")
    config = ModelConfig.from_mapping({name: getattr(options, name) for name in names})
    print(json.dumps(describe_network(config), indent=2))
    return 0
