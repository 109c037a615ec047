"""Solutions of library instances in and out, the unit square, and Set-X from the package.

Shape legend: N = K + n nodes, depots first whatever their numbers in the file.
"""

import dataclasses
import json
import math
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from polarvrp.errors import DataError
from polarvrp.files import write_text
from polarvrp.outputs import MARK
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.library_files import parse_library, read_library
from polarvrp.problem.library_instances import Convention, LibraryInstance, Rounding, counted_by
from polarvrp.problem.library_text import finite_number, read_text
from polarvrp.problem.tours import Route
from polarvrp.problem.variants import Variant

LARGEST_CAPACITY = 2**30 - 1
"""Of instances for networks, whose loads are whole numbers of 32 bits."""


@dataclass(frozen=True, slots=True)
class LibrarySolution:
    """Routes of a ``.sol`` file; customers are numbered after the depots, from 1 with one depot.

    Routes name no depot; theirs is 0. The convention is that of the cost, which only our own files state.
    """

    routes: list[Route]
    cost: float | None
    convention: Convention | None = None


def read_sol(path: str | Path) -> LibrarySolution:
    """Read a solution.

    Raises:
        DataError: If the file is missing, has no routes or has one that is no list of customers.
    """
    return parse_sol(read_text(path), str(path))


def read_solved(
    instance: Path, solution: Path, rounding: Rounding | None, open_routes: bool
) -> tuple[LibraryInstance, LibrarySolution]:
    """An instance, counted as the file of its solution says, and that solution.

    Args:
        instance: File of the instance.
        solution: ``.sol`` file.
        rounding: Option of the user, which goes before what files say.
        open_routes: Option of the user.

    Raises:
        DataError: If a file is missing or unusable.
    """
    library, solved = read_library(instance, rounding, open_routes), read_sol(solution)
    return counted_by(library, solved.convention, rounding, open_routes), solved


def parse_sol(text: str, source: str) -> LibrarySolution:
    """``read_sol`` of text; lines other than routes, the cost and our own comment are comments of others."""
    routes: list[Route] = []
    cost = convention = None
    for number, line in enumerate(text.splitlines(), start=1):
        route = re.match(r"\s*route\s*#?\s*\d+\s*:?(.*)", line, re.IGNORECASE)
        stated = re.match(r"\s*cost(?![^\W\d])\s*:?\s*(\S+)", line, re.IGNORECASE)  # the word alone, not Costs
        marked = re.match(rf"Comment {MARK}(.*)", line)
        if route:
            words = route.group(1).split()
            if not all(re.fullmatch(r"0*[1-9]\d{0,8}", word, re.ASCII) for word in words):
                raise DataError(
                    f"{source}: line {number} must list customers, numbers from 1, got {line.strip()[:60]!r}"
                )
            routes.append(Route(0, tuple(int(word) for word in words)))
        elif stated:
            cost = finite_number(stated.group(1))
            if cost is None or not math.isfinite(cost):
                raise DataError(f"{source}: line {number} must state the cost as a number, got {line.strip()[:60]!r}")
        elif marked:
            convention = _stated_convention(marked.group(1))
    if not routes:
        raise DataError(f"{source}: no solution file; expected lines 'Route #1: 5 3 8' and 'Cost 27591'")
    return LibrarySolution([route for route in routes if route.customers], cost, convention)


def write_sol(path: str | Path, routes: Iterable[Route], cost: float, comment: str = "") -> None:
    """Write a solution the way CVRPLIB does, atomically; a comment follows the cost, which readers skip.

    What ``convention_stated`` says belongs into it by ``outputs.marked``, else the file is read as others' are.
    """
    comment = comment.replace("Route", r"\u0052oute")  # vrplib takes any line with the word for a route
    lines = [f"Route #{k}: {' '.join(map(str, route.customers))}" for k, route in enumerate(routes, start=1)]
    lines += [f"Cost {cost:.15g}", *([f"Comment {comment}"] if comment else [])]
    write_text(path, "\n".join(lines) + "\n")


def convention_stated(library: LibraryInstance) -> dict[str, Any]:
    """How the costs of an instance count, as the comment of a ``.sol`` says it."""
    return {"distances": str(library.rounding), "open": library.open_routes}


def _stated_convention(comment: str) -> Convention | None:
    """What ``convention_stated`` said; None where it did not."""
    try:
        said = json.loads(comment)
        return Convention(Rounding(said["distances"]), bool(said["open"]))
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def to_instances(library: LibraryInstance) -> Instances[NodeArrays]:
    """The instance in the unit square, a batch of one.

    Both axes are divided by the same number, the larger range of coordinates, depots included, so that distances keep
    their ratios, and so are windows, service times and the limit; demands are divided by the capacity. Distances are
    those of the points, unrounded: what a solution costs and whether it is feasible, the library instance tells. A
    limit that counts service becomes time windows; times are counted from the first opening of a depot.

    Returns:
        One instance, floats in float32, demands in float64, from which whole ones are recovered exactly by
        ``capacity``, that of the library.

    Raises:
        DataError: If the capacity is above ``LARGEST_CAPACITY``, or a limit counts waiting and service.
    """
    xy = library.coordinates
    low = xy.min(axis=0)
    scale = float((xy.max(axis=0) - low).max()) or 1.0
    nodes = len(xy)
    if library.capacity > LARGEST_CAPACITY:
        raise DataError(
            f"{library.name}: CAPACITY must be at most {LARGEST_CAPACITY}, got {library.capacity}; scale it"
        )
    variant, limit = variant_of_library(library), library.distance_limit
    service = np.zeros(nodes) if library.service_times is None else library.service_times
    windows = np.tile([0.0, np.inf], (nodes, 1)) if library.time_windows is None else library.time_windows
    if variant.distance_limit and (service > 0).any():
        if variant.time_windows:
            raise DataError(f"{library.name}: its limit counts service and waiting; networks know limits of distance")
        # Nobody waits, so the limit is a closing time for vehicles that leave at 0.
        windows = np.column_stack((np.zeros(nodes), limit - service))
        variant, limit = dataclasses.replace(variant, distance_limit=False, time_windows=True), math.inf
    opening = windows[: library.num_depots, 0].min()
    windows = np.maximum(windows - opening, 0.0)  # vehicles of networks leave at 0
    none = np.zeros(nodes, dtype=np.float32)
    collected = none if library.pickups is None else library.pickups / library.capacity
    return Instances(
        locs=((xy - low) / scale).astype(np.float32)[None],
        demand_linehaul=(library.demands / library.capacity)[None],
        demand_backhaul=collected[None],
        time_windows=(windows / scale).astype(np.float32)[None],
        service_time=(service / scale).astype(np.float32)[None],
        distance_limit=np.full(1, limit / scale, dtype=np.float32),
        open_route=np.full(1, library.open_routes),
        backhaul_class=np.ones(1, dtype=np.int64),
        flags=np.array([variant.flags]),
        num_depots=library.num_depots,
        capacity=library.capacity,
    )


def variant_of_library(library: LibraryInstance) -> Variant:
    """The variant of an instance: which of the constraints it has."""
    return Variant(
        open_route=library.open_routes,
        time_windows=library.time_windows is not None,
        distance_limit=math.isfinite(library.distance_limit),
        backhaul=int(library.pickups is not None and bool(library.pickups.any())),
        multi_depot=library.num_depots > 1,
    )


def set_x_names() -> list[str]:
    """Names of the 100 instances of Set-X, from the smallest to the largest."""
    with _set_x() as archive:
        names = [Path(file).stem for file in archive.namelist() if file.endswith(".vrp")]
    return sorted(names, key=lambda name: int(name.split("-")[1].removeprefix("n")))


def load_set_x(name: str) -> tuple[LibraryInstance, int, list[Route]]:
    """An instance of Set-X, shipped with the package.

    Args:
        name: E.g. ``X-n101-k25``; its k is a lower bound on vehicles, no limit.

    Returns:
        The instance, its best-known cost and the routes that have it.

    Raises:
        DataError: If Set-X has no instance of that name.
    """
    with _set_x() as archive:
        if f"{name}.vrp" not in archive.namelist():
            raise DataError(f"Set-X has no instance {name!r}; names are like X-n101-k25")
        library, solution = (archive.read(f"{name}.{suffix}").decode() for suffix in ("vrp", "sol"))
    best = parse_sol(solution, f"{name}.sol")
    if best.cost is None:
        raise DataError(f"{name}.sol: the best-known cost is missing; install the package again")
    return parse_library(library, f"{name}.vrp"), int(best.cost), best.routes


def _set_x() -> zipfile.ZipFile:
    return zipfile.ZipFile(BytesIO(resources.files("polarvrp").joinpath("data", "set_x.zip").read_bytes()))
