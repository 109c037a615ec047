"""``polarvrp sync-wandb``: upload trainings and test results to W&B, each once."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from polarvrp.cli.arguments import add_results_arguments, results_of

if TYPE_CHECKING:
    from polarvrp.training.wandb_runs import Mode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("runs", metavar="RUN", nargs="*", help="names of runs (default: all that were begun)")
    add_results_arguments(parser)
    parser.add_argument(
        "--offline", action="store_true", help="write offline runs to FOLDER/wandb instead, unfinished trainings too"
    )


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    from polarvrp.errors import ConfigError, DataError
    from polarvrp.study.runs import parse_run
    from polarvrp.tables.commands import workflow_command
    from polarvrp.tables.sources import Results
    from polarvrp.tables.wandb_sync import begun_runs, sync
    from polarvrp.training import wandb_runs

    results = Results(*results_of(options))
    layout = results.layout
    runs = [parse_run(run) for run in options.runs] or begun_runs(layout)
    if not runs:
        raise DataError(f"{layout.root} holds no trained run; make some with: {workflow_command(results, 'train')}")
    mode: Mode = "offline" if options.offline else "online"
    fault = wandb_runs.login_fault() if mode == "online" else None
    if fault is not None:
        raise ConfigError(
            f"W&B cannot be used online: {fault}; check the network and the key (`wandb login`, WANDB_API_KEY), or "
            "write --offline runs"
        )
    done = "written" if mode == "offline" else "uploaded"
    for name, identity in sync(layout, runs, mode, whole=not options.runs):
        print(f"{name}: already {done}" if identity is None else f"{name}: {done} as {identity}")
    return 0
