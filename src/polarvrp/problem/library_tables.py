"""The two classic texts of bare numbers: Solomon's and Homberger's of time windows, Cordeau's of several depots."""

import dataclasses
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polarvrp.errors import DataError
from polarvrp.problem.library_instances import LibraryInstance, Rounding
from polarvrp.problem.library_text import Row, finite_number, numbers_of, whole_number

CORDEAU_TYPES = {0: "VRP", 1: "PVRP", 2: "MDVRP", 3: "SDVRP", 4: "VRPTW", 5: "PVRPTW", 6: "MDVRPTW", 7: "SDVRPTW"}


@dataclass(frozen=True, slots=True)
class Columns:
    """Where rows hold what; x and y come after the node's number."""

    demand: int
    service: int
    window: int | None


def is_solomon(text: str) -> bool:
    """Whether a text has the lines VEHICLE and CUSTOMER, the heads of Solomon's two tables."""
    lines = {line.strip().rstrip(":").upper() for line in text.splitlines()}
    return {"VEHICLE", "CUSTOMER"} <= lines


def is_cordeau(text: str) -> bool:
    """Whether a text begins with Cordeau's four whole numbers: type, vehicles, customers, depots."""
    words = next((line.split() for line in text.splitlines() if line.strip()), [])
    return len(words) == 4 and all(re.fullmatch(r"\d{1,9}", word, re.ASCII) for word in words)


def parse_solomon(text: str, source: str, rounding: Rounding | None, open_routes: bool) -> LibraryInstance:
    """An instance in Solomon's text format: a fleet and its capacity, then a row for every node, the depot first.

    Args:
        text: A name, VEHICLE with number and capacity, CUSTOMER with number, x, y, demand, ready and due time, service.
        source: Names the file in errors.
        rounding: How distances count; None for one decimal, as optimal costs are published.
        open_routes: Whether routes end at their last customer.

    Raises:
        DataError: If a row is no row of numbers, nodes are not numbered from 0, or a number makes no sense.
    """
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    heads = [line.rstrip(":").upper() for _, line in lines]
    first, start = heads.index("VEHICLE"), heads.index("CUSTOMER")
    fleet = _rows(lines[first + 1 : start], source, "VEHICLE")
    if len(fleet) != 1 or len(fleet[0].values) != 2:
        raise DataError(f"{source}: VEHICLE must hold one row, number and capacity of vehicles")
    vehicles, capacity = (
        whole_number(value, f"{source}: line {fleet[0].line} of VEHICLE") for value in fleet[0].values
    )
    rows = _rows(lines[start + 1 :], source, "CUSTOMER")
    for node, row in enumerate(rows):
        if len(row.values) != 7 or row.values[0] != node:
            wanted = f"must hold node {node} and six numbers (x, y, demand, ready time, due date, service time)"
            raise DataError(f"{source}: line {row.line} of CUSTOMER {wanted}, got {len(row.values)} numbers")
    if len(rows) < 2:
        raise DataError(f"{source}: CUSTOMER must hold a depot and customers, got {len(rows)} rows")
    name = lines[0][1] if first > 0 else Path(source).stem
    columns = Columns(demand=3, service=6, window=4)
    return _instance(source, name, rows, columns, capacity, vehicles, rounding or Rounding.ONE_DECIMAL, open_routes)


def parse_cordeau(text: str, source: str, rounding: Rounding | None, open_routes: bool) -> LibraryInstance:
    """An instance in Cordeau's text format of several depots, with or without time windows.

    Args:
        text: Type, vehicles a depot, n, K; K rows of longest duration (0: none) and capacity; n customers and K depots
            of number, x, y, service, demand, frequency, number of combinations, these, window if there are any.
        source: Names the file in errors.
        rounding: How distances count; None for not at all, as costs are published.
        open_routes: Whether routes end at their last customer.

    Raises:
        DataError: If the type is another one, rows are missing or malformed, or depots differ in limit or capacity.
    """
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    head, *rest = (Row(number, numbers_of(line.split(), source, number, "the file")) for number, line in lines)
    kind, vehicles, customers, depots = (int(value) for value in head.values)
    if kind not in (2, 6):
        name = CORDEAU_TYPES.get(kind, "unknown")
        raise DataError(f"{source}: type {kind} ({name}) is not supported; supported are 2 (MDVRP) and 6 (MDVRPTW)")
    if customers < 1 or depots < 1 or len(rest) != customers + 2 * depots:
        wanted = f"{depots} fleets, {customers} customers and {depots} depots"
        raise DataError(f"{source}: {wanted} must follow the first row, got {len(rest)} rows; is the file complete?")
    limit, capacity = _fleet(rest[:depots], source)
    nodes = [
        _cordeau_node(row, source, node, node <= customers, kind == 6)
        for node, row in enumerate(rest[depots:], start=1)
    ]
    rows = nodes[customers:] + nodes[:customers]
    columns = Columns(demand=4, service=3, window=5 if kind == 6 else None)
    name, counts = Path(source).stem, rounding or Rounding.NONE
    fleet = vehicles * depots
    instance = _instance(source, name, rows, columns, capacity, fleet, counts, open_routes, depots)
    return dataclasses.replace(instance, distance_limit=limit or math.inf)


def _instance(
    source: str,
    name: str,
    rows: list[Row],
    columns: Columns,
    capacity: int,
    vehicles: int,
    rounding: Rounding,
    open_routes: bool,
    num_depots: int = 1,
) -> LibraryInstance:
    """An instance of checked rows, depots first."""
    if capacity < 1:
        raise DataError(f"{source}: the capacity must be at least 1, got {capacity}")
    for index, row in enumerate(rows):
        demand, service = row.values[columns.demand], row.values[columns.service]
        whole_number(demand, f"{source}: demand on line {row.line}")
        if min(demand, service) < 0 or (index < num_depots and demand != 0):
            raise DataError(f"{source}: line {row.line}: demands must be 0 at depots, they and service never negative")
        if columns.window is not None:
            earliest, latest = row.values[columns.window : columns.window + 2]
            if not 0 <= earliest <= latest:
                raise DataError(f"{source}: line {row.line}: no window from {earliest:.15g} to {latest:.15g}")
    table = np.array([row.values for row in rows], dtype=np.float64)
    service_times = table[:, columns.service].copy()
    service_times[:num_depots] = 0.0
    return LibraryInstance(
        name=name,
        coordinates=table[:, 1:3].copy(),
        demands=table[:, columns.demand].astype(np.int64),
        capacity=capacity,
        time_windows=None if columns.window is None else table[:, columns.window : columns.window + 2].copy(),
        service_times=service_times,
        open_routes=open_routes,
        num_depots=num_depots,
        rounding=rounding,
        vehicles=vehicles,
    )


def _fleet(rows: list[Row], source: str) -> tuple[float, int]:
    """Longest duration and capacity, which all depots share."""
    for row in rows:
        if len(row.values) != 2 or row.values != rows[0].values or row.values[0] < 0:
            wanted = "must hold the longest duration and the capacity, the same for every depot"
            raise DataError(f"{source}: line {row.line} {wanted}")
    return rows[0].values[0], whole_number(rows[0].values[1], f"{source}: line {rows[0].line}: the capacity")


def _cordeau_node(row: Row, source: str, node: int, is_customer: bool, has_windows: bool) -> Row:
    """Number, x, y, service, demand and window of a row, its combinations of visits left out."""
    values = row.values
    ends = 2 if has_windows else 0
    if not is_customer and len(values) == 6 + ends:
        values = [*values[:6], 0.0, *values[6:]]  # some files leave out that depots have no combinations
    combinations = values[6] if len(values) > 6 else -1
    if values[0] != node or combinations < 0 or len(values) != 7 + combinations + ends:
        wanted = f"must hold node {node}, x, y, service, demand, frequency, combinations"
        raise DataError(f"{source}: line {row.line} {wanted}{' and a window' if has_windows else ''}; see the format")
    if values[5] != (1 if is_customer else 0):
        raise DataError(
            f"{source}: line {row.line}: visits must be 1 for customers and 0 for depots, got {values[5]:g}"
        )
    return Row(row.line, values[:5] + (values[-2:] if has_windows else []))


def _rows(lines: list[tuple[int, str]], source: str, table: str) -> list[Row]:
    """Rows of a table; lines that begin with no number are its heads."""
    split = [(number, line.split()) for number, line in lines]
    begin = next((i for i, (_, words) in enumerate(split) if table == "CUSTOMER" and _is_row(words)), 0)
    kept = split[begin:] if table == "CUSTOMER" else [item for item in split if _is_row(item[1])]
    return [Row(number, numbers_of(words, source, number, table)) for number, words in kept]


def _is_row(words: list[str]) -> bool:
    return finite_number(words[0]) is not None
