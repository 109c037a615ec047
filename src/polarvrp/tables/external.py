"""Imported solutions as rows of the main tables: files of sets by variant and size, library files for Set-X."""

from collections.abc import Collection, Iterator
from math import ceil

import pandas as pd
import pyarrow as pa

from polarvrp.config.study import ExternalMethod
from polarvrp.errors import DataError
from polarvrp.files import provenance, read_parquet
from polarvrp.problem.library_instances import Rounding
from polarvrp.problem.vrplib import load_set_x, set_x_names
from polarvrp.solutions.checking import SET_X_COLUMNS
from polarvrp.solutions.origin import SEVERAL, Origin
from polarvrp.solutions.solutions import key_of
from polarvrp.study.external import files_of
from polarvrp.tables.sources import InstanceSet, Results, read_costs


def external_solutions(results: Results, variants: Collection[str]) -> Iterator[tuple[str, InstanceSet, pd.DataFrame]]:
    """Costs and seconds of imported solutions of test sets.

    Args:
        results: Of a study with external methods.
        variants: Variants of the table.

    Yields:
        Method, test set and ``read_costs`` of each file of these variants, as far as the study has variant and size.

    Raises:
        DataError: If a file is unusable, not imported or of other instances, or a method has two of one set.
    """
    for method in results.external:
        seen = set()
        for path in files_of(method):
            table = _imported(method, str(path))
            if "variant" not in table.column_names or not len(table):
                continue
            row = table.select(["variant", "num_customers"]).slice(0, 1).to_pylist()[0]
            test_set = InstanceSet(str(row["variant"]), int(row["num_customers"]))
            asked = test_set.variant in variants and results.has_variant(test_set.variant)
            if not asked or not results.has_size(test_set.num_customers):
                continue
            if test_set in seen:
                raise DataError(
                    f"{path} is a second file of {test_set.variant} with {test_set.num_customers} customers"
                )
            seen.add(test_set)
            origin = Origin(test_set.variant, test_set.num_customers, key_of(table), SEVERAL)
            yield method.method, test_set, read_costs(path, origin, results.dataset(test_set))


def external_set_x(results: Results) -> Iterator[pd.DataFrame]:
    """Costs of imported solutions on Set-X, in the columns of ``tables.set_x``; those without a solution left out.

    Raises:
        DataError: If a file is unusable or not imported, or a method solves an instance twice.
    """
    names = set(set_x_names())
    for method in results.external:
        frames = []
        for path in files_of(method):
            table = _imported(method, str(path))
            if set(SET_X_COLUMNS) <= set(table.column_names) and pa.types.is_string(
                table.schema.field("instance").type
            ):
                frames.append(_set_x_costs(table.to_pandas(), names))
        frame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
        if frame.empty:
            continue
        if frame["instance"].duplicated().any():
            twice = frame["instance"][frame["instance"].duplicated()].iloc[0]
            raise DataError(f"external method {method.name} has two solutions of {twice}; drop a file")
        yield frame.assign(method=method.method, trained_on=None, runs=None)


def _imported(method: ExternalMethod, path: str) -> pa.Table:
    table = read_parquet(path, "make it with polarvrp import")
    if not provenance(table):
        raise DataError(f"{path} of external method {method.name} was not checked; take it in with polarvrp import")
    return table


def _set_x_costs(frame: pd.DataFrame, names: set[str]) -> pd.DataFrame:
    """Rows on Set-X by its own rules: rounded distances, routes closed."""
    kept = frame["instance"].isin(names) & frame["cost"].notna()
    if "rounding" in frame:
        kept &= (frame["rounding"] == Rounding.NEAREST) & ~frame["open_routes"]
    frame = frame[kept].copy()
    frame["best_known"] = [float(load_set_x(name)[1]) for name in frame["instance"]]
    if "published_cost" not in frame:
        frame["published_cost"] = [float(ceil(length)) for length in frame["length"]]
    return frame[["instance", "best_known", "cost", "published_cost", "seconds"]]
