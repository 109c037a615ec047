"""``polarvrp sync-wandb``: upload training histories to W&B, each once."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("runs", metavar="RUN", nargs="*", help="names of runs (default: all that were trained)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of results (default: results)")


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    from polarvrp.errors import ConfigError, DataError
    from polarvrp.study.layout import Layout
    from polarvrp.study.runs import parse_run
    from polarvrp.training.tracking import has_key, read_training, replay

    layout = Layout(options.results)
    every = layout.history("*").relative_to(layout.root)
    runs = options.runs or sorted(path.parent.name for path in layout.root.glob(str(every)))
    if not runs:
        raise DataError(f"{layout.root} holds no trained run; make one with: snakemake --cores all train")
    trainings = [(parse_run(run).name, *read_training(layout.model(run))) for run in runs]
    if not has_key():
        raise ConfigError("W&B accepts no key of this machine; run `wandb login` or set WANDB_API_KEY")
    for run, spec, rows in trainings:
        identity = replay(run, spec, rows, options.results, "online")
        print(f"{run}: already uploaded" if identity is None else f"{run}: uploaded as {identity}")
    return 0
