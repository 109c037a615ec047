"""A trained policy on the instances of CVRPLIB's Set-X (Uchoa et al. 2017).

Coordinates are scaled into the unit square for the network; costs are computed from the file's coordinates, with
distances rounded as CVRPLIB counts, and in the published form, the length without rounding, rounded up once.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from polarvrp.decoding.greedy import GreedySolver
from polarvrp.errors import DataError, InfeasibleTourError
from polarvrp.files import write_rows
from polarvrp.outputs import require_kept, require_output, stated_subject
from polarvrp.problem.gaps import gap_percent
from polarvrp.problem.instances import to_tensors
from polarvrp.problem.library_prices import check_routes
from polarvrp.problem.tours import actions_to_routes
from polarvrp.problem.vrplib import load_set_x, to_instances
from polarvrp.solutions.checking import read_set_x

SCHEMA = pa.schema(
    [
        pa.field("instance", pa.string(), nullable=False),
        pa.field("best_known", pa.int64(), nullable=False),
        pa.field("cost", pa.int64(), nullable=False),
        pa.field("gap_percent", pa.float64(), nullable=False),
        pa.field("published_cost", pa.int64(), nullable=False),
        pa.field("published_gap_percent", pa.float64(), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("actions", pa.list_(pa.uint16()), nullable=False),
    ]
)


def evaluate_set_x(solver: GreedySolver, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Solve instances one by one.

    Args:
        solver: Of the policy.
        names: Instances of Set-X.

    Yields:
        One row of ``SCHEMA`` an instance.
    """
    for name in names:
        library, best_known, _ = load_set_x(name)
        instances = to_instances(library)
        if solver.engine(instances).level == "fused":  # its kernels may have to be compiled for this size
            solver.solve(to_tensors(instances, solver.device))
        start_s = time.perf_counter()
        _, (actions,) = solver.solve(to_tensors(instances, solver.device))
        seconds = time.perf_counter() - start_s
        report = check_routes(library, actions_to_routes(actions, num_depots=1))
        if report.first_problem is not None:
            raise InfeasibleTourError(f"{name}: {report.first_problem}")
        published = math.ceil(report.length)
        yield {
            "instance": name,
            "best_known": best_known,
            "cost": report.cost,
            "gap_percent": gap_percent(report.cost, best_known),
            "published_cost": published,
            "published_gap_percent": gap_percent(published, best_known),
            "seconds": seconds,
            "actions": actions,
        }


def require_set_x_output(path: Path, run: str, names: Sequence[str], inputs: Sequence[Path]) -> None:
    """``outputs.require_output`` for a file of costs on Set-X, all of whose instances must be written again.

    Args:
        path: What the user named.
        run: Which solves.
        names: Instances that will be written.
        inputs: Files that are read.

    Raises:
        ConfigError: If the output is no ``.parquet`` file or an input.
        DataError: If another file is there, or one that holds further instances, or nothing can be written.
    """
    require_output(path, ".parquet", {"run": run}, inputs, stated=_stated)
    require_kept(path, lambda found: (row["instance"] for row in read_set_x(found)), names)


def _stated(path: Path) -> dict[str, Any] | None:
    """What a file of costs on Set-X says about itself: its run; None if it is no such file."""
    try:
        read_set_x(path)
    except DataError:
        return None
    said = stated_subject(path) or {}
    model = said.get("model", {})
    return {"run": model.get("run")} | said


def write_set_x(path: Path, rows: Sequence[Mapping[str, Any]], provenance: Mapping[str, Any]) -> None:
    """Write rows of ``evaluate_set_x``."""
    write_rows(path, rows, SCHEMA, provenance)
