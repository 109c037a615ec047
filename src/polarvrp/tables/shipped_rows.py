"""Models that come with the package as rows of the main tables, each at the size that it was trained at."""

from collections.abc import Collection, Iterator
from pathlib import Path

import pandas as pd

from polarvrp.catalog.methods import PUBLISHED_SIZES
from polarvrp.solutions.checking import read_set_x
from polarvrp.solutions.origin import Origin
from polarvrp.study.layout import Layout
from polarvrp.study.metadata import require_recorded
from polarvrp.study.shipped import (
    metadata_path,
    set_x_path,
    shipped_folder,
    shipped_models,
    shipped_size,
    solutions_path,
)
from polarvrp.tables.labels import shipped_method
from polarvrp.tables.sources import InstanceSet, Results, read_costs


def shipped_solutions(results: Results, variants: Collection[str]) -> Iterator[tuple[str, InstanceSet, pd.DataFrame]]:
    """Costs and seconds of shipped models on test sets of their own sizes.

    Evaluations that ship are of the published test sets, so they stand where gaps are to published costs, and alone:
    the study's own of these sizes are of test sets of another seed. Elsewhere the study's own stand.

    Args:
        results: Of any study.
        variants: Variants of the table.

    Yields:
        Method, test set and ``read_costs`` of each.

    Raises:
        DataError: If a file is unusable or of another model.
    """
    for name in shipped_models():
        size, folder = shipped_size(name), shipped_folder(name)
        if not results.has_size(size):
            continue
        run, ships = _run_of(folder), size in PUBLISHED_SIZES and results.reference_name in (None, "published-pyvrp")
        for variant in variants:
            test_set, origin = InstanceSet(variant, size), Origin(variant, size, "run", run)
            path, instances = results.layout.shipped_evaluation(name, variant, size), results.dataset(test_set)
            if ships:  # of all published instances, whatever part of them the study has
                path, instances = solutions_path(folder, variant, size), Layout(folder).dataset("test", variant, size)
            if path.is_file():
                yield shipped_method(size), test_set, read_costs(path, origin, instances)


def shipped_set_x(instances: Collection[str]) -> Iterator[pd.DataFrame]:
    """Costs of shipped models on Set-X, in the columns of ``tables.set_x``.

    Args:
        instances: Those that the study solved.

    Raises:
        DataError: If a file is unusable.
    """
    columns = ["instance", "best_known", "cost", "published_cost", "seconds"]
    for name in shipped_models():
        path, size = set_x_path(shipped_folder(name)), shipped_size(name)
        if path.is_file():
            frame = pd.DataFrame(read_set_x(path))[columns]
            yield frame[frame["instance"].isin(instances)].assign(
                method=shipped_method(size), trained_on=size, runs=None
            )


def _run_of(folder: Path) -> str:
    """Run that a shipped model was trained as."""
    return str(require_recorded(metadata_path(folder), ("run",), "install the package again")["run"])
