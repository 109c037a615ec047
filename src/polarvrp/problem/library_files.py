"""Routing files of users: VRPLIB form, Solomon's and Homberger's text, Cordeau's text; told apart by what they hold.

What a file states and ``LibraryInstance`` does not model is refused by name, so that no constraint is dropped in
silence.

Shape legend: N = K + n nodes, depots first whatever their numbers in the file.
"""

import math
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polarvrp.problem.library_instances import LibraryInstance, Rounding, conventional_rounding, points_of_matrix
from polarvrp.problem.library_tables import is_cordeau, is_solomon, parse_cordeau, parse_solomon
from polarvrp.problem.library_text import (
    LARGEST_NUMBER,
    LibraryText,
    finite_number,
    read_text,
    take_apart,
    whole_number,
)

ACCEPTED = (
    "a VRPLIB file (NAME, TYPE : CVRP, DIMENSION, CAPACITY, EDGE_WEIGHT_TYPE : EUC_2D, sections, EOF), "
    "or the text of Solomon (VEHICLE, CUSTOMER) or Cordeau (type, vehicles, customers, depots)"
)

TYPES = ("CVRP", "DCVRP", "ACVRP", "VRPTW", "CVRPTW", "VRPB", "VRPBTW", "OVRP", "OVRPTW", "MDVRP", "MDVRPTW")

INFORMATIVE_KEYS = {"NAME", "COMMENT", "NODE_COORD_TYPE", "DISPLAY_DATA_TYPE", "EDGE_WEIGHT_FORMAT", "VEHICLES"}
"""Keys that change nothing: the number of vehicles is no bound, coordinates are planar or refused."""

LIMITS = ("DISTANCE", "VEHICLES_MAX_DURATION")
"""Keys of the longest route, service included."""

KEYS = {*LIMITS, "TYPE", "DIMENSION", "EDGE_WEIGHT_TYPE", "CAPACITY", "SERVICE_TIME", "SCALE"} | INFORMATIVE_KEYS

NODE_SECTIONS = {
    "NODE_COORD_SECTION": 2,
    "DEMAND_SECTION": 1,
    "LINEHAUL_SECTION": 1,
    "TIME_WINDOW_SECTION": 2,
    "SERVICE_TIME_SECTION": 1,
}
"""Sections with a row for every node: numbers after the node's."""

SECTIONS = {
    "DEPOT_SECTION",
    "VEHICLES_DEPOT_SECTION",
    "BACKHAUL_SECTION",
    "EDGE_WEIGHT_SECTION",
    "DISPLAY_DATA_SECTION",
} | NODE_SECTIONS.keys()

ROUNDINGS = {
    "EUC_2D": None,  # the set decides
    "CEIL_2D": Rounding.UP,
    "FLOOR_2D": Rounding.DOWN,
    "EXACT_2D": Rounding.NONE,
    "EXPLICIT": Rounding.NONE,
}

TRIANGLES = {
    "LOWER_ROW": (np.tril_indices, -1),
    "LOWER_DIAG_ROW": (np.tril_indices, 0),
    "UPPER_ROW": (np.triu_indices, 1),
    "UPPER_DIAG_ROW": (np.triu_indices, 0),
}
"""Formats of symmetric matrices: which entries a file lists, row by row."""

LARGEST_MATRIX = 2000
"""Nodes of a file with a matrix; its points take time that grows with the third power."""


def read_library(path: str | Path, rounding: Rounding | None = None, open_routes: bool = False) -> LibraryInstance:
    """Read an instance.

    Args:
        path: A file in VRPLIB form or in Solomon's or Cordeau's.
        rounding: How distances count; None for the convention of the file's set and ``EDGE_WEIGHT_TYPE``.
        open_routes: Whether routes end at their last customer; so they do in files of type OVRP anyway.

    Raises:
        DataError: If the file is missing, of another format, incomplete, inconsistent, or of an unsupported type.
    """
    return parse_library(read_text(path), str(path), rounding, open_routes)


def parse_library(
    text: str, source: str, rounding: Rounding | None = None, open_routes: bool = False
) -> LibraryInstance:
    """``read_library`` of text; ``source`` names it in errors and where the text gives no name."""
    text = text.removeprefix("\ufeff")
    if is_solomon(text):
        return parse_solomon(text, source, rounding, open_routes)
    if is_cordeau(text):
        return parse_cordeau(text, source, rounding, open_routes)
    return _instance(take_apart(text, source, ACCEPTED), rounding, open_routes)


def _instance(file: LibraryText, rounding: Rounding | None, open_routes: bool) -> LibraryInstance:
    problem = _supported_type(file)
    weights = file.keys["EDGE_WEIGHT_TYPE"].upper()
    dimension, capacity = (
        whole_number(_key(file, name), f"{file.source}: {name}") for name in ("DIMENSION", "CAPACITY")
    )
    if dimension < 2 or capacity < 1:
        raise file.error(f"DIMENSION must be at least 2 and CAPACITY at least 1, got {dimension} and {capacity}")
    tables = {
        name: _table(file, name, width, dimension) for name, width in NODE_SECTIONS.items() if name in file.sections
    }
    if weights != "EXPLICIT" or file.sections.keys().isdisjoint({"EDGE_WEIGHT_SECTION", "NODE_COORD_SECTION"}):
        _require(file, "NODE_COORD_SECTION")
    demand_section = "LINEHAUL_SECTION" if "LINEHAUL_SECTION" in tables else "DEMAND_SECTION"
    _require(file, demand_section)
    depots = _depots(file, dimension, several=problem.startswith("MD") or "VEHICLES_DEPOT_SECTION" in file.sections)
    _require_vehicles_at(file, depots)
    order = [*depots, *sorted(set(range(dimension)) - set(depots))]
    demands = _loads(file, tables[demand_section], order, len(depots))
    demands, pickups = _backhauls(file, demands, order, len(depots))
    windows = _windows(file, tables.get("TIME_WINDOW_SECTION"), order)
    matrix = _matrix(file, dimension)[np.ix_(order, order)] if weights == "EXPLICIT" else None
    places = tables.get("NODE_COORD_SECTION")
    name = file.keys.get("NAME") or Path(file.source).stem
    return LibraryInstance(
        name=name,
        coordinates=places[order] if places is not None else points_of_matrix(_given(matrix)),
        demands=demands,
        capacity=capacity,
        pickups=pickups,
        time_windows=windows,
        service_times=_service(file, tables.get("SERVICE_TIME_SECTION"), order, len(depots)),
        distance_limit=_limit(file),
        open_routes=open_routes or problem.startswith("OVRP"),
        num_depots=len(depots),
        rounding=rounding or _rounding(file, name, windows is not None, len(depots)),
        matrix=matrix,
        vehicles=_vehicles(file),
    )


def _supported_type(file: LibraryText) -> str:
    problem = file.keys.get("TYPE", "CVRP").upper()
    if problem not in TYPES:
        raise file.error(f"TYPE {problem} is not supported; supported are {', '.join(TYPES)}")
    weights = file.keys.get("EDGE_WEIGHT_TYPE", "missing")
    if weights.upper() not in ROUNDINGS:
        raise file.error(f"EDGE_WEIGHT_TYPE {weights} is not supported; supported are {', '.join(ROUNDINGS)}")
    if file.keys.get("NODE_COORD_TYPE", "TWOD_COORDS").upper() not in ("TWOD_COORDS", "NO_COORDS"):
        raise file.error(f"NODE_COORD_TYPE {file.keys['NODE_COORD_TYPE']} is not supported; supported is TWOD_COORDS")
    for name in [*sorted(file.keys.keys() - KEYS), *sorted(file.sections.keys() - SECTIONS)]:
        raise file.error(f"{name} is not supported and would change the problem; remove it if it does not")
    if "SCALE" in file.keys and weights.upper() != "EXACT_2D" and not _cuts_after_one_decimal(file):
        raise file.error(f"SCALE is not supported with EDGE_WEIGHT_TYPE {weights}, but for 10 with FLOOR_2D")
    if {"DEMAND_SECTION", "LINEHAUL_SECTION"} <= file.sections.keys():
        raise file.error("LINEHAUL_SECTION and DEMAND_SECTION state the same; remove one of both")
    if "SERVICE_TIME" in file.keys and "SERVICE_TIME_SECTION" in file.sections:
        raise file.error("SERVICE_TIME and SERVICE_TIME_SECTION state the same; remove one of both")
    if "EDGE_WEIGHT_SECTION" in file.sections and weights.upper() != "EXPLICIT":
        raise file.error(f"EDGE_WEIGHT_SECTION contradicts EDGE_WEIGHT_TYPE {weights}; wanted is EXPLICIT")
    for end, section in (("TW", "TIME_WINDOW_SECTION"), ("VRPB", "BACKHAUL_SECTION"), ("VRPBTW", "BACKHAUL_SECTION")):
        if problem.endswith(end):
            _require(file, section)
    return problem


def _cuts_after_one_decimal(file: LibraryText) -> bool:
    """Whether distances are rounded down in tenths, as files of Solomon's set in LKH's form say it."""
    return file.keys["EDGE_WEIGHT_TYPE"].upper() == "FLOOR_2D" and "SCALE" in file.keys and _key(file, "SCALE") == 10


def _rounding(file: LibraryText, name: str, has_windows: bool, num_depots: int) -> Rounding:
    if _cuts_after_one_decimal(file):
        return Rounding.ONE_DECIMAL
    stated = ROUNDINGS[file.keys["EDGE_WEIGHT_TYPE"].upper()]
    if stated is None and num_depots > 1:
        return Rounding.NONE  # as costs of Cordeau's sets are published
    return stated or conventional_rounding(name, has_windows)


def _require(file: LibraryText, section: str) -> None:
    if section not in file.sections:
        raise file.error(f"{section} is missing; is the file complete?")


def _given(matrix: NDArray[np.float64] | None) -> NDArray[np.float64]:
    assert matrix is not None  # files without coordinates have one, or were refused
    return matrix


def _key(file: LibraryText, name: str) -> float:
    word = file.keys.get(name)
    value = finite_number(word) if word is not None else None
    if value is None:
        raise file.error(f"{name} must be a number, got {word[:40] if word is not None else 'none'}")
    if abs(value) > LARGEST_NUMBER:
        raise file.error(f"{name} must be at most {LARGEST_NUMBER:g}, got {str(word)[:40]}; scale the file")
    return value


def _limit(file: LibraryText) -> float:
    stated = [name for name in LIMITS if name in file.keys]
    if len(stated) > 1:
        raise file.error(f"{' and '.join(stated)} both state a limit; remove one of both")
    if not stated:
        return math.inf
    limit = _key(file, stated[0])
    if limit <= 0:
        raise file.error(f"{stated[0]} must be above 0, got {limit:.15g}; leave it out where routes have no limit")
    return limit


def _vehicles(file: LibraryText) -> int | None:
    """The fleet stated, where it is a number; it binds nothing."""
    word = file.keys.get("VEHICLES", "")
    return int(word) if re.fullmatch(r"\d{1,9}", word, re.ASCII) else None


def _table(file: LibraryText, section: str, width: int, dimension: int) -> NDArray[np.float64]:
    """Numbers of each node's row without the node's number, in the order of the numbers: ``[dimension, width]``."""
    found: dict[int, list[float]] = {}
    for row in file.sections[section]:
        where = f"line {row.line} of {section}"
        if len(row.values) != width + 1:
            raise file.error(f"{where} must hold a node and {width} number(s), got {len(row.values)} numbers")
        node = whole_number(row.values[0], f"{file.source}: node on {where}")
        if not 1 <= node <= dimension or node in found:
            raise file.error(f"{where}: node {node} is repeated or not in 1 to {dimension}")
        found[node] = row.values[1:]
    if len(found) != dimension:
        raise file.error(f"{section} must hold {dimension} nodes, got {len(found)}; is the file complete?")
    return np.array([found[node] for node in range(1, dimension + 1)], dtype=np.float64)


def _depots(file: LibraryText, dimension: int, several: bool) -> list[int]:
    """Indices of depots, from 0."""
    values = [value for row in file.sections.get("DEPOT_SECTION", []) for value in row.values]
    numbers = [whole_number(value, f"{file.source}: DEPOT_SECTION") for value in values]
    depots = numbers[: numbers.index(-1)] if -1 in numbers else numbers
    shown = f"{depots[:5]}" if depots else "none"
    if not depots or not all(1 <= depot <= dimension for depot in depots) or (len(depots) > 1 and not several):
        wanted = "depots" if several else "one depot"
        raise file.error(f"DEPOT_SECTION must name {wanted} in 1 to {dimension}, got {shown}")
    if len(set(depots)) < len(depots) or len(depots) == dimension:
        raise file.error(f"DEPOT_SECTION must name a depot once and leave customers, got {shown}")
    return [depot - 1 for depot in depots]


def _require_vehicles_at(file: LibraryText, depots: list[int]) -> None:
    """Refuse depots without vehicles where a file says which vehicle is where; how many there are binds nothing."""
    rows = file.sections.get("VEHICLES_DEPOT_SECTION")
    if rows is None:
        return
    for row in rows:
        if len(row.values) != 2 or row.values[1] - 1 not in depots:
            raise file.error(f"line {row.line} of VEHICLES_DEPOT_SECTION must hold a vehicle and its depot")
    empty = sorted(set(depots) - {int(row.values[1]) - 1 for row in rows})
    if empty:
        raise file.error(f"depot {empty[0] + 1} has no vehicles in VEHICLES_DEPOT_SECTION; remove it from the file")


def _loads(file: LibraryText, table: NDArray[np.float64], order: list[int], num_depots: int) -> NDArray[np.int64]:
    """Whole loads in the order of nodes; 0 at depots."""
    loads = [whole_number(float(table[node, 0]), f"{file.source}: demand of node {node + 1}") for node in order]
    for node, load in zip(order, loads, strict=True):
        if load < 0 or (load != 0 and node in order[:num_depots]):
            wanted = "demands must be 0 at depots and never negative"
            raise file.error(f"{wanted}, got {load} at node {node + 1}")
    return np.array(loads, dtype=np.int64)


def _backhauls(
    file: LibraryText, demands: NDArray[np.int64], order: list[int], num_depots: int
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Deliveries and pickups.

    Two forms are in use: a row for every node with what it hands over, or a list of nodes that ends in -1, whose
    demands are collected.
    """
    rows = file.sections.get("BACKHAUL_SECTION")
    if rows is None:
        return demands, None
    values = [value for row in rows for value in row.values]
    if -1 in values:
        listed = {whole_number(value, f"{file.source}: BACKHAUL_SECTION") for value in values[: values.index(-1)]}
        customers = {node + 1 for node in order[num_depots:]}
        if not listed <= customers:
            raise file.error(f"BACKHAUL_SECTION names {min(listed - customers)}, which is no customer")
        collected = np.array([node + 1 in listed for node in order])
        return np.where(collected, 0, demands), np.where(collected, demands, 0)
    pickups = _loads(file, _table(file, "BACKHAUL_SECTION", 1, len(order)), order, num_depots)
    for node, delivered, picked in zip(order, demands, pickups, strict=True):
        if delivered and picked:
            raise file.error(f"node {node + 1} has a delivery and a pickup, a customer has one of both; split it")
    return demands, pickups


def _windows(file: LibraryText, table: NDArray[np.float64] | None, order: list[int]) -> NDArray[np.float64] | None:
    if table is None:
        return None
    for node, (earliest, latest) in enumerate(table.tolist(), start=1):
        if earliest < 0 or latest < earliest:
            raise file.error(
                f"the window of node {node} must begin at 0 or later and end after that, got "
                f"{earliest:.15g} to {latest:.15g}"
            )
    windows: NDArray[np.float64] = table[order]
    return windows


def _service(
    file: LibraryText, table: NDArray[np.float64] | None, order: list[int], num_depots: int
) -> NDArray[np.float64] | None:
    """Service times by node; one time for all customers may be stated as a key."""
    if table is not None:
        service: NDArray[np.float64] = table[order, 0]
    elif "SERVICE_TIME" in file.keys:
        service = np.full(len(order), _key(file, "SERVICE_TIME"))
        service[:num_depots] = 0.0
    else:
        return None
    if (service < 0).any():
        raise file.error(f"service times must not be negative, got one at node {order[int(service.argmin())] + 1}")
    service[:num_depots] = 0.0
    return service


def _matrix(file: LibraryText, dimension: int) -> NDArray[np.float64]:
    """Distances of a file in its own order of nodes."""
    _require(file, "EDGE_WEIGHT_SECTION")
    layout = file.keys.get("EDGE_WEIGHT_FORMAT", "").upper()
    if layout != "FULL_MATRIX" and layout not in TRIANGLES:
        known = ", ".join(["FULL_MATRIX", *TRIANGLES])
        fault = f"{layout} is not supported" if layout else "is missing"
        raise file.error(f"EDGE_WEIGHT_FORMAT {fault}; supported are {known}")
    if dimension > LARGEST_MATRIX:
        raise file.error(f"a matrix may have up to {LARGEST_MATRIX} nodes, got {dimension}")
    rows = file.sections["EDGE_WEIGHT_SECTION"]
    for row in rows:
        if min(row.values) < 0:
            raise file.error(f"line {row.line} of EDGE_WEIGHT_SECTION holds a negative distance, {min(row.values):g}")
    values = np.array([value for row in rows for value in row.values], dtype=np.float64)
    half = dimension * (dimension + 1 if "DIAG" in layout else dimension - 1) // 2
    wanted = dimension**2 if layout == "FULL_MATRIX" else half
    if len(values) != wanted:
        raise file.error(f"EDGE_WEIGHT_SECTION must hold {wanted} numbers as {layout}, got {len(values)}")
    if layout == "FULL_MATRIX":
        matrix = values.reshape(dimension, dimension).copy()
    else:
        indices, offset = TRIANGLES[layout]
        matrix = np.zeros((dimension, dimension))
        matrix[indices(dimension, offset)] = values
        matrix = np.maximum(matrix, matrix.T)
    np.fill_diagonal(matrix, 0.0)
    return matrix
