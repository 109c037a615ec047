"""Instances as no generator draws them: nodes in one place, no demand, windows of no length, one customer.

Coordinates, windows, service times and limits are quarters, so that sums meet bounds often and, along an axis, exactly.
"""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from polarvrp.problem.instances import Instances, NodeArrays

CAPACITY = 30
DEMANDS = (0, 4, 10, 15, 20, CAPACITY, CAPACITY + 1)
"""The last one is more than a vehicle takes."""


@st.composite
def odd_instances(draw: Any, count: int, *, possible: bool = False) -> Instances[NodeArrays]:
    """Instances of one shape: up to three depots and six customers.

    Each has deliveries, pickups or both, and windows, service times, closing depots, a limit and open routes or not.

    Args:
        draw: Given by hypothesis.
        count: B.
        possible: Whether no demand exceeds the capacity.
    """
    depots, customers = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape, is_depot = (count, depots + customers), np.arange(depots + customers) < depots

    def quarters(low: int, high: int, *size: int) -> Any:
        return random.integers(low, high + 1, size) / 4

    def some() -> Any:
        return random.random((count, 1)) < 0.5

    demand = random.choice(DEMANDS[:-1] if possible else DEMANDS, shape) * ~is_depot
    picked = random.random(shape) < random.choice([0.0, 0.5, 0.5, 1.0], (count, 1))
    timed = some()
    opens = quarters(0, 12, *shape) * ~is_depot * timed
    closes = opens + np.where(timed, random.choice([0.0, 0.25, 2.0, np.inf], shape), np.inf)
    closes[:, :depots] = np.where(timed, random.choice([1.0, 2.0, 4.5, np.inf], (count, 1)), np.inf)
    floats = {
        "locs": quarters(0, 4, *shape, 2),
        "demand_linehaul": np.where(picked, 0, demand) / CAPACITY,
        "demand_backhaul": np.where(picked, demand, 0) / CAPACITY,
        "time_windows": np.stack((opens, closes), axis=-1),
        "service_time": random.choice([0.0, 0.25, 1.0], shape) * ~is_depot * timed,
        "distance_limit": np.where(some()[:, 0], quarters(1, 16, count), np.inf),
    }
    return Instances(
        **{name: array.astype(np.float32) for name, array in floats.items()},
        open_route=some()[:, 0],
        backhaul_class=random.integers(1, 3, count),
        flags=np.zeros((count, 6), bool),
        num_depots=depots,
        capacity=CAPACITY,
    )
