"""``polarvrp import-state``: go on with a training that another machine exported."""

import argparse
from pathlib import Path

from polarvrp.cli.specification import add_specification_arguments, read_specification


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("run", metavar="RUN", help="name of the run, e.g. polarnet-ple-polar-n50-s0")
    parser.add_argument("folder", type=Path, metavar="DIR", help="written by polarvrp export-state")
    parser.add_argument("--state", type=Path, help="resumable state (default: results/checkpoints/RUN)")
    add_specification_arguments(parser)


def execute(options: argparse.Namespace) -> int:
    """Run the command; the configuration is the one that the training will go on with."""
    from polarvrp.study import parse_run

    run = parse_run(options.run)
    spec, _ = read_specification(options, run)

    from polarvrp.training.portable import describe, import_state

    state = options.state or Path("results/checkpoints") / run.name
    position = import_state(options.folder, run.name, spec, state)
    own = "" if options.configfile is None else f" --configfile {options.configfile}"
    print(f"{state}: {run.name} at {describe(position, spec)}; go on with polarvrp train {run.name}{own}")
    return 0
