"""``polarvrp tables``: the paper's tables from the results that exist."""

import argparse

from polarvrp.cli.arguments import (
    add_external_argument,
    add_labels_argument,
    add_results_arguments,
    add_variants_argument,
    chosen_variants,
    external_methods,
    results_of,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    from polarvrp.catalog.methods import REFERENCES
    from polarvrp.study.layout import UNSEEN_SPLITS

    parser.add_argument("names", nargs="*", metavar="NAME", help="tables to build; all that have results when left out")
    add_results_arguments(parser)
    parser.add_argument(
        "--reference",
        choices=REFERENCES,
        help="what gaps are taken to (default: published-pyvrp at its sizes, else pyvrp)",
    )
    parser.add_argument(
        "--runs", nargs="*", metavar="RUN", help="only these runs, none without a name; default: all that have results"
    )
    add_variants_argument(parser)
    parser.add_argument(
        "--compared", nargs="+", metavar="NAME", help="tables that paper_comparison reads; default: all that were built"
    )
    parser.add_argument(
        "--protocols",
        nargs="+",
        choices=UNSEEN_SPLITS,
        help="zero_shot lists runs by these beside strict; default: all that they solved unseen variants by",
    )
    add_labels_argument(parser)
    add_external_argument(parser)


def execute(options: argparse.Namespace) -> int:
    """Build the tables and print the path of each file."""
    from polarvrp.tables.build import build_tables
    from polarvrp.tables.sources import Results

    results = Results(
        *results_of(options),
        runs=None if options.runs is None else tuple(options.runs),
        reference_name=options.reference,
        labels=options.labels,
        external=external_methods(options),
        variants=chosen_variants(options),
        compared=None if options.compared is None else tuple(options.compared),
        protocols=None if options.protocols is None else tuple(options.protocols),
    )
    for path in build_tables(results, options.names):
        print(path)
    return 0
