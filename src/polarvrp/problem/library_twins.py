"""Generated instances in the form of library files: as they are, or in whole numbers like the public sets."""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from polarvrp.errors import ConfigError
from polarvrp.problem.datasets import instances_from_arrays, variant_of
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.library_instances import LibraryInstance, Rounding
from polarvrp.problem.numpy_generator import generate_arrays
from polarvrp.problem.variants import parse_variant

GRID = 1000
"""Side of the square that coordinates are whole numbers of."""


def library_of(instances: Instances[NodeArrays], index: int, name: str) -> LibraryInstance:
    """An instance of a set as a library file would hold it, in its own unit and without rounding.

    What library files do not know is lost: mixed backhauls are taken for ordinary ones, and the limit counts service.
    """
    limit, capacity = float(instances.distance_limit[index]), instances.capacity

    def loads(demand: NodeArrays) -> NDArray[np.int64]:
        whole: NDArray[np.int64] = np.rint(demand[index].astype(np.float64) * capacity).astype(np.int64)
        return whole

    variant = variant_of(instances[[index]])
    return LibraryInstance(
        name=name,
        coordinates=instances.locs[index].astype(np.float64),
        demands=loads(instances.demand_linehaul),
        capacity=capacity,
        pickups=loads(instances.demand_backhaul) if variant.backhaul else None,
        time_windows=instances.time_windows[index].astype(np.float64) if variant.time_windows else None,
        service_times=instances.service_time[index].astype(np.float64) if variant.time_windows else None,
        distance_limit=limit,
        open_routes=variant.open_route,
        num_depots=instances.num_depots,
        rounding=Rounding.NONE,
    )


def drawn_library(
    variant: str, num_customers: int, seed: int, rounding: Rounding = Rounding.NEAREST
) -> LibraryInstance:
    """One random instance as a library file would hold it; times are whole numbers too.

    Windows are widened by what rounding may cost a vehicle on a round trip, so that every customer can be served.

    Args:
        variant: Any without mixed backhauls, and not a limit together with windows: files count waiting and service in
            it, the generator does not.
        num_customers: n.
        seed: Of the generator.
        rounding: How distances count.

    Raises:
        ConfigError: If there is no such variant, or library files do not know it.
    """
    known = parse_variant(variant)
    if known.backhaul == 2 or (known.distance_limit and known.time_windows):
        raise ConfigError(f"no library files have the rules of {variant}; draw it without mixed backhauls or the limit")
    drawn = library_of(
        instances_from_arrays(generate_arrays(known, num_customers, 1, seed)),
        0,
        f"{known.name}-n{num_customers}-{seed}",
    )
    windows, slack = drawn.time_windows, 3.0  # half a unit for each end of a leg, one for the service, rounded up
    if windows is not None:
        windows = np.floor(windows * GRID)
        windows[:, 1] += np.where(np.arange(len(windows)) < drawn.num_depots, 2 * slack, slack)
    return dataclasses.replace(
        drawn,
        coordinates=np.rint(drawn.coordinates * GRID),
        time_windows=windows,
        service_times=None if drawn.service_times is None else np.ceil(drawn.service_times * GRID),
        distance_limit=np.ceil(drawn.distance_limit * GRID) + 2 * slack if known.distance_limit else math.inf,
        rounding=rounding,
    )
