"""``polarvrp evaluate-set-x``: solve CVRPLIB's Set-X with a trained policy."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--model", required=True, metavar="RUN_OR_PATH", help="a run, or its weights.safetensors")
    parser.add_argument("--output", type=Path, required=True, help="Parquet file, one row an instance")
    parser.add_argument("--instances", type=_count, default=None, metavar="K", help="smallest K instances, or all")
    parser.add_argument("--starts", type=_count, default=None, metavar="S", help="starts an instance, or all")
    parser.add_argument("--augmentations", type=int, default=8, choices=range(1, 9), help="symmetries (default: 8)")
    parser.add_argument("--run", help="refuse weights of another run")
    parser.add_argument("--fingerprint", help="refuse weights trained by another specification")


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    from polarvrp.decoding.greedy import Decoding
    from polarvrp.evaluation.models import load_trained
    from polarvrp.evaluation.set_x import evaluate_set_x, write_set_x
    from polarvrp.problem.vrplib import set_x_names
    from polarvrp.progress import progress

    trained = load_trained(options.model, options.run, options.fingerprint)
    names = set_x_names()[: options.instances]
    decoding = Decoding(options.augmentations, max_starts=options.starts)
    solved = evaluate_set_x(trained.policy, names, decoding, trained.bfloat16)
    rows = list(progress(solved, len(names), trained.run, "instance"))
    provenance = {
        "model": trained.provenance,
        "augmentations": options.augmentations,
        "starts": options.starts,
        "device": str(trained.device),
        "bfloat16": trained.bfloat16,
    }
    write_set_x(options.output, rows, provenance)
    return 0


def _count(text: str) -> int | None:
    """A positive number, or None for ``all``."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number above 0 or all, got {text}")
    return int(text)
