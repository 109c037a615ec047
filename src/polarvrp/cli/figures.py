"""``polarvrp figures``: the paper's figures from the tables and trainings that exist."""

import argparse
import logging

from polarvrp.cli.arguments import (
    add_labels_argument,
    add_results_arguments,
    add_variants_argument,
    chosen_variants,
    results_of,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to draw; all that have tables when left out")
    add_results_arguments(parser)
    parser.add_argument(
        "--runs",
        nargs="*",
        metavar="RUN",
        help="only curves of these runs, none without a name; default: all trained ones",
    )
    add_variants_argument(parser)
    add_labels_argument(parser)


def execute(options: argparse.Namespace) -> int:
    """Draw the figures and print the path of each file."""
    from polarvrp.tables.figures import draw_figures
    from polarvrp.tables.sources import Results

    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it reports each embedded glyph
    runs = None if options.runs is None else tuple(options.runs)
    variants = chosen_variants(options)
    results = Results(*results_of(options), runs=runs, labels=options.labels, variants=variants)
    for path in draw_figures(results, options.names):
        print(path)
    return 0
