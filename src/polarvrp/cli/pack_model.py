"""``polarvrp pack-model``: a finished run as a model that ships with the package; for maintainers."""

import argparse
from pathlib import Path

from polarvrp.cli.arguments import add_results_arguments, results_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("run", metavar="RUN", help="a finished run with evaluations, e.g. polarnet-ple-polar-n50-s0")
    add_results_arguments(parser)
    parser.add_argument("--output", type=Path, help="folder of shipped models (default: the package's own)")


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    from polarvrp.study.runs import parse_run

    run = parse_run(options.run)

    from polarvrp.release.packing import pack_model
    from polarvrp.study import shipped

    results, _ = results_of(options)
    folder = pack_model(run, results, options.output or shipped.SHIPPED)
    files = [path for path in folder.rglob("*") if path.is_file()]
    print(f"{folder}: {len(files)} files, {sum(path.stat().st_size for path in files) / 2**20:.1f} MiB")
    return 0
