"""``polarvrp export-state``: the state of a training as a folder of small files."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("run", metavar="RUN", help="name of the run, e.g. polarnet-ple-polar-n50-s0")
    parser.add_argument("output", type=Path, metavar="DIR", help="folder to write; an earlier export is replaced")
    parser.add_argument("--state", type=Path, help="resumable state (default: results/checkpoints/RUN)")
    parser.add_argument("--fingerprint", help="specification to export, where the run was trained by several")


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    from polarvrp.study import parse_run

    run = parse_run(options.run).name

    from polarvrp.training.checkpoints import Position
    from polarvrp.training.portable import describe, export_state

    state = options.state or Path("results/checkpoints") / run
    manifest = export_state(run, state, options.output, options.fingerprint)
    size = sum(entry["bytes"] for entry in manifest["files"].values()) / 2**20
    reached = describe(Position(**manifest["position"]), manifest["specification"])
    print(f"{options.output}: {run} ({manifest['fingerprint']}) at {reached}, {size:.1f} MiB")
    return 0
