"""Options that commands share."""

import argparse
import os


def add_policy_arguments(parser: argparse.ArgumentParser) -> None:
    """Which trained policy, and how hard it tries."""
    parser.add_argument(
        "--model",
        required=True,
        metavar="RUN_OR_PATH",
        help="a run, its folder or its weights.safetensors, or pretrained-n50 or pretrained-n100",
    )
    parser.add_argument("--augmentations", type=int, default=8, choices=range(1, 9), help="symmetries (default: 8)")
    add_engine_argument(parser)
    parser.add_argument("--run", help="refuse weights of another run")
    parser.add_argument("--fingerprint", help="refuse weights trained by another specification")


def add_engine_argument(parser: argparse.ArgumentParser) -> None:
    """How rollouts and gradients are computed; the results are the same, the time is not."""
    parser.add_argument(
        "--engine",
        default=os.environ.get("POLARVRP_ENGINE", "auto"),
        help="auto, parallel or fused (default: $POLARVRP_ENGINE, else auto: the fastest that fits)",
    )
