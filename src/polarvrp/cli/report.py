"""``polarvrp report``: tables and figures as one HTML page."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--tables", type=Path, nargs="*", default=[], metavar="FILE.md", help="tables, in order")
    parser.add_argument("--figures", type=Path, nargs="*", default=[], metavar="FILE.png", help="figures, in order")
    parser.add_argument("--scale", choices=("quick", "paper"), default="quick", help="scale of the study")
    parser.add_argument("--output", type=Path, default=Path("results/report.html"), metavar="FILE.html")


def execute(options: argparse.Namespace) -> int:
    """Write the page and print its path."""
    from polarvrp.tables.report import write_report

    write_report(options.output, options.tables, options.figures, options.scale)
    print(options.output)
    return 0
