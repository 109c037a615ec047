"""An instance of a library file in whole numbers, as PyVRP needs it.

Where the file's own numbers are whole, or cut off after one decimal, they are taken as they are, and whatever holds in
integers holds in the file. Otherwise distances and times are rounded up, ends of windows and limits down, as in
``solvers.integers``.

Shape legend: N = K + n nodes, depots first.
"""

import math

import numpy as np
from numpy.typing import NDArray

from polarvrp.errors import DataError
from polarvrp.problem.library_instances import LibraryInstance
from polarvrp.solvers.integers import (
    LARGEST_COST,
    LARGEST_PENALTY,
    UNBOUNDED,
    IntegerInstance,
    Integers,
    arcs_after_pickups,
    largest_scale,
    require_room_for,
    straight_lengths,
)

LARGEST_SCALE = 10**5
"""Units per distance unit of unrounded distances: finer than any published cost."""

NOISE = 1e-12
"""Relative error of products of decimals that stand for whole numbers."""

LEG_PER_LOAD = 10
"""A full vehicle counts as much as the longest leg over this: an overload must cost more than a detour saves."""


def library_integers(library: LibraryInstance) -> IntegerInstance:
    """Whole numbers of an instance.

    Raises:
        DataError: If its numbers are too large for 64-bit costs, or its customers too many.
    """
    require_room_for(library.num_customers)
    depots, nodes = library.num_depots, len(library.demands)
    lengths = counted_distances(library)
    service = np.zeros(nodes) if library.service_times is None else library.service_times
    windows = np.tile([0.0, np.inf], (nodes, 1)) if library.time_windows is None else library.time_windows
    limit = library.distance_limit
    ends = windows[np.isfinite(windows)]
    stay = float(max(service.max(), ends.max(initial=0.0), limit if math.isfinite(limit) else 0.0))
    longest = float(lengths.max())
    numbers = np.concatenate((lengths.ravel(), service, ends, [limit] if math.isfinite(limit) else []))
    wanted = next((scale for scale in (1, 10) if _are_whole(numbers * scale)), LARGEST_SCALE)
    scale, forbidden = largest_scale(nodes - depots, longest, stay, wanted)
    distance = _up(lengths * scale)
    if library.open_routes:
        distance[:, :depots] = 0
    latest = np.where(np.isfinite(windows[:, 1]), _down(np.minimum(windows[:, 1] * scale, UNBOUNDED)), UNBOUNDED)
    if library.open_routes:
        latest[:depots] = UNBOUNDED
    earliest = _up(windows[:, 0] * scale)
    # A window narrower than one unit: service starts at its rounded end and makes up for the difference.
    narrow = np.maximum(earliest - latest, 0)
    earliest -= narrow
    # A limit binds time where there is any to spend beside the way, else length, which the solver handles faster.
    by_time = math.isfinite(limit) and (library.time_windows is not None or bool((service > 0).any()))
    by_length = math.isfinite(limit) and not by_time
    pickups = np.zeros_like(library.demands) if library.pickups is None else library.pickups
    units = _units_per_load(library, int(scale * longest), sum(library.demands.tolist()) + sum(pickups.tolist()))
    return IntegerInstance(
        num_depots=depots,
        scale=scale,
        forbidden=forbidden,
        distance=distance,
        forbidden_arcs=arcs_after_pickups(pickups, depots),
        delivery=library.demands[depots:] * units,
        pickup=pickups[depots:] * units,
        vehicle_load=library.capacity * units,
        has_windows=library.time_windows is not None,
        service=(_up(service * scale) + narrow)[depots:],
        earliest=earliest[depots:],
        latest=latest[depots:],
        closing=latest[:depots],
        max_distance=int(_down(np.array([limit * scale]))[0]) if by_length else None,
        max_duration=int(_down(np.array([limit * scale]))[0]) if by_time else None,
        opening=earliest[:depots],
    )


def counted_distances(library: LibraryInstance) -> NDArray[np.float64]:
    """Distances as costs count them, float64, ``[N, N]``."""
    if library.matrix is not None:
        return library.rounding.of(library.matrix)
    return library.rounding.of(straight_lengths(library.coordinates))


def _units_per_load(library: LibraryInstance, longest_leg: int, all_loads: int) -> int:
    """Units of a unit of demand.

    Raises:
        DataError: If penalties of loads leave the 64-bit range, beyond which the solver loops for ever.
    """
    most = LARGEST_COST // LARGEST_PENALTY // max(all_loads, 1)
    if most == 0:
        raise DataError(f"{library.name}: demands sum up to {all_loads}, too much for 64-bit costs; use a larger unit")
    return max(1, min(longest_leg // (LEG_PER_LOAD * library.capacity), most))


def _are_whole(numbers: NDArray[np.float64]) -> bool:
    return bool((np.abs(numbers - np.rint(numbers)) <= NOISE * np.maximum(np.abs(numbers), 1.0)).all())


def _up(numbers: NDArray[np.float64]) -> Integers:
    """Rounded up, but for the noise of products."""
    rounded: Integers = np.ceil(numbers - NOISE * np.maximum(np.abs(numbers), 1.0)).astype(np.int64)
    return rounded


def _down(numbers: NDArray[np.float64]) -> Integers:
    """Rounded down, but for the noise of products."""
    rounded: Integers = np.floor(numbers + NOISE * np.maximum(np.abs(numbers), 1.0)).astype(np.int64)
    return rounded
