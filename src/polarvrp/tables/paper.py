"""The paper's printed tables, shipped as CSV, and its row orders."""

import re
from functools import lru_cache
from importlib.resources import as_file, files

import pandas as pd
from pyarrow.csv import ConvertOptions, read_csv

from polarvrp.errors import ConfigError

PAPER_SIZES = (50, 100)
"""Numbers of customers that the paper trains and tests on."""

SOLVER_CORES = 16
"""Cores among which the paper spreads a solver's runs, one core each, when it prints the time of a test set."""

IN_DISTRIBUTION_ORDER = (
    *("CVRP", "VRPTW", "OVRP", "VRPL", "VRPB", "OVRPTW", "VRPBL", "VRPBLTW"),
    *("VRPBTW", "VRPLTW", "OVRPB", "OVRPBL", "OVRPBLTW", "OVRPBTW", "OVRPL", "OVRPLTW"),
)
"""The 16 training variants in the row order of the paper's first table, left block before right block."""

_MIXED = ("VRPMB", "OVRPMB", "VRPMBL", "VRPMBTW", "OVRPMBL", "OVRPMBTW", "VRPMBLTW", "OVRPMBLTW")
_MULTI_DEPOT = (
    *("VRP", "OVRP", "VRPB", "VRPL", "VRPTW", "OVRPTW", "OVRPB", "OVRPL"),
    *("VRPBL", "VRPBTW", "VRPLTW", "OVRPBL", "OVRPBTW", "OVRPLTW", "VRPBLTW", "OVRPBLTW"),
)
ZERO_SHOT_ORDER = (*_MIXED, *(f"MD{name}" for name in (*_MULTI_DEPOT, *_MIXED)))
"""The 32 unseen variants in the row order of the paper's zero-shot table."""

SET_X_GROUPS = {"average n<251": (0, 250), "average 251<=n<=500": (251, 500), "average n>=501": (501, 1001)}
"""Size groups that the paper averages over, as bounds of the number in an instance's name (it counts the depot)."""

PAPER_TABLES = (
    *("in_distribution", "zero_shot", "set_x", "paradigms_ours", "temperature_sensitivity", "refined_tours"),
    *("task_experts", "preference_margins", "expert_contributions", "training_cost"),
)


def read_paper(name: str) -> pd.DataFrame:
    """One of the paper's tables, a row a printed row; cells printed as ``*`` are missing.

    Args:
        name: One of ``PAPER_TABLES``.

    Raises:
        ConfigError: If the paper has no such table.
    """
    if name not in PAPER_TABLES:
        raise ConfigError(f"the paper has no table {name!r}; there are {', '.join(PAPER_TABLES)}")
    return _read(name).copy()


@lru_cache(maxsize=len(PAPER_TABLES))
def _read(name: str) -> pd.DataFrame:
    with as_file(files("polarvrp") / "data" / "paper_tables" / f"{name}.csv") as path:
        frame: pd.DataFrame = read_csv(path, convert_options=ConvertOptions(null_values=["", "*"])).to_pandas()
    return frame


def set_x_group(instance: str) -> str:
    """Size group of a Set-X instance.

    Raises:
        ConfigError: If ``instance`` is not named like ``X-n101-k25``.
    """
    match = re.fullmatch(r"X-n(\d+)-k\d+", instance)
    if match is None:
        raise ConfigError(f"Set-X instances are named like X-n101-k25, got {instance!r}")
    number = int(match[1])
    return next(name for name, (low, high) in SET_X_GROUPS.items() if low <= number <= high)
