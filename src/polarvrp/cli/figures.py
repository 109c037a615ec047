"""``polarvrp figures``: the paper's figures from the tables and trainings that exist."""

import argparse
import logging
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to draw; all that have tables when left out")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: results")
    parser.add_argument(
        "--scale",
        choices=("quick", "paper"),
        default="quick",
        help="scale of the results, printed in each title (default: quick)",
    )
    parser.add_argument("--runs", nargs="+", metavar="RUN", help="only curves of these runs; default: all trained ones")


def execute(options: argparse.Namespace) -> int:
    """Draw the figures and print the path of each file."""
    from polarvrp.tables.figures import draw_figures
    from polarvrp.tables.sources import Results

    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it reports each embedded glyph
    runs = None if options.runs is None else tuple(options.runs)
    for path in draw_figures(Results(options.results, options.scale, runs), options.names):
        print(path)
    return 0
