"""An instance as OR-Tools' routing library sees it, and its search.

| attribute | in the model |
|---|---|
| capacity | dimensions of deliveries and of pickups, each from 0 to the capacity |
| backhauls after linehauls | linehaul customers are no possible successors of backhaul customers |
| mixed backhauls | dimension of the load after each stop, starting with the deliveries of the route itself |
| open routes | ways to depots cost and take nothing, no closing time |
| distance limit | dimension of length |
| windows | dimension of time, departure at 0 |
| several depots | vehicles start and end at their own |

With a free start of the load the solver would deliver what it picked up on the way.

Guided local search improves a parallel cheapest insertion, of the strategies tried the best at any time limit.
"""

import math
from dataclasses import dataclass
from typing import Any

from ortools.constraint_solver import pywrapcp, routing_enums_pb2

from polarvrp.problem.tours import Route, routes_to_actions
from polarvrp.solvers.integers import UNBOUNDED, IntegerInstance


@dataclass(frozen=True, slots=True)
class OrtoolsModel:
    """A routing model; vehicles of the first depot come first.

    Attributes:
        manager: Nodes against OR-Tools' indices.
        routing: The model.
        instance: What it was built from.
    """

    manager: Any
    routing: Any
    instance: IntegerInstance


def routing_model(instance: IntegerInstance, vehicles_per_depot: int) -> OrtoolsModel:
    """OR-Tools' form of an instance.

    Args:
        instance: At least one customer.
        vehicles_per_depot: A few more than a tour needs; many vehicles make the search slow.
    """
    depots = instance.num_depots
    homes = [depot for depot in range(depots) for _ in range(vehicles_per_depot)]
    manager = pywrapcp.RoutingIndexManager(len(instance.distance), len(homes), homes, homes)
    routing = pywrapcp.RoutingModel(manager)
    length = routing.RegisterTransitMatrix(instance.distance.tolist())
    routing.SetArcCostEvaluatorOfAllVehicles(length)
    if instance.max_distance is not None:
        routing.AddDimension(length, 0, instance.max_distance, True, "length")
    model = OrtoolsModel(manager, routing, instance)
    _add_loads(model)
    if instance.has_windows:
        _add_windows(model)
    return model


def search(model: OrtoolsModel, seconds: float, seed: int, max_solutions: int | None = None) -> list[int] | str:
    """Guided local search.

    Args:
        model: From ``routing_model``.
        seconds: Wall-clock limit; one millisecond is the least there is.
        seed: Of the solver's random numbers.
        max_solutions: Stop after so many accepted solutions.

    Returns:
        The best tour in flat form; if there is none, OR-Tools' name for how the search ended.
    """
    parameters = pywrapcp.DefaultRoutingSearchParameters()
    parameters.first_solution_strategy = routing_enums_pb2.FirstSolutionStrategy.PARALLEL_CHEAPEST_INSERTION
    parameters.local_search_metaheuristic = routing_enums_pb2.LocalSearchMetaheuristic.GUIDED_LOCAL_SEARCH
    parameters.time_limit.FromMilliseconds(max(1, math.floor(1000 * seconds)))
    if max_solutions is not None:
        parameters.solution_limit = max_solutions
    routing = model.routing
    routing.solver().ReSeed(seed)
    assignment = routing.SolveWithParameters(parameters)
    if assignment is None:
        return str(routing_enums_pb2.RoutingSearchStatus.Value.Name(routing.status()))
    routes = []
    for vehicle in range(routing.vehicles()):
        customers = []
        index = routing.Start(vehicle)
        depot = model.manager.IndexToNode(index)
        while not routing.IsEnd(index := assignment.Value(routing.NextVar(index))):
            customers.append(model.manager.IndexToNode(index))
        routes.append(Route(depot, tuple(customers)))
    return routes_to_actions(routes, model.instance.num_depots)


def _add_loads(model: OrtoolsModel) -> None:
    """Capacity, precedence of linehauls or load along the way."""
    instance, routing, manager = model.instance, model.routing, model.manager
    none = [0] * instance.num_depots
    deliveries, pickups = instance.delivery.tolist(), instance.pickup.tolist()
    delivery = routing.RegisterUnaryTransitVector(none + deliveries)
    routing.AddDimension(delivery, 0, instance.vehicle_load, True, "delivered")
    if not any(pickups):
        return
    pickup = routing.RegisterUnaryTransitVector(none + pickups)
    routing.AddDimension(pickup, 0, instance.vehicle_load, True, "picked up")
    if instance.forbidden_arcs is not None:
        for node, successors in enumerate(instance.forbidden_arcs):
            forbidden = [manager.NodeToIndex(int(other)) for other in successors.nonzero()[0]]
            if forbidden:
                routing.NextVar(manager.NodeToIndex(node)).RemoveValues(forbidden)
    else:
        changes = [more - less for more, less in zip(pickups, deliveries, strict=True)]
        change = routing.RegisterUnaryTransitVector(none + changes)
        routing.AddDimension(change, 0, instance.vehicle_load, False, "load")
        load, delivered = routing.GetDimensionOrDie("load"), routing.GetDimensionOrDie("delivered")
        for vehicle in range(routing.vehicles()):
            start, end = routing.Start(vehicle), routing.End(vehicle)
            routing.solver().Add(load.CumulVar(start) == delivered.CumulVar(end))


def _add_windows(model: OrtoolsModel) -> None:
    """Time at which service starts at each stop, with waiting, and closing times of depots."""
    instance, routing, manager = model.instance, model.routing, model.manager
    depots = instance.num_depots
    leave = instance.distance.copy()
    leave[depots:] += instance.service[:, None]
    ends = [int(end) for end in (*instance.latest, *instance.closing) if end < UNBOUNDED]
    longest_route = instance.num_customers * int(leave.max())
    horizon = max(ends, default=int(instance.earliest.max())) + longest_route
    routing.AddDimension(routing.RegisterTransitMatrix(leave.tolist()), horizon, horizon, True, "time")
    time = routing.GetDimensionOrDie("time")
    for customer, (earliest, latest) in enumerate(
        zip(instance.earliest.tolist(), instance.latest.tolist(), strict=True), start=depots
    ):
        time.CumulVar(manager.NodeToIndex(customer)).SetRange(earliest, min(latest, horizon))
    for vehicle in range(routing.vehicles()):
        closing = int(instance.closing[manager.IndexToNode(routing.Start(vehicle))])
        time.CumulVar(routing.End(vehicle)).SetMax(min(closing, horizon))
