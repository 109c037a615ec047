"""An instance as PyVRP sees it, and tours as PyVRP's solutions and back.

| attribute | in the model |
|---|---|
| capacity, mixed backhauls | deliveries and pickups of clients; PyVRP's load rule is the one wanted |
| backhauls after linehauls | arcs from backhaul to linehaul clients of a length that no route may reach |
| open routes | ways to depots cost and take nothing, vehicles have no closing time |
| distance limit | longest distance of a vehicle, never a duration: waiting does not count |
| limit that counts service | longest duration of a vehicle |
| windows | windows and service times of clients, closing time of vehicles |
| several depots | one vehicle type a depot, starting and ending there |

Clients are numbered from 0, without depots; locations are the nodes of the instance.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyvrp
from pyvrp import Client, Depot, Location, ProblemData, Solution, VehicleType

from polarvrp.errors import DataError
from polarvrp.problem.tours import Route, actions_to_routes, routes_to_actions
from polarvrp.solvers.integers import UNBOUNDED, IntegerInstance

NO_LIMIT = 2**63 - 1
"""What PyVRP assumes where no bound is given."""

_PLACE = Location(0.0, 0.0)  # PyVRP reads distances from matrices; coordinates would only be copied


def problem_data(instance: IntegerInstance, vehicles_per_depot: int | None = None) -> ProblemData:
    """PyVRP's form of an instance.

    Args:
        instance: At least one customer.
        vehicles_per_depot: Vehicles at each depot; default one for each customer, which no solution exceeds.
    """
    depots, customers = instance.num_depots, instance.num_customers
    distance: Any = instance.distance  # PyVRP's stubs describe arrays in a form that no array has
    if instance.forbidden_arcs is not None:
        distance = np.where(instance.forbidden_arcs, instance.forbidden, distance)
    duration: Any = distance if instance.takes_time else np.zeros_like(distance)
    return ProblemData(
        locations=[_PLACE] * (depots + customers),
        clients=_clients(instance),
        depots=[Depot(depot) for depot in range(depots)],
        vehicle_types=[_vehicle_type(instance, depot, vehicles_per_depot or customers) for depot in range(depots)],
        distance_matrices=[distance],
        duration_matrices=[duration],
    )


def solution_of(data: ProblemData, actions: Sequence[int]) -> Solution:
    """A tour in flat form as PyVRP's solution; it need not be feasible.

    Raises:
        DataError: If PyVRP refuses it: a customer that does not exist or occurs twice, or too many routes.
    """
    depots = data.num_depots
    routes = actions_to_routes(actions, depots)
    visits = [[customer - depots for customer in route.customers] for route in routes]
    try:
        if depots == 1:
            return Solution(data, visits)  # without routes in between, in a third of the time
        vehicles = [
            pyvrp.Route(data, clients, vehicle_type=route.depot) for route, clients in zip(routes, visits, strict=True)
        ]
        return Solution(data, vehicles)
    except (RuntimeError, IndexError) as error:
        raise DataError(f"PyVRP refuses the tour: {error}") from error


def actions_of(solution: Solution, num_depots: int) -> list[int]:
    """PyVRP's solution as a tour in flat form, routes in PyVRP's order."""
    return routes_to_actions(_routes(solution, num_depots), num_depots)


def _routes(solution: Solution, num_depots: int) -> Iterable[Route]:
    """Read from PyVRP's text, ``Route #1: C4 C0`` and so on: its schedules would take ten times as long."""
    for route, line in zip(solution.routes(), str(solution).splitlines(), strict=True):
        yield Route(route.start_depot(), tuple(int(client[1:]) + num_depots for client in line.split()[2:]))


def _clients(instance: IntegerInstance) -> list[Client]:
    depots = instance.num_depots
    loads = zip(instance.delivery.tolist(), instance.pickup.tolist(), strict=True)
    if not instance.takes_time:
        return [Client(depots + i, [delivery], [pickup]) for i, (delivery, pickup) in enumerate(loads)]
    times = zip(instance.service.tolist(), instance.earliest.tolist(), instance.latest.tolist(), strict=True)
    return [
        Client(depots + i, [delivery], [pickup], service, earliest, latest)
        for i, ((delivery, pickup), (service, earliest, latest)) in enumerate(zip(loads, times, strict=True))
    ]


def _vehicle_type(instance: IntegerInstance, depot: int, num_available: int) -> VehicleType:
    max_distance = NO_LIMIT if instance.max_distance is None else instance.max_distance
    if instance.forbidden_arcs is not None:
        # A long arc is not infeasible by itself. No route without one is that long: see the scale rule.
        max_distance = min(max_distance, instance.forbidden - 1)
    closing = int(instance.closing[depot])
    return VehicleType(
        num_available,
        [instance.vehicle_load],
        depot,
        depot,
        tw_early=0 if instance.opening is None else int(instance.opening[depot]),
        tw_late=closing if instance.has_windows and closing < UNBOUNDED else NO_LIMIT,
        shift_duration=NO_LIMIT if instance.max_duration is None else instance.max_duration,
        max_distance=max_distance,
    )
