"""Instances drawn by the published generator in the numbers of library files, where no public file is at hand."""

import numpy as np

from polarvrp.errors import ConfigError
from polarvrp.problem.datasets import instances_from_arrays
from polarvrp.problem.library_instances import LibraryInstance, Rounding
from polarvrp.problem.numpy_generator import generate_arrays
from polarvrp.problem.variants import parse_variant

GRID = 1000
"""Side of the square that coordinates are whole numbers of."""


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
    drawn = instances_from_arrays(generate_arrays(known, num_customers, 1, seed))
    depots, slack = drawn.num_depots, 3  # half a unit for each end of a leg, one for the service, rounded up
    windows = np.floor(drawn.time_windows[0].astype(np.float64) * GRID)
    windows[:depots, 1] += 2 * slack
    windows[depots:, 1] += slack
    limit = float(drawn.distance_limit[0])
    backhauls = np.rint(drawn.demand_backhaul[0].astype(np.float64) * drawn.capacity).astype(np.int64)
    return LibraryInstance(
        name=f"{known.name}-n{num_customers}-{seed}",
        coordinates=np.rint(drawn.locs[0].astype(np.float64) * GRID),
        demands=np.rint(drawn.demand_linehaul[0].astype(np.float64) * drawn.capacity).astype(np.int64),
        capacity=drawn.capacity,
        pickups=backhauls if known.backhaul else None,
        time_windows=windows if known.time_windows else None,
        service_times=np.ceil(drawn.service_time[0].astype(np.float64) * GRID) if known.time_windows else None,
        distance_limit=np.ceil(limit * GRID) + 2 * slack if known.distance_limit else np.inf,
        open_routes=known.open_route,
        num_depots=depots,
        rounding=rounding,
    )
