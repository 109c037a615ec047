"""``polarvrp shipped-results``: tables of a shipped model beside the paper's numbers, as Markdown."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("model", metavar="MODEL", help="a model that ships, e.g. pretrained-n50, or a packed folder")


def execute(options: argparse.Namespace) -> int:
    """Print the tables."""
    from polarvrp.release.results import shipped_tables
    from polarvrp.study.shipped import shipped_folder
    from polarvrp.tables.printing import to_markdown

    given = Path(options.model)
    print(to_markdown(shipped_tables(given if given.is_dir() else shipped_folder(options.model))), end="")
    return 0
