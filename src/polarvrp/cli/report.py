"""``polarvrp report``: tables and figures as one HTML page."""

import argparse
from pathlib import Path

from polarvrp.cli.arguments import add_results_arguments, results_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="experiments to show; all that were built when left out"
    )
    add_results_arguments(parser)
    parser.add_argument(
        "--output", type=Path, metavar="FILE.html", help="default: report.html in the folder of results"
    )


def execute(options: argparse.Namespace) -> int:
    """Write the page and print its path."""
    from polarvrp.outputs import require_output
    from polarvrp.tables.report import write_report
    from polarvrp.tables.sources import Results

    results = Results(*results_of(options))
    output = options.output or results.layout.report
    if options.output is not None:
        inputs = [*results.layout.root.glob("tables/*"), *results.layout.root.glob("figures/*")]
        require_output(output, ".html", {"report": results.scale}, inputs)
    write_report(results, output, options.names)
    print(output)
    return 0
