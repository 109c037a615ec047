"""One instance in whole numbers, rounded so that whatever holds in integers holds exactly.

PyVRP and OR-Tools count in integers. Distances and service times are rounded up, ends of windows, closing times and
limits down: by induction along a route the integer clock and length are never less than the scale times the true
ones, so a tour that is feasible in integers is feasible in exact arithmetic, at a cost that is too high by at most
one unit an arc. Demands are whole multiples of one over the instance's capacity and need no rounding.

Shape legend: N = K + n nodes (K depots first, then n customers).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polarvrp.errors import DataError
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.tolerances import ROUNDED_DEMAND_TOLERANCE

LARGEST_SCALE = 10**7
"""Units per distance unit; limits drawn 1e-6 above a round trip keep a margin of ten units."""

LOAD_UNITS = 10**7
"""A full vehicle, nearly: penalties per unit are bounded, so an overload must count as many units as a detour."""

SMALLEST_FORBIDDEN = 2**32

LARGEST_PENALTY = 10**5
"""Of PyVRP, per unit of any excess."""

LARGEST_COST = 9 * 10**18
"""Bound of penalised costs: beyond the 64-bit range the solver loops for ever without a message."""

MOST_CUSTOMERS = LARGEST_COST // (LARGEST_PENALTY * SMALLEST_FORBIDDEN)
"""Of an instance: were each reached by a forbidden arc, penalties of more would leave no room, in whatever unit."""

UNBOUNDED = 2**50
"""Stands for no end of a window: later than any route gets, and far from overflow when service is added."""

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class IntegerInstance:
    """One instance in integer units.

    Attributes:
        num_depots: K.
        scale: Units per unit of distance and time.
        forbidden: Length that stands for a forbidden arc; above that of any solution, and safe from overflow.
        distance: Rounded up, ``[N, N]``; the columns of depots are 0 where routes are open.
        forbidden_arcs: From backhaul to linehaul customers where linehauls go first, bool ``[N, N]``, else None.
        delivery: Loads to customers, ``[n]``.
        pickup: Loads from customers, ``[n]``.
        vehicle_load: Capacity in the same unit.
        has_windows: Whether service times, windows and closing times mean anything.
        service: Rounded up, ``[n]``.
        earliest: Rounded up, ``[n]``.
        latest: Rounded down, not below ``earliest``, ``[n]``; ``UNBOUNDED`` where a window does not end.
        closing: Of each depot, rounded down, ``[K]``; ``UNBOUNDED`` where routes are open.
        max_distance: Rounded down; None if unlimited.
        max_duration: Longest time away, service and waiting included, rounded down; None if unlimited.
        opening: Of each depot, rounded up, ``[K]``; None where all open at 0.
    """

    num_depots: int
    scale: int
    forbidden: int
    distance: Integers
    forbidden_arcs: NDArray[np.bool_] | None
    delivery: Integers
    pickup: Integers
    vehicle_load: int
    has_windows: bool
    service: Integers
    earliest: Integers
    latest: Integers
    closing: Integers
    max_distance: int | None
    max_duration: int | None = None
    opening: Integers | None = None

    @property
    def num_customers(self) -> int:
        return len(self.delivery)

    @property
    def takes_time(self) -> bool:
        """Whether anything depends on when a vehicle is where."""
        return self.has_windows or self.max_duration is not None


def integer_instance(instances: Instances[NodeArrays], index: int) -> IntegerInstance:
    """Round one instance.

    Args:
        instances: Any variants, in main memory; floats of any width.
        index: Which one.

    Raises:
        DataError: If a number is not finite where it has to be, a demand is no whole number of units, the numbers are
            too large for any scale, or the customers too many.
    """
    require_room_for(instances.num_customers)
    depots = instances.num_depots
    locs = instances.locs[index].astype(np.float64)
    windows = instances.time_windows[index].astype(np.float64)
    service = instances.service_time[index, depots:].astype(np.float64)
    limit = float(instances.distance_limit[index])
    is_open, is_mixed = bool(instances.open_route[index]), int(instances.backhaul_class[index]) == 2
    lengths = straight_lengths(locs)
    if not np.isfinite(lengths).all() or not np.isfinite(windows[:, 0]).all() or np.isnan(windows).any():
        raise DataError(f"instance {index}: coordinates and earliest service times must be finite numbers")
    has_windows = bool(np.isfinite(windows[:, 1]).any() or (windows[depots:, 0] > 0).any())
    ends = windows[:, 1][np.isfinite(windows[:, 1])]
    longest_stay = float(max(service.max(initial=0.0), ends.max(initial=0.0)))
    scale, forbidden = largest_scale(instances.num_customers, float(lengths.max()), longest_stay)
    distance = np.ceil(lengths * scale).astype(np.int64)
    if is_open:
        distance[:, :depots] = 0
    latest = _round_down(windows[:, 1], scale)
    if is_open:
        latest[:depots] = UNBOUNDED
    earliest = np.ceil(windows[depots:, 0] * scale).astype(np.int64)
    # A window narrower than one unit: service starts at its rounded end and makes up for the difference.
    narrow = np.maximum(earliest - latest[depots:], 0)
    bounded = limit * scale < forbidden
    return IntegerInstance(
        num_depots=depots,
        scale=scale,
        forbidden=forbidden,
        distance=distance,
        forbidden_arcs=None if is_mixed else arcs_after_pickups(instances.demand_backhaul[index], depots),
        delivery=_loads(instances, index, instances.demand_linehaul),
        pickup=_loads(instances, index, instances.demand_backhaul),
        vehicle_load=units_per_load(instances.capacity) * instances.capacity,
        has_windows=has_windows,
        service=np.ceil(service * scale).astype(np.int64) + narrow,
        earliest=earliest - narrow,
        latest=latest[depots:],
        closing=latest[:depots],
        max_distance=int(np.floor(limit * scale)) if bounded else None,
    )


def require_room_for(num_customers: int) -> None:
    """Refuse more than ``MOST_CUSTOMERS``, for whom tables of all pairs need not be made.

    Raises:
        DataError: If there are more.
    """
    if num_customers > MOST_CUSTOMERS:
        raise DataError(
            f"{num_customers} customers leave no room for 64-bit costs; divide them into parts of at most "
            f"{MOST_CUSTOMERS}"
        )


def largest_scale(
    num_customers: int, longest_leg: float, longest_stay: float, bound: int = LARGEST_SCALE
) -> tuple[int, int]:
    """Largest power of ten as scale that 64-bit costs leave room for, and the length of a forbidden arc.

    The latter is a power of two above the longest tour, every customer on a route of its own. Even if every arc into
    a customer were forbidden and every service late by all the time there is, penalised costs stay within 64 bits.

    Args:
        num_customers: n.
        longest_leg: Largest distance.
        longest_stay: Largest service time or end of a window.
        bound: Power of ten that the scale does not exceed.

    Raises:
        DataError: If there is room for none.
    """
    scale = bound
    while scale >= 1:
        longest_tour = 2 * num_customers * (int(scale * longest_leg) + 1)
        forbidden = max(SMALLEST_FORBIDDEN, 1 << longest_tour.bit_length())
        excess = num_customers * (forbidden + scale * (longest_leg + longest_stay))
        if excess * LARGEST_PENALTY < LARGEST_COST:
            return scale, forbidden
        scale //= 10
    raise DataError(
        f"{num_customers} customers with legs up to {longest_leg:.6g} and times up to {longest_stay:.6g} leave no room "
        "for 64-bit costs; use a larger unit"
    )


def straight_lengths(locs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Euclidean distances between all nodes, ``[N, N]``."""
    x, y = locs[:, 0], locs[:, 1]
    across, along = x[:, None] - x, y[:, None] - y
    lengths: NDArray[np.float64] = np.sqrt(across * across + along * along)
    return lengths


def _round_down(ends: NDArray[np.float64], scale: int) -> Integers:
    finite = np.isfinite(ends)
    rounded: Integers = np.where(finite, np.floor(np.where(finite, ends, 0.0) * scale), UNBOUNDED).astype(np.int64)
    return rounded


def units_per_load(capacity: int) -> int:
    return max(1, LOAD_UNITS // capacity)


def _loads(instances: Instances[NodeArrays], index: int, demand: NodeArrays) -> Integers:
    """Demands of customers in load units, ``[n]``."""
    whole = demand[index, instances.num_depots :].astype(np.float64) * instances.capacity
    rounded = np.rint(whole)
    wrong = np.flatnonzero(~(np.abs(whole - rounded) <= ROUNDED_DEMAND_TOLERANCE) | (rounded < 0))
    if len(wrong):
        customer = int(wrong[0]) + instances.num_depots
        raise DataError(
            f"instance {index}, customer {customer}: demand is {whole[wrong[0]]:.6g} of capacity "
            f"{instances.capacity}; it must be a whole number, at least 0"
        )
    loads: Integers = rounded.astype(np.int64) * units_per_load(instances.capacity)
    return loads


def arcs_after_pickups(pickups: NodeArrays, num_depots: int) -> NDArray[np.bool_] | None:
    """Arcs from a customer with a pickup to one without, be it without demand, ``[N, N]``; None without pickups.

    Args:
        pickups: ``[N]``.
        num_depots: K.
    """
    collects = pickups > 0
    if not collects.any():
        return None
    others = ~collects
    others[:num_depots] = False
    arcs: NDArray[np.bool_] = collects[:, None] & others[None, :]
    return arcs
