"""Library files: VRPLIB instances and solutions in and out, CVRPLIB's integer prices, and Set-X from the package.

Reading has two steps. ``_parse`` knows the file format only: keys, sections, and the harmless dialects found in public
copies. ``_cvrp`` knows one problem type; what it does not model it refuses by name, so that no constraint is dropped
in silence. Further types add a second step of their own.

Shape legend: N = 1 + n nodes, depot first whatever its number in the file.
"""

import math
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from polarvrp.errors import DataError, InfeasibleTourError
from polarvrp.files import write_text
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.tours import Route, require_every_customer_once

ACCEPTED = "a VRPLIB file (NAME, TYPE : CVRP, DIMENSION, CAPACITY, EDGE_WEIGHT_TYPE : EUC_2D, sections, EOF)"

INFORMATIVE_KEYS = {"NAME", "COMMENT", "VEHICLES", "NODE_COORD_TYPE", "DISPLAY_DATA_TYPE", "EDGE_WEIGHT_FORMAT"}
"""Keys that change nothing: the number of vehicles is no bound, coordinates are planar or refused."""

CVRP_KEYS = {"TYPE", "DIMENSION", "EDGE_WEIGHT_TYPE", "CAPACITY"} | INFORMATIVE_KEYS
UNROUNDED_SETS = re.compile(r"(CMT|Golden|Li|tai)[_\d]")
"""Sets whose costs are published without rounding, although their files say EUC_2D like the rounded ones."""

LARGEST_CAPACITY = 2**30 - 1
"""Of instances for networks, whose loads are whole numbers of 32 bits."""

CVRP_SECTIONS = {"NODE_COORD_SECTION", "DEMAND_SECTION", "DEPOT_SECTION"}

Row: TypeAlias = tuple[int, list[str]]
"""Number of a line in the file, and its words."""


@dataclass(frozen=True, slots=True)
class LibraryInstance:
    """A capacitated instance in the numbers of its file.

    Attributes:
        name: As in the file, else the file's name.
        coordinates: float64, ``[N, 2]``, depot first, then customers in the order of the file.
        demands: Whole numbers, int64, ``[N]``, 0 for the depot.
        capacity: Of every vehicle; the fleet is unlimited.
    """

    name: str
    coordinates: NDArray[np.float64]
    demands: NDArray[np.int64]
    capacity: int

    @property
    def num_customers(self) -> int:
        return len(self.demands) - 1

    @property
    def rounds_distances(self) -> bool:
        """Whether published costs of its set count distances rounded to the nearest integer."""
        return UNROUNDED_SETS.match(self.name) is None


@dataclass(frozen=True, slots=True)
class LibrarySolution:
    """Routes of a ``.sol`` file; customers are numbered from 1 without the depot, which is 0."""

    routes: list[Route]
    cost: float | None


@dataclass(frozen=True, slots=True)
class LibraryReport:
    """Exact price of a solution.

    Attributes:
        cost: Sum of distances rounded to the nearest integer, as CVRPLIB counts.
        length: Sum of unrounded distances, float64.
        num_routes: Routes that visit somebody.
        first_problem: First overloaded route; None if the solution is feasible.
    """

    cost: int
    length: float
    num_routes: int
    first_problem: str | None


@dataclass(slots=True)
class _File:
    """A VRPLIB file taken apart, whatever its problem type."""

    source: str
    keys: dict[str, str] = field(default_factory=dict)
    sections: dict[str, list[Row]] = field(default_factory=dict)

    def error(self, text: str) -> DataError:
        return DataError(f"{self.source}: {text}")


def read_vrp(path: str | Path) -> LibraryInstance:
    """Read a CVRP instance.

    Tolerated: CRLF, tabs, blank lines, keys in any case, a colon after a section's name, a missing EOF, whole numbers
    written as floats.

    Raises:
        DataError: If the file is missing, of another format, incomplete, inconsistent, or of an unsupported type.
    """
    return parse_vrp(_read_text(path), str(path))


def parse_vrp(text: str, source: str) -> LibraryInstance:
    """``read_vrp`` of text; ``source`` names it in errors and where the text gives no name."""
    return _cvrp(_parse(text, source))


def read_sol(path: str | Path) -> LibrarySolution:
    """Read a solution.

    Raises:
        DataError: If the file is missing, has no routes or has one that is no list of customers.
    """
    return parse_sol(_read_text(path), str(path))


def parse_sol(text: str, source: str) -> LibrarySolution:
    """``read_sol`` of text; lines other than routes and the cost are comments."""
    routes: list[Route] = []
    cost = None
    for number, line in enumerate(text.splitlines(), start=1):
        route = re.match(r"\s*route\s*#?\s*\d+\s*:?(.*)", line, re.IGNORECASE)
        stated = re.match(r"\s*cost\s*:?\s*(\S+)", line, re.IGNORECASE)
        if route:
            words = route.group(1).split()
            if not all(word.isdecimal() and int(word) > 0 for word in words):
                raise DataError(f"{source}: line {number} must list customers, numbers from 1, got {line.strip()!r}")
            routes.append(Route(0, tuple(int(word) for word in words)))
        elif stated:
            cost = _number(stated.group(1))
            if cost is None:
                raise DataError(f"{source}: line {number} must state the cost as a number, got {line.strip()!r}")
    if not routes:
        raise DataError(f"{source}: no solution file; expected lines 'Route #1: 5 3 8' and 'Cost 27591'")
    return LibrarySolution([route for route in routes if route.customers], cost)


def write_sol(path: str | Path, routes: Iterable[Route], cost: float) -> None:
    """Write a solution the way CVRPLIB does, atomically."""
    lines = [f"Route #{k}: {' '.join(map(str, route.customers))}" for k, route in enumerate(routes, start=1)]
    write_text(path, "\n".join([*lines, f"Cost {cost:.15g}"]) + "\n")


def check_routes(library: LibraryInstance, routes: list[Route]) -> LibraryReport:
    """Exact price and feasibility of a solution, in whole numbers.

    Raises:
        InfeasibleTourError: If a customer is out of range, missing or served twice.
    """
    locs, demands = library.coordinates.tolist(), library.demands.tolist()
    for route in routes:
        if 0 in route.customers:
            raise InfeasibleTourError("customer 0 is the depot; routes list customers from 1")
    require_every_customer_once([c for route in routes for c in route.customers], 1, len(demands))
    cost, length, first_problem = 0, 0.0, None
    for number, route in enumerate(routes, start=1):
        load = sum(demands[customer] for customer in route.customers)
        if load > library.capacity and first_problem is None:
            first_problem = f"route {number} has load {load}, the capacity is {library.capacity}"
        node = 0
        for customer in (*route.customers, 0):
            leg = math.sqrt((locs[node][0] - locs[customer][0]) ** 2 + (locs[node][1] - locs[customer][1]) ** 2)
            cost, length, node = cost + math.floor(leg + 0.5), length + leg, customer
    return LibraryReport(cost, length, sum(1 for route in routes if route.customers), first_problem)


def to_instances(library: LibraryInstance) -> Instances[NodeArrays]:
    """The instance in the unit square, a batch of one.

    Both axes are divided by the same number, the larger range of coordinates, depot included, so that distances keep
    their ratios; demands are divided by the capacity.

    Returns:
        One instance, floats in float32, demands in float64, from which whole ones are recovered exactly by
        ``capacity``, that of the library.

    Raises:
        DataError: If the capacity is above ``LARGEST_CAPACITY``.
    """
    xy = library.coordinates
    low = xy.min(axis=0)
    scale = float((xy.max(axis=0) - low).max()) or 1.0
    nodes = len(xy)
    if library.capacity > LARGEST_CAPACITY:
        raise DataError(
            f"{library.name}: CAPACITY must be at most {LARGEST_CAPACITY}, got {library.capacity}; scale it"
        )
    demands = library.demands / library.capacity
    windows = np.zeros((1, nodes, 2), dtype=np.float32)
    windows[..., 1] = np.inf
    return Instances(
        locs=((xy - low) / scale).astype(np.float32)[None],
        demand_linehaul=demands[None],
        demand_backhaul=np.zeros((1, nodes), dtype=np.float32),
        time_windows=windows,
        service_time=np.zeros((1, nodes), dtype=np.float32),
        distance_limit=np.full(1, np.inf, dtype=np.float32),
        open_route=np.zeros(1, dtype=np.bool_),
        backhaul_class=np.ones(1, dtype=np.int64),
        flags=np.zeros((1, 6), dtype=np.bool_),
        num_depots=1,
        capacity=library.capacity,
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
    return parse_vrp(library, f"{name}.vrp"), int(best.cost), best.routes


def _set_x() -> zipfile.ZipFile:
    return zipfile.ZipFile(BytesIO(resources.files("polarvrp").joinpath("data", "set_x.zip").read_bytes()))


def _read_text(path: str | Path) -> str:
    try:
        # Comments in public files come in several encodings; everything that matters is ASCII.
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error


def _parse(text: str, source: str) -> _File:
    file = _File(source)
    section: list[Row] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        header = re.fullmatch(r"(\w+_SECTION)\s*:?", line.strip(), re.IGNORECASE)
        key = re.fullmatch(r"([A-Za-z_]+)\s*:(.*)", line.strip())
        if words[0].rstrip(":").upper() == "EOF":
            break
        if header:
            section = file.sections.setdefault(header.group(1).upper(), [])
        elif section is not None and _number(words[0]) is not None:
            section.append((number, words))
        elif key:
            file.keys[key.group(1).upper()] = key.group(2).strip()
        elif file.keys:
            raise file.error(f"line {number} is no key, section or row of one: {line.strip()[:60]!r}")
        else:
            raise file.error(_other_format(text))
    if not file.keys:
        raise file.error(_other_format(text))
    return file


def _other_format(text: str) -> str:
    words = set(text.upper().split())
    if {"VEHICLE", "CUSTOMER"} <= words:
        return f"this is Solomon's text format of time-window instances (VEHICLE, CUSTOMER); wanted is {ACCEPTED}"
    return f"unknown format; wanted is {ACCEPTED}"


def _cvrp(file: _File) -> LibraryInstance:
    problem = file.keys.get("TYPE", "CVRP").upper()
    if problem != "CVRP":
        raise file.error(f"TYPE {problem} is not supported; supported is CVRP")
    weights = file.keys.get("EDGE_WEIGHT_TYPE")
    if weights is None or weights.upper() != "EUC_2D":
        raise file.error(f"EDGE_WEIGHT_TYPE {weights or 'missing'} is not supported; supported is EUC_2D")
    if file.keys.get("NODE_COORD_TYPE", "TWOD_COORDS").upper() != "TWOD_COORDS":
        raise file.error(f"NODE_COORD_TYPE {file.keys['NODE_COORD_TYPE']} is not supported; supported is TWOD_COORDS")
    for name in [*(file.keys.keys() - CVRP_KEYS), *(file.sections.keys() - CVRP_SECTIONS)]:
        raise file.error(f"{name} is not supported for CVRP and would change the problem; remove it if it does not")
    dimension, capacity = (_whole(file, file.keys.get(name), name) for name in ("DIMENSION", "CAPACITY"))
    if dimension < 2 or capacity < 1:
        raise file.error(f"DIMENSION must be at least 2 and CAPACITY at least 1, got {dimension} and {capacity}")
    places = _rows(file, "NODE_COORD_SECTION", dimension, width=2)
    demanded = _rows(file, "DEMAND_SECTION", dimension, width=1)
    depot = _depot(file, dimension)
    order = [depot, *(node for node in range(dimension) if node != depot)]
    coordinates = np.array([[_finite(file, word) for word in places[node]] for node in order], dtype=np.float64)
    demands = [_whole(file, demanded[node][0], f"demand of node {node + 1}") for node in order]
    if demands[0] != 0 or min(demands) < 0:
        raise file.error(f"demands must be 0 at the depot and never negative, got {demands[0]} and {min(demands)}")
    name = file.keys.get("NAME") or Path(file.source).stem
    return LibraryInstance(name, coordinates, np.array(demands, dtype=np.int64), capacity)


def _rows(file: _File, section: str, dimension: int, width: int) -> list[list[str]]:
    """Words of each node's row without the node's number, in the order of the numbers."""
    found: dict[int, list[str]] = {}
    for number, words in file.sections.get(section, []):
        if len(words) != width + 1:
            raise file.error(f"line {number} of {section} must hold a node and {width} number(s), got {words}")
        node = _whole(file, words[0], f"node on line {number}")
        if not 1 <= node <= dimension or node in found:
            raise file.error(f"line {number} of {section}: node {node} is repeated or not in 1 to {dimension}")
        found[node] = words[1:]
    if len(found) != dimension:
        raise file.error(f"{section} must hold {dimension} nodes, got {len(found)}; is the file complete?")
    return [found[node] for node in range(1, dimension + 1)]


def _depot(file: _File, dimension: int) -> int:
    """Index of the only depot, from 0."""
    words = [word for _, row in file.sections.get("DEPOT_SECTION", []) for word in row]
    numbers = [_whole(file, word, "DEPOT_SECTION") for word in words]
    depots = numbers[: numbers.index(-1)] if -1 in numbers else numbers
    if len(depots) != 1 or not 1 <= depots[0] <= dimension:
        raise file.error(f"DEPOT_SECTION must name one depot in 1 to {dimension}, got {depots or 'none'}")
    return depots[0] - 1


def _whole(file: _File, word: str | None, what: str) -> int:
    value = _number(word or "")
    if value is None or not value.is_integer():
        raise file.error(f"{what} must be a whole number, got {word if word is not None else 'none'}; scale the file")
    return int(value)


def _finite(file: _File, word: str) -> float:
    value = _number(word)
    if value is None:
        raise file.error(f"coordinates must be numbers, got {word!r}")
    return value


def _number(word: str) -> float | None:
    """The finite number that a word spells, else None."""
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
