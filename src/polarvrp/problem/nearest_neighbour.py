"""Nearest neighbour: the simplest construction that keeps every rule, exactly and in plain floats."""

import math
from dataclasses import dataclass

from polarvrp.errors import InfeasibleTourError
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.tours import PlainInstance, Route, first_impossible_customer, routes_to_actions


@dataclass(slots=True)
class _Vehicle:
    """State of the route that ``nearest_neighbour`` is building."""

    depot: int
    node: int
    time: float = 0.0
    length: float = 0.0
    delivered: float = 0.0
    collected: float = 0.0
    peak: float = 0.0
    """Largest load so far, given all deliveries taken on; mixed backhauls only."""

    def can_serve(self, instance: PlainInstance, customer: int) -> bool:
        leg, back = instance.distance(self.node, customer), instance.distance(customer, self.depot)
        earliest, latest = instance.windows[customer]
        start = max(self.time + leg, earliest)
        if instance.is_open:
            back, closing = 0.0, math.inf
        else:
            closing = instance.windows[self.depot][1]
        on_time = start <= latest and start + instance.service[customer] + back <= closing
        return on_time and self.length + leg + back <= instance.limit and self._has_room(instance, customer)

    def _has_room(self, instance: PlainInstance, customer: int) -> bool:
        linehaul, backhaul = instance.linehaul[customer], instance.backhaul[customer]
        full = instance.capacity
        if instance.units(self.delivered + linehaul) > full or instance.units(self.collected + backhaul) > full:
            return False
        if instance.mixed:
            return backhaul > 0.0 or instance.units(self.peak + linehaul) <= full
        return backhaul > 0.0 or self.collected == 0.0

    def serve(self, instance: PlainInstance, customer: int) -> None:
        leg = instance.distance(self.node, customer)
        self.time = max(self.time + leg, instance.windows[customer][0]) + instance.service[customer]
        self.length += leg
        self.delivered += instance.linehaul[customer]
        self.collected += instance.backhaul[customer]
        self.peak = max(self.peak + instance.linehaul[customer], self.collected)
        self.node = customer


def nearest_neighbour(instances: Instances[NodeArrays], index: int) -> list[int]:
    """A feasible tour: always to the nearest customer that can be served next, home when there is none.

    A new route starts where the first leg is shortest over depots and customers.

    Returns:
        The tour in flat form; it breaks no window, closing time or limit in float64.

    Raises:
        InfeasibleTourError: If a customer cannot be served even alone.
    """
    instance = PlainInstance.of(instances, index)
    left = set(range(instance.num_depots, len(instance.locs)))
    routes: list[Route] = []
    while left:
        vehicles = [_Vehicle(depot, depot) for depot in range(instance.num_depots)]
        firsts = [
            (instance.distance(vehicle.depot, customer), vehicle.depot, customer)
            for vehicle in vehicles
            for customer in left
            if vehicle.can_serve(instance, customer)
        ]
        if not firsts:
            problem = first_impossible_customer(instances, index)
            raise InfeasibleTourError(f"instance {index} has no solution: {problem or f'customer {min(left)}'}")
        _, depot, customer = min(firsts)
        vehicle, customers = vehicles[depot], [customer]
        while True:
            vehicle.serve(instance, customer)
            left.discard(customer)
            nexts = [(instance.distance(customer, c), c) for c in left if vehicle.can_serve(instance, c)]
            if not nexts:
                break
            customer = min(nexts)[1]
            customers.append(customer)
        routes.append(Route(depot, tuple(customers)))
    return routes_to_actions(routes, instance.num_depots)
