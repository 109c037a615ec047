"""``polarvrp models``: shipped and local models with their sizes, variants and gaps."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from polarvrp.errors import DataError
from polarvrp.files import is_folder

if TYPE_CHECKING:
    from polarvrp.release.listing import ListedModel, MeanGap

HEADS = ("model", "run", "n", "parameters", "trained on", "gap, 16 variants", "gap, other 32", "gap, Set-X")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--results", type=Path, nargs="+", metavar="FOLDER", help="folders of results (default: those of all scales)"
    )


def execute(options: argparse.Namespace) -> int:
    """Print a row a model."""
    from tabulate import tabulate

    from polarvrp.catalog.scales import SCALES
    from polarvrp.release.listing import listed_models
    from polarvrp.study.layout import Layout

    missing = next((root for root in options.results or () if not is_folder(root)), None)
    if missing is not None:
        raise DataError(f"{missing} is no folder; name folders of results")
    roots = options.results or list(dict.fromkeys(Layout.of_scale(scale).root for scale in SCALES))
    models = listed_models(roots)
    if not models:
        places = ", ".join(f"{root}/models" for root in roots)
        print(f"no models: this version ships none, and there are none in {places}; train one with polarvrp train")
        return 0
    print(tabulate([_row(model) for model in models], HEADS, tablefmt="plain", disable_numparse=True))
    print("Gaps in percent, means over so many variants or instances; to the published PyVRP costs or our own.")
    return 0


def _row(model: ListedModel) -> list[str]:
    gaps = (model.training_gap, model.zero_shot_gap, model.set_x_gap)
    facts = [model.name, model.run, str(model.num_customers), f"{model.parameters:,}", model.variants]
    return [*facts, *(_gap(gap) for gap in gaps)]


def _gap(gap: MeanGap | None) -> str:
    from polarvrp.evaluation.gaps import shown_gap

    return "–" if gap is None else f"{shown_gap(gap.percent)} ({gap.count})"
