"""Solutions in others' forms: RouteFinder's archives, ``.sol`` files, and a plain Parquet of routes.

| form | holds |
|---|---|
| ``*_sol_{solver}.npz`` | RouteFinder's: ``actions`` padded with depots, ``costs`` of either sign, ``time`` of all |
| ``.sol`` | one library instance: ``Route #1: 5 3 8`` and ``Cost 27591`` |
| plain Parquet | a row an instance: ``instance``, and ``routes`` or ``actions``; ``cost``, ``seconds`` if known |

Our own files of solutions of library instances are read too, and say how their costs count.

Nothing here judges a solution; :mod:`polarvrp.solutions.importing` does.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from polarvrp.errors import DataError, InfeasibleTourError
from polarvrp.files import read_parquet
from polarvrp.problem.archives import read_arrays
from polarvrp.problem.library_instances import Convention
from polarvrp.problem.tours import Route, actions_to_routes, require_no_negative_node
from polarvrp.problem.vrplib import read_sol
from polarvrp.solutions.library_rows import LibraryRow, is_library_table, read_library_rows
from polarvrp.solutions.solutions import plain_rows

INSTANCE = "instance"
TOURS = ("routes", "actions")


@dataclass(frozen=True, slots=True)
class ForeignSolution:
    """One instance's solution as others state it.

    Attributes:
        source: File that it comes from.
        instance: Position in its set from 0, or the name of a library instance.
        nodes: Flat list of nodes in any form that ``actions_to_routes`` takes; None without a solution.
        listed: Routes as lists of nodes, where the file lists them so; each may begin and end with its depot.
        cost: Stated cost, positive; None where none is stated.
        seconds: Stated time, None where none is.
        convention: How its cost counts; None in others' files, which do not say it.
    """

    source: Path
    instance: int | str
    nodes: tuple[int, ...] | None = None
    listed: tuple[tuple[int, ...], ...] | None = None
    cost: float | None = None
    seconds: float | None = None
    convention: Convention | None = None

    @property
    def is_solved(self) -> bool:
        """Whether there is anything to price."""
        return self.nodes is not None or self.listed is not None

    def routes(self, num_depots: int) -> list[Route]:
        """Routes with their depots, those that visit nobody left out.

        Args:
            num_depots: K of the instance.

        Raises:
            InfeasibleTourError: If a node is negative, or with several depots a route does not say where it begins, or
                ends elsewhere.
        """
        if self.listed is None:
            return actions_to_routes(self.nodes or (), num_depots)
        routes = [_listed_route(number, nodes, num_depots) for number, nodes in enumerate(self.listed, start=1)]
        return [route for route in routes if route.customers]


def read_foreign(path: Path, *, changed: bool = False) -> list[ForeignSolution]:
    """Solutions of a file in one of the forms above, told by its suffix.

    Args:
        path: The file.
        changed: Whether it may have been changed since it was written, for those who judge its content.

    Raises:
        DataError: If the file is missing, damaged or of another form.
    """
    match path.suffix.lower():
        case ".npz":
            return _read_archive(path)
        case ".sol":
            return [_read_sol(path)]
        case ".parquet":
            return _read_plain(path, changed)
    raise DataError(f"{path}: unknown form; wanted is RouteFinder's *_sol_*.npz, a .sol or a Parquet file of routes")


def stated_solver(path: Path) -> str | None:
    """The solver in the name of RouteFinder's archive, ``50_sol_pyvrp.npz``; None in other names."""
    match = re.fullmatch(r".*_sol_(\w+)\.npz", path.name)
    return match[1] if match else None


def instances_beside(path: Path) -> Path | None:
    """The file of instances that solutions lie beside by convention; None if there is none.

    ``50.npz`` beside ``50_sol_pyvrp.npz``, ``A-n32-k5.vrp`` or ``C101.txt`` beside the ``.sol`` of that name.
    """
    if path.suffix.lower() == ".npz":
        candidates = [path.with_name(re.sub(r"_sol_\w+\.npz$", ".npz", path.name))]
    else:
        stem = re.sub(r"\.vrp$", "", path.stem, flags=re.IGNORECASE)
        candidates = [path.with_name(stem + suffix) for suffix in (".vrp", ".txt", ".VRP", ".TXT")]
    return next((other for other in candidates if other != path and other.is_file()), None)


def _listed_route(number: int, nodes: Sequence[int], num_depots: int) -> Route:
    require_no_negative_node(nodes)
    depots = [node for node in nodes if node < num_depots]
    customers = tuple(node for node in nodes if node >= num_depots)
    ends = {place for place, node in enumerate(nodes) if node < num_depots}
    if not ends <= {0, len(nodes) - 1}:
        raise InfeasibleTourError(f"route {number} passes a depot on its way; list it as two routes")
    if num_depots > 1 and customers and 0 not in ends:
        raise InfeasibleTourError(f"route {number} does not begin with its depot, which it must with several")
    if len(set(depots)) > 1:
        raise InfeasibleTourError(f"route {number} begins at depot {depots[0]} and ends at depot {depots[1]}")
    return Route(depots[0] if depots else 0, customers)


def _read_sol(path: Path) -> ForeignSolution:
    solution = read_sol(path)
    name = re.sub(r"\.vrp$", "", path.stem, flags=re.IGNORECASE)
    listed = tuple(route.customers for route in solution.routes)
    return ForeignSolution(path, name, listed=listed, cost=solution.cost, convention=solution.convention)


def _read_archive(path: Path) -> list[ForeignSolution]:
    arrays = read_arrays(path)
    if "actions" not in arrays:
        held = ", ".join(arrays) or "nothing"
        raise DataError(f"{path}: no archive of solutions, it lacks the array 'actions' and holds {held}")
    actions = arrays["actions"]
    if actions.ndim != 2 or actions.dtype.kind not in "iu":
        raise DataError(f"{path}: actions must be whole numbers [instances, steps], got {_described(actions)}")
    count = len(actions)
    costs = arrays.get("costs", np.full(count, np.nan))
    if costs.shape not in ((count,), (count, 1)) or costs.dtype.kind not in "fiu":
        raise DataError(f"{path}: costs must be numbers [{count}] to match actions, got {_described(costs)}")
    seconds = _share(arrays.get("time"), count)
    return [
        ForeignSolution(path, index, _visited(row), cost=_finite(abs(float(cost))), seconds=seconds)
        if row.any() and not math.isinf(float(cost))
        else ForeignSolution(path, index, seconds=seconds)
        for index, (row, cost) in enumerate(zip(actions, costs.ravel(), strict=True))
    ]


def _visited(row: Any) -> tuple[int, ...]:
    """Nodes of a row without its padding, zeros at the end."""
    return tuple(np.trim_zeros(row, "b").tolist())


def _share(time: Any, count: int) -> float | None:
    """Each instance's part of the time that all took together."""
    if time is None or time.size != 1 or time.dtype.kind not in "fiu" or count == 0:
        return None
    total = _finite(float(time.ravel()[0]))
    return None if total is None else total / count


def _read_plain(path: Path, changed: bool) -> list[ForeignSolution]:
    table = read_parquet(path, "check the path", changed=changed)
    if is_library_table(table):
        return [_own_solution(path, row) for row in read_library_rows(path, changed=changed)]
    listed = [
        field.name for field in table.schema if pa.types.is_list(field.type) or pa.types.is_large_list(field.type)
    ]
    tours = next((name for name in TOURS if name in listed), None)
    if INSTANCE not in table.column_names or tours is None:
        held = ", ".join(table.column_names) or "none"
        raise DataError(f"{path}: a plain Parquet needs instance and lists in routes or actions, it has {held}")
    rows = enumerate(plain_rows(table), start=1)
    named = [(number, row) for number, row in rows if row[tours] or row[INSTANCE] is not None]
    return [_plain_solution(path, number, row, tours) for number, row in named]


def _own_solution(path: Path, row: LibraryRow) -> ForeignSolution:
    nodes = row.actions if row.cost is not None else None
    convention = row.convention
    return ForeignSolution(path, row.instance, nodes, cost=row.cost, seconds=row.seconds, convention=convention)


def _plain_solution(path: Path, number: int, row: dict[str, Any], tours: str) -> ForeignSolution:
    instance, tour = row[INSTANCE], row[tours]
    if isinstance(instance, bool) or not isinstance(instance, int | str):
        raise DataError(f"{path}: row {number} must name its instance by a number or a name, got {instance!r}")
    cost, seconds = (_stated(path, number, name, row.get(name)) for name in ("cost", "seconds"))
    if not tour:
        return ForeignSolution(path, instance, cost=cost, seconds=seconds)
    if tours == "actions":
        return ForeignSolution(path, instance, _whole(path, number, tour), cost=cost, seconds=seconds)
    listed = tuple(_whole(path, number, route) for route in tour)
    return ForeignSolution(path, instance, listed=listed, cost=cost, seconds=seconds)


def _whole(path: Path, number: int, nodes: Any) -> tuple[int, ...]:
    if not isinstance(nodes, list) or not all(isinstance(node, int) and not isinstance(node, bool) for node in nodes):
        raise DataError(f"{path}: row {number} must list nodes, whole numbers, got {str(nodes)[:60]}")
    return tuple(nodes)


def _stated(path: Path, number: int, name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"{path}: row {number} must state its {name} as a number, got {value!r}")
    return _finite(float(value))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _described(array: Any) -> str:
    return f"{array.dtype} {list(array.shape)}"
