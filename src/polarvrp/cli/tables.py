"""``polarvrp tables``: the paper's tables from the results that exist."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="tables to build; all that have results when left out")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: results")
    parser.add_argument(
        "--scale",
        choices=("quick", "paper"),
        default="quick",
        help="scale of the results, printed in each table (default: quick)",
    )
    parser.add_argument(
        "--reference",
        choices=("published-pyvrp", "pyvrp", "best_known"),
        help="what gaps are taken to (default: published-pyvrp at scale paper, else pyvrp)",
    )
    parser.add_argument("--runs", nargs="+", metavar="RUN", help="only these runs; default: all that have results")


def execute(options: argparse.Namespace) -> int:
    """Build the tables and print the path of each file."""
    from polarvrp.tables.build import build_tables
    from polarvrp.tables.sources import Results

    runs = None if options.runs is None else tuple(options.runs)
    for path in build_tables(Results(options.results, options.scale, runs, options.reference), options.names):
        print(path)
    return 0
