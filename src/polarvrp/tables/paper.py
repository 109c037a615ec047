"""The paper's printed tables, shipped as CSV, with its row orders and the names behind its method labels."""

import csv
import re
from functools import lru_cache
from importlib.resources import files

from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.catalog.methods import METHODS as RECORDS
from polarvrp.catalog.methods import PUBLISHED
from polarvrp.errors import ConfigError

PAPER_SCALE = "paper"
"""The scale whose numbers are results."""

PAPER_SIZES = (50, 100)
"""Numbers of customers that the paper trains and tests on."""

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

METHODS = {record.label: stem for stem, record in RECORDS.items() if not stem.startswith(PUBLISHED)}
"""The paper's label of each of the nine compared methods, in its order, and the stem of ours: a solver's name, or a
run's name without size and seed."""

TRAINING_COST_METHODS = {record.label: record.stem for record in EXPERIMENTS["training_cost"].methods}
"""Label of each row of the paper's table of training cost, in its order, and the stem of ours."""

SET_X_GROUPS = {"average n<251": (0, 250), "average 251<=n<=500": (251, 500), "average n>=501": (501, 1001)}
"""Size groups that the paper averages over, as bounds of the number in an instance's name (it counts the depot)."""

PAPER_TABLES = (
    *("in_distribution", "zero_shot", "set_x", "paradigms_ours", "temperature_sensitivity", "refined_tours"),
    *("task_experts", "preference_margins", "expert_contributions", "training_cost"),
)

PaperRow = dict[str, str | float | None]


@lru_cache(maxsize=len(PAPER_TABLES))
def read_paper(name: str) -> tuple[PaperRow, ...]:
    """Rows of one of the paper's tables, numbers as floats, cells printed as ``*`` as None.

    Args:
        name: One of ``PAPER_TABLES``.

    Raises:
        ConfigError: If the paper has no such table.
    """
    if name not in PAPER_TABLES:
        raise ConfigError(f"the paper has no table {name!r}; there are {', '.join(PAPER_TABLES)}")
    text = (files("polarvrp") / "data" / "paper_tables" / f"{name}.csv").read_text(encoding="utf-8")
    return tuple(
        {key: _value(cell) for key, cell in row.items()} for row in csv.DictReader(text.splitlines(), strict=True)
    )


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


def _value(cell: str) -> str | float | None:
    if not cell:
        return None
    try:
        return float(cell)
    except ValueError:
        return cell
