"""Costs of the reference solutions that were published with the test sets, shipped in the package's ``data`` folder."""

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import as_file, files

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from polarvrp.catalog.methods import PUBLISHED_SIZES, SOLVERS
from polarvrp.errors import ConfigError
from polarvrp.problem.variants import VARIANTS, parse_variant


@dataclass(frozen=True, slots=True)
class PublishedReference:
    """The published solutions of one test set, in the order of its instances; all float64, ``[1000]``.

    Attributes:
        cost: As published, rounded at the publisher's integer scale.
        exact_cost: Length of the published routes.
        window_violation: Largest lateness at a window or closing time, 0 when none.
        limit_violation: Largest excess over the length limit, 0 when none.
    """

    cost: NDArray[np.float64]
    exact_cost: NDArray[np.float64]
    window_violation: NDArray[np.float64]
    limit_violation: NDArray[np.float64]


@lru_cache(maxsize=2 * len(VARIANTS) * len(PUBLISHED_SIZES))
def published_reference(variant: str, num_customers: int, solver: str) -> PublishedReference:
    """What is known of the published solutions of one test set.

    Args:
        variant: Name of a variant.
        num_customers: 50 or 100.
        solver: ``pyvrp`` or ``ortools``, with or without the prefix ``published-``.

    Raises:
        ConfigError: If nothing was published under that name.
    """
    name = parse_variant(variant).name
    solver = solver.removeprefix("published-")
    if num_customers not in PUBLISHED_SIZES or solver not in SOLVERS:
        raise ConfigError(
            f"no published solutions of {solver} for {num_customers} customers; there are those of "
            f"{' and '.join(SOLVERS)} for {' and '.join(map(str, PUBLISHED_SIZES))}"
        )
    with as_file(files("polarvrp") / "data" / "published_references.parquet") as path:
        table: pa.Table = pq.ParquetFile(path).read_row_group(_row_group(name, num_customers, solver))
    arrays = [table[column].to_numpy().astype(np.float64) for column in PublishedReference.__dataclass_fields__]
    for array in arrays:
        array.flags.writeable = False
    return PublishedReference(*arrays)


def published_costs(variant: str, num_customers: int, solver: str = "pyvrp") -> NDArray[np.float64]:
    """Published cost of each instance of a test set, float64, ``[1000]``; arguments as ``published_reference``."""
    return published_reference(variant, num_customers, solver).cost


def _row_group(variant: str, num_customers: int, solver: str) -> int:
    """Sets follow each other by variant, then size, then solver."""
    position = list(VARIANTS).index(variant) * len(PUBLISHED_SIZES) + PUBLISHED_SIZES.index(num_customers)
    return position * len(SOLVERS) + SOLVERS.index(solver)
