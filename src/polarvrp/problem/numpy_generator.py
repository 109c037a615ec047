"""Test and validation sets, equal bit for bit to the published ones.

NumPy's legacy generator (MT19937) is seeded once a set and every attribute of all instances is drawn in one pass, so
the number of instances drawn belongs to the seed: a set is drawn whole and then cut. Order of the draws, order of the
floating-point operations and the place of the cast to float32 are all part of the definition.

Shape legend: S instances drawn, K depots, n customers.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarvrp.errors import ConfigError
from polarvrp.problem.variants import LARGEST_SIZE, Variant, capacity_for

GENERATOR_VERSION = 1
"""Recorded in every set; raised whenever the same arguments would give other arrays."""

TEST_SEED = 1234
VALIDATION_SEED = 4321
PUBLISHED_INSTANCES = 1000
PUBLISHED_VALIDATION_MULTI_DEPOT = 128

DEPOT_CLOSING = 4.6
SERVICE_BOUNDS = (0.15, 0.18)
WINDOW_LENGTH_BOUNDS = (0.18, 0.2)
BACKHAUL_FRACTION = 0.2
LONGEST_LIMIT = 2.8
LIMIT_MARGIN = 1e-6
DEMAND_BOUNDS = (1, 10)
"""Integer demands lie in the half-open interval."""

LARGEST_SET = 2 * 10**9
"""Customers of all instances of a set, some 100 GB."""

COMPUTED_AT_ONCE = 4096
"""Instances."""

Floats = NDArray[np.float64]


def generate_arrays(variant: Variant, num_customers: int, num_instances: int, seed: int) -> dict[str, NDArray[Any]]:
    """Instances of one variant in the published layout.

    Args:
        variant: Which constraints hold.
        num_customers: n, at least 1.
        num_instances: How many instances are kept, at least 1.
        seed: ``TEST_SEED`` and ``VALIDATION_SEED`` give the published sets or their first rows.

    Returns:
        Arrays by name; those of absent attributes are left out. ``locs`` ``[S, K+n, 2]``, ``demand_linehaul`` and
        ``demand_backhaul`` ``[S, n]`` (customers only), ``time_windows`` ``[S, K+n, 2]`` and ``service_time``
        ``[S, K+n]`` (depots included), ``vehicle_capacity``, ``speed``, ``backhaul_class`` and ``distance_limit``
        ``[S, 1]``, all float32; ``num_depots`` int32 and ``open_route`` bool ``[S, 1]``.

    Raises:
        ConfigError: If a number is out of bounds.
    """
    if num_customers < 1 or num_instances < 1:
        raise ConfigError(
            "a set needs at least one customer and one instance, "
            f"got {num_customers} customers, {num_instances} instances"
        )
    if num_customers > LARGEST_SIZE or num_instances * num_customers > LARGEST_SET:
        raise ConfigError(
            f"a set holds up to {LARGEST_SIZE} customers an instance and {LARGEST_SET} in all, "
            f"got {num_customers} customers, {num_instances} instances"
        )
    if not 0 <= seed < 2**32:
        raise ConfigError(f"seed must be in [0, 2^32) for NumPy's legacy generator, got {seed}")
    drawn = max(num_instances, _published_instances(variant, seed))
    arrays = _draw(variant, num_customers, drawn, np.random.RandomState(seed))
    return {name: np.ascontiguousarray(array[:num_instances]) for name, array in arrays.items()}


def _published_instances(variant: Variant, seed: int) -> int:
    """Size of the published set that ``seed`` draws; 0 if there is none."""
    if seed == VALIDATION_SEED:
        return PUBLISHED_VALIDATION_MULTI_DEPOT if variant.multi_depot else PUBLISHED_INSTANCES
    return PUBLISHED_INSTANCES if seed == TEST_SEED else 0


def _draw(variant: Variant, num_customers: int, drawn: int, rng: np.random.RandomState) -> dict[str, NDArray[Any]]:
    num_depots = variant.num_depots
    locs = rng.uniform(0.0, 1.0, (drawn, num_depots + num_customers, 2))
    linehaul, backhaul = _draw_demands(variant, num_customers, drawn, rng)
    floats: dict[str, NDArray[Any]] = {
        "demand_linehaul": linehaul,
        "vehicle_capacity": np.ones((drawn, 1)),
        "speed": np.ones((drawn, 1)),
    }
    others: dict[str, NDArray[Any]] = {"num_depots": np.full((drawn, 1), num_depots, dtype=np.int32)}
    if backhaul is not None:
        floats["demand_backhaul"] = backhaul
        floats["backhaul_class"] = np.full((drawn, 1), float(variant.backhaul))
    if variant.open_route:
        others["open_route"] = np.ones((drawn, 1), dtype=np.bool_)
    if variant.time_windows:
        floats["time_windows"], floats["service_time"] = _draw_windows(locs, num_depots, rng)
    if variant.distance_limit:
        floats["distance_limit"] = _draw_limits(locs, rng)
    floats = {"locs": locs} | floats
    return {name: array.astype(np.float32, copy=False) for name, array in floats.items()} | others


def _draw_demands(
    variant: Variant, num_customers: int, drawn: int, rng: np.random.RandomState
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Deliveries and, with backhauls, pickups of the customers, ``[S, n]`` each."""
    capacity = np.float32(capacity_for(num_customers))
    linehaul = rng.randint(*DEMAND_BOUNDS, (drawn, num_customers)).astype(np.float32) / capacity
    if not variant.backhaul:
        return linehaul, None
    is_backhaul = rng.rand(drawn, num_customers) < BACKHAUL_FRACTION
    backhaul = np.zeros((drawn, num_customers), dtype=np.float32)
    backhaul[is_backhaul] = rng.randint(*DEMAND_BOUNDS, int(is_backhaul.sum())).astype(np.float32) / capacity
    return np.where(is_backhaul, np.float32(0.0), linehaul), backhaul


def _draw_windows(
    locs: Floats, num_depots: int, rng: np.random.RandomState
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Windows ``[S, K+n, 2]`` and service times ``[S, K+n]``, such that depot 0 can serve every customer alone.

    With several depots the distance to depot 0 still decides.
    """
    drawn, nodes = locs.shape[:2]
    service = _uniform(SERVICE_BOUNDS, (drawn, nodes - num_depots), rng)
    length = _uniform(WINDOW_LENGTH_BOUNDS, (drawn, nodes - num_depots), rng)
    windows = np.zeros((drawn, nodes, 2), dtype=np.float32)
    windows[:, :num_depots, 1] = DEPOT_CLOSING
    for rows in _blocks(drawn):
        distance = np.linalg.norm(locs[rows, :1] - locs[rows, num_depots:], axis=-1)
        latest_factor = (DEPOT_CLOSING - service[rows] - length[rows]) / distance - 1.0
        earliest = (1.0 + (latest_factor - 1.0) * rng.rand(*distance.shape)) * distance
        windows[rows, num_depots:, 0] = earliest
        windows[rows, num_depots:, 1] = earliest + length[rows]
    services = np.zeros((drawn, nodes), dtype=np.float32)
    services[:, num_depots:] = service
    return windows, services


def _draw_limits(locs: Floats, rng: np.random.RandomState) -> Floats:
    """Limits ``[S, 1]`` above the round trip from depot 0 to any other node, further depots included."""
    farthest = np.concatenate(
        [np.linalg.norm(locs[rows, 1:] - locs[rows, :1], axis=-1).max(axis=1) for rows in _blocks(len(locs))]
    )
    low = 2.0 * farthest + LIMIT_MARGIN
    high = np.maximum(LONGEST_LIMIT, low + LIMIT_MARGIN)
    limits: Floats = rng.uniform(low, high, (locs.shape[0],))[:, None]
    return limits


def _uniform(bounds: tuple[float, float], shape: tuple[int, ...], rng: np.random.RandomState) -> Floats:
    low, high = bounds
    numbers = rng.rand(*shape)
    numbers *= high - low
    numbers += low
    return numbers


def _blocks(count: int) -> Iterator[slice]:
    """Instances that are computed together: what they take beside their arrays is small, and draws keep their order."""
    return (slice(start, start + COMPUTED_AT_ONCE) for start in range(0, count, COMPUTED_AT_ONCE))
