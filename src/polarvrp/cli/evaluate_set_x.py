"""``polarvrp evaluate-set-x``: solve CVRPLIB's Set-X with a trained policy."""

import argparse
from pathlib import Path

from polarvrp.cli.arguments import add_policy_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--output", type=Path, required=True, help="Parquet file, one row an instance")
    parser.add_argument("--instances", type=_count, default=None, metavar="K", help="smallest K instances, or all")
    parser.add_argument("--starts", type=_count, default=None, metavar="S", help="starts an instance, or all")
    add_policy_arguments(parser)


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    from polarvrp.decoding.greedy import Decoding, GreedySolver
    from polarvrp.evaluation.models import load_trained
    from polarvrp.evaluation.set_x import evaluate_set_x, write_set_x
    from polarvrp.problem.vrplib import set_x_names
    from polarvrp.progress import progress
    from polarvrp.training.locks import leased_device

    names = set_x_names()[: options.instances]
    decoding = Decoding(options.augmentations, max_starts=options.starts, engine=options.engine)
    with leased_device() as device:
        trained = load_trained(options.model, options.run, options.fingerprint, str(device))
        solved = evaluate_set_x(GreedySolver(trained.policy, decoding, trained.bfloat16), names)
        rows = list(progress(solved, len(names), trained.run, "instance"))
    effort = {"augmentations": options.augmentations, "starts": options.starts, "engine": options.engine}
    write_set_x(options.output, rows, trained.origin | effort)
    return 0


def _count(text: str) -> int | None:
    """A positive number, or None for ``all``."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number above 0 or all, got {text}")
    return int(text)
