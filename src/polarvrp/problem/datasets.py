"""Sets of instances on disk: ``.npz`` files in the published layout, checked when they are read.

The layout is that of the published test sets, so files are interchangeable with RouteFinder's: customers only in the
demands, depots included in windows and service times, absent attributes left out.

Shape legend: S instances, K depots, n customers.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarvrp.errors import DataError
from polarvrp.problem.archives import EVERY_ROW, Arrays, read_arrays, read_metadata, read_shapes
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.variants import Variant, capacity_for
from polarvrp.tolerances import WHOLE_DEMAND_TOLERANCE

REQUIRED = ("locs", "demand_linehaul", "vehicle_capacity")
OPTIONAL = (
    "demand_backhaul",
    "backhaul_class",
    "open_route",
    "time_windows",
    "service_time",
    "distance_limit",
    "speed",
    "num_depots",
)

CHECKED_AT_ONCE = 4096
"""Instances whose numbers are checked together, so that this takes little memory beside theirs."""


def count_instances(path: str | Path) -> int:
    """How many instances a set holds, of which no more than the shape of the coordinates is looked at.

    Raises:
        DataError: If the file is no archive, or has no coordinates.
    """
    shapes = read_shapes(path)
    if "locs" not in shapes:
        raise DataError(f"{path}: {_missing('locs')}")
    return shapes["locs"][0] if shapes["locs"] else 0


def read_instances(path: str | Path, first: int | None = None, start: int = 0) -> Instances[NodeArrays]:
    """Instances of a set; only those asked for take memory.

    Args:
        path: A file in the published layout.
        first: Use only so many.
        start: Position of the first one that is used.

    Raises:
        DataError: If the file cannot be read, is inconsistent, or holds fewer instances than were asked for.
    """
    rows, count = EVERY_ROW, None
    if first is not None or start:
        count = count_instances(path)
        stop = count if first is None else start + first
        if not 0 <= start < stop <= count:
            raise DataError(f"{path}: holds {count} instances, asked for {start} up to {stop}")
        rows = slice(start, stop)
    arrays = read_arrays(path, rows)
    try:
        instances = instances_from_arrays(arrays)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    _require_stated(path, instances, len(instances) if count is None else count)
    return instances


def _require_stated(path: str | Path, instances: Instances[NodeArrays], count: int) -> None:
    """The instances are what the file says how it was made; one that says nothing may hold any.

    Args:
        path: The file.
        instances: All or some of it.
        count: How many it holds.

    Raises:
        DataError: If they are not.
    """
    said = read_metadata(path) or {}
    held: dict[str, Any] = {"num_customers": instances.num_customers, "instances": count}
    if "variant" in said:
        held["variant"] = variant_of(instances).name
    for name, value in held.items():
        if said.get(name, value) != value:
            raise DataError(f"{path} says {name} {said[name]} and holds {value}; generate or download it again")


def instances_from_arrays(arrays: Arrays) -> Instances[NodeArrays]:
    """Published layout to the container: demands padded with the depots, scalars flattened, defaults filled in.

    Constraint flags come from the arrays present: one that is left out is an absent attribute. In files that carry
    every array, open routes that are False and windows or limits that are infinite count as absent too. Mixed
    backhauls set both B and MB.

    Args:
        arrays: See ``generate_arrays``; without ``num_depots`` there is one depot.

    Returns:
        Instances, floats in float32; the capacity is that of the generator for n customers.

    Raises:
        DataError: If an array is missing, unknown, of the wrong shape, not finite or out of bounds, or demands are no
            whole multiples of one over the capacity.
    """
    _require_names(arrays)
    _require_scalars(arrays)
    batch, num_depots, customers = _require_shapes(arrays)
    nodes = num_depots + customers

    def floats(name: str, shape: tuple[int, ...], default: float) -> NDArray[np.float32]:
        if name not in arrays:
            return np.full(shape, default, dtype=np.float32)
        with np.errstate(over="ignore"):  # too large becomes infinite, which is refused below
            return np.ascontiguousarray(arrays[name], dtype=np.float32).reshape(shape)

    def with_depots(name: str) -> NDArray[np.float32]:
        demands = np.zeros((batch, nodes), dtype=np.float32)
        demands[:, num_depots:] = floats(name, (batch, customers), 0.0)
        return demands

    windows = floats("time_windows", (batch, nodes, 2), np.inf)
    if "time_windows" not in arrays:
        windows[..., 0] = 0.0
    limit = floats("distance_limit", (batch,), np.inf)
    open_route = floats("open_route", (batch,), 0.0).astype(np.bool_)
    backhaul_class = floats("backhaul_class", (batch,), 1.0).astype(np.int64)
    has_backhauls = np.full(batch, "demand_backhaul" in arrays)
    flags = (
        open_route,
        np.isfinite(windows[..., 1]).any(axis=1),
        np.isfinite(limit),
        has_backhauls,
        has_backhauls & (backhaul_class == 2),
        np.full(batch, num_depots > 1),
    )
    instances = Instances(
        locs=floats("locs", (batch, nodes, 2), 0.0),
        demand_linehaul=with_depots("demand_linehaul"),
        demand_backhaul=with_depots("demand_backhaul"),
        time_windows=windows,
        service_time=floats("service_time", (batch, nodes), 0.0),
        distance_limit=limit,
        open_route=open_route,
        backhaul_class=backhaul_class,
        flags=np.stack(flags, axis=1),
        num_depots=num_depots,
        capacity=capacity_for(customers),
    )
    for start in range(0, batch, CHECKED_AT_ONCE):
        _require_values(instances[start : start + CHECKED_AT_ONCE], start)
    for demands in (instances.demand_linehaul, instances.demand_backhaul):
        _make_whole(demands, np.float32(instances.capacity))
    return instances


def _make_whole(demands: NDArray[np.float32], capacity: np.float32) -> None:
    """Turn demands into the nearest multiples of one over the capacity, which environments and solvers count in."""
    np.multiply(demands, capacity, out=demands)
    np.rint(demands, out=demands)
    np.divide(demands, capacity, out=demands)


def variant_of(instances: Instances[Any]) -> Variant:
    """The variant that all instances share.

    Raises:
        DataError: If there are no instances, or they mix variants.
    """
    flags = instances.flags
    if len(instances) == 0 or not bool((flags == flags[:1]).all()):
        kinds = len({tuple(row) for row in flags.tolist()})
        raise DataError(f"instances of one variant are needed, got {kinds} kinds; split the file by variant")
    return Variant.of_flags(flags[0].tolist())


def _missing(name: str) -> str:
    return f"array {name!r} is missing; a set needs at least {', '.join(REQUIRED)}"


def _require_names(arrays: Arrays) -> None:
    for name in REQUIRED:
        if name not in arrays:
            raise DataError(_missing(name))
    for name, array in arrays.items():
        if name not in REQUIRED + OPTIONAL:
            raise DataError(f"unknown array {name!r}; known are {', '.join(REQUIRED + OPTIONAL)}")
        if array.dtype.kind not in "fiub":
            raise DataError(f"{name} must hold numbers, got {array.dtype}")


def _require_shapes(arrays: Arrays) -> tuple[int, int, int]:
    """Numbers of instances, depots and customers, once every array has the shape that they imply."""
    locs, linehaul = arrays["locs"], arrays["demand_linehaul"]
    if locs.ndim != 3 or locs.shape[2] != 2 or 0 in locs.shape:
        raise DataError(f"locs must be [instances, nodes, 2], got {list(locs.shape)}")
    batch, nodes = int(locs.shape[0]), int(locs.shape[1])
    num_depots = 1
    if "num_depots" in arrays:
        counts = set(np.ravel(arrays["num_depots"]).tolist())
        if len(counts) != 1 or counts.isdisjoint(range(1, nodes)):
            raise DataError(f"num_depots must be one whole number in [1, {nodes}), got {sorted(counts)}")
        num_depots = int(counts.pop())
    customers = nodes - num_depots
    if linehaul.shape != (batch, customers) or customers < 1:
        raise DataError(
            f"demand_linehaul must be [{batch}, {customers}] to match locs and {num_depots} depot(s), "
            f"got {list(linehaul.shape)}; demands hold customers only"
        )
    per_node = {"demand_backhaul": (customers,), "time_windows": (nodes, 2), "service_time": (nodes,)}
    for name, array in arrays.items():
        if name in ("locs", "demand_linehaul"):
            continue
        wanted = (batch, *per_node.get(name, (1,)))
        if array.shape != wanted and not (name not in per_node and array.shape == (batch,)):
            raise DataError(f"{name} must be {list(wanted)} to match locs, got {list(array.shape)}")
    return batch, num_depots, customers


def _require_scalars(arrays: Arrays) -> None:
    """Values of the arrays that hold one choice an instance."""
    choices: dict[str, tuple[int, ...]] = {
        "vehicle_capacity": (1,),
        "speed": (1,),
        "backhaul_class": (1, 2),
        "open_route": (0, 1),
    }
    for name, allowed in choices.items():
        if name in arrays and not np.isin(arrays[name], allowed).all():
            wrong = np.ravel(arrays[name])[~np.isin(np.ravel(arrays[name]), allowed)][0]
            advice = "; scale demands and coordinates" if name in ("vehicle_capacity", "speed") else ""
            raise DataError(f"{name} must be {' or '.join(map(str, allowed))}, got {wrong}{advice}")


def _require_values(instances: Instances[NodeArrays], first: int) -> None:
    """Values of the arrays that hold numbers; each rule is a mask ``[S, N]`` or ``[S, 1]``.

    Args:
        instances: Some of a set.
        first: Position of the first of them.
    """
    linehaul, backhaul, service = instances.demand_linehaul, instances.demand_backhaul, instances.service_time
    earliest, latest = instances.time_windows[..., 0], instances.time_windows[..., 1]
    is_depot = np.arange(instances.num_nodes) < instances.num_depots
    finite = np.isfinite(linehaul) & np.isfinite(backhaul)
    units = (np.where(finite, linehaul, 0.0) + np.where(finite, backhaul, 0.0)) * instances.capacity
    multiples = f"multiples of 1/{instances.capacity}, the capacity for {instances.num_customers} customers"
    rules = (
        ("locs must be finite", np.isfinite(instances.locs).all(axis=2)),
        ("demands must be finite and at least 0", (linehaul >= 0) & (backhaul >= 0) & finite),
        ("a customer has either a linehaul or a backhaul demand", ((linehaul > 0) ^ (backhaul > 0)) | is_depot),
        (f"demands must be {multiples}", np.abs(units - np.rint(units)) <= WHOLE_DEMAND_TOLERANCE),
        ("service_time must be finite and at least 0", (service >= 0) & np.isfinite(service)),
        ("windows must be [earliest, latest], 0 <= earliest <= latest", (earliest >= 0) & (earliest <= latest)),
        ("earliest service must be finite", np.isfinite(earliest)),
        ("depots must open at 0", (earliest == 0) | ~is_depot),
        ("distance_limit must be above 0", instances.distance_limit[:, None] > 0),
    )
    for text, holds in rules:
        if not holds.all():
            index, node = (int(i) for i in np.argwhere(~holds)[0])
            where = f"instance {first + index}" + (f", node {node}" if holds.shape[1] == instances.num_nodes else "")
            raise DataError(f"{text}; broken at {where}")
