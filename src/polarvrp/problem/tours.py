"""Tours: the flat form, routes, and an exact check of feasibility and cost.

The check is plain loops over Python floats (float64) on purpose: it shares no code with the environment, the solvers or
the networks, so that it can testify against each of them.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polarvrp.errors import InfeasibleTourError
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.tolerances import LOAD_TOLERANCE, MASK_EPSILON, REFERENCE_TOLERANCE, tolerance_at


@dataclass(frozen=True, slots=True)
class Route:
    """One vehicle's way: from ``depot`` through ``customers``, both node indices, back unless routes are open."""

    depot: int
    customers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TourReport:
    """What the exact check found.

    Attributes:
        cost: Length of all routes from coordinates in float64; open routes have no way back.
        load_violation: Largest excess over the capacity, in vehicle loads; infinite where a linehaul customer follows
            a backhaul one although it must not, for there is no excess to measure.
        time_violation: Largest excess over a window, a closing time or the length limit, in distance units.
        max_violation: The larger of the two, raw: nothing subtracted, 0 when no rule is broken.
        num_routes: Routes that visit somebody.
        first_problem: The first rule broken by more than the tolerances; None if the tour is feasible.
    """

    cost: float
    load_violation: float
    time_violation: float
    max_violation: float
    num_routes: int
    first_problem: str | None


def actions_to_routes(actions: Sequence[int], num_depots: int) -> list[Route]:
    """Routes of a tour in flat form.

    Args:
        actions: Node indices. One depot: customers, a 0 between routes. Several depots: each route is its depot, then
            its customers. Empty routes and trailing depots are tolerated.
        num_depots: K.

    Raises:
        InfeasibleTourError: If a node is negative, or with several depots the first action is a customer.
    """
    require_no_negative_node(actions)
    if num_depots > 1 and len(actions) > 0 and actions[0] >= num_depots:
        raise InfeasibleTourError(f"with {num_depots} depots a tour starts at a depot, got customer {actions[0]} first")
    routes: list[Route] = []
    depot, customers = 0, []
    for action in actions:
        node = int(action)
        if node >= num_depots:
            customers.append(node)
            continue
        if customers:
            routes.append(Route(depot, tuple(customers)))
        depot, customers = node, []
    if customers:
        routes.append(Route(depot, tuple(customers)))
    return routes


def routes_to_actions(routes: Iterable[Route], num_depots: int) -> list[int]:
    """The flat form of routes, the inverse of ``actions_to_routes``; routes that visit nobody vanish."""
    actions: list[int] = []
    for route in routes:
        if not route.customers:
            continue
        if num_depots > 1 or actions:
            actions.append(route.depot)
        actions.extend(route.customers)
    return actions


def flat_actions(actions: Sequence[int], num_depots: int) -> list[int]:
    """The flat form of a tour as an environment records it: without empty routes, padding and a depot at either end."""
    return routes_to_actions(actions_to_routes(actions, num_depots), num_depots)


def flat_tours(actions: NodeArrays, num_depots: int) -> list[list[int]]:
    """The flat forms of tours as an environment records them, as ``flat_actions`` gives them one by one.

    Args:
        actions: Nodes in order, padded with depots, whole numbers, ``[B, T]``; with several depots the first is one.
        num_depots: K.
    """
    customer = actions >= num_depots
    before_customer = np.pad(customer[:, 1:], ((0, 0), (0, 1)))
    started = np.logical_or.accumulate(customer, axis=1) if num_depots == 1 else np.ones_like(customer)
    kept = customer | (before_customer & started)
    ends = np.cumsum(kept.sum(axis=1))
    return [tour.tolist() for tour in np.split(actions[kept], ends[:-1])]


def most_actions(num_customers: int, num_depots: int) -> int:
    """Bound on the actions of a tour that an environment builds; no tour in flat form is longer.

    Args:
        num_customers: n; each may have a route of its own.
        num_depots: K; with several, routes name their depots as well, and dead ends name other ones.
    """
    return (2 if num_depots == 1 else 5) * num_customers + 2


@dataclass(frozen=True, slots=True)
class PlainInstance:
    """One instance as Python numbers: indexing arrays element by element would dominate the check."""

    locs: list[list[float]]
    linehaul: list[float]
    backhaul: list[float]
    windows: list[list[float]]
    service: list[float]
    limit: float
    is_open: bool
    mixed: bool
    num_depots: int
    capacity: int

    @classmethod
    def of(cls, instances: Instances[NodeArrays], index: int) -> "PlainInstance":
        return cls(
            instances.locs[index].tolist(),
            instances.demand_linehaul[index].tolist(),
            instances.demand_backhaul[index].tolist(),
            instances.time_windows[index].tolist(),
            instances.service_time[index].tolist(),
            float(instances.distance_limit[index]),
            bool(instances.open_route[index]),
            int(instances.backhaul_class[index]) == 2,
            instances.num_depots,
            instances.capacity,
        )

    def units(self, load: float) -> int:
        """A load in whole units of demand."""
        return round(load * self.capacity)

    def distance(self, start: int, end: int) -> float:
        (x, y), (other_x, other_y) = self.locs[start], self.locs[end]
        return math.sqrt((x - other_x) ** 2 + (y - other_y) ** 2)


def check_tour(
    instances: Instances[NodeArrays],
    index: int,
    actions: Sequence[int],
    time_tolerance: float = REFERENCE_TOLERANCE,
) -> TourReport:
    """Exact cost and feasibility of one tour.

    Rules: loads at most the capacity, with mixed backhauls at every point of the way; otherwise no linehaul customer
    after a backhaul one; service starts within the window and may end after it; closed routes are back before their
    depot closes; a route, its way back included unless open, is no longer than the limit, waiting and service not
    counted.

    Args:
        instances: Arrays in main memory.
        index: Which instance.
        actions: Its tour in flat form.
        time_tolerance: Excess over windows, closing times and limits that ``first_problem`` lets pass, in the unit
            square (``tolerances.tolerance_at``); loads are allowed ``LOAD_TOLERANCE``. The numbers of the report stay
            raw.

    Raises:
        InfeasibleTourError: If a node is out of range, or a customer is missing or served twice.
    """
    instance = PlainInstance.of(instances, index)
    require_every_customer_once(actions, instances.num_depots, instances.num_nodes)
    routes = actions_to_routes(actions, instances.num_depots)
    cost = load_violation = time_violation = 0.0
    first_problem = None
    for number, route in enumerate(routes, start=1):
        length = _length(instance, route)
        cost += length
        load, load_problem = _worst_load(instance, route)
        late, late_problem = _worst_time(instance, route, length, time_tolerance)
        load_violation, time_violation = max(load_violation, load), max(time_violation, late)
        if first_problem is None and load > LOAD_TOLERANCE:
            first_problem = f"route {number} {load_problem}"
        if first_problem is None and late_problem is not None:
            first_problem = f"route {number} {late_problem}"
    worst = max(load_violation, time_violation)
    return TourReport(cost, load_violation, time_violation, worst, len(routes), first_problem)


def measure_tour(instances: Instances[NodeArrays], index: int, actions: Sequence[int]) -> tuple[float, int]:
    """Cost and number of routes of one tour as ``check_tour`` reports them, whatever other rules it breaks.

    Raises:
        InfeasibleTourError: If a node is out of range, or a customer is missing or served twice.
    """
    instance = PlainInstance.of(instances, index)
    require_every_customer_once(actions, instances.num_depots, instances.num_nodes)
    routes = actions_to_routes(actions, instances.num_depots)
    cost = 0.0
    for route in routes:
        cost += _length(instance, route)  # plain additions as in the check: sum() compensates since Python 3.12
    return cost, len(routes)


def require_no_negative_node(nodes: Sequence[int]) -> None:
    """Refuse a node below 0, which would pass for a depot.

    Raises:
        InfeasibleTourError: If there is one.
    """
    lowest = min(nodes, default=0)
    if lowest < 0:
        raise InfeasibleTourError(f"node {lowest} does not exist; nodes are numbered from 0")


def require_every_customer_once(actions: Sequence[int], num_depots: int, num_nodes: int) -> None:
    """Refuse a sequence of nodes that is no permutation of the customers, depots aside.

    Raises:
        InfeasibleTourError: If a node is out of range, or a customer is missing or served twice.
    """
    seen = [False] * num_nodes
    for action in actions:
        if not 0 <= action < num_nodes:
            raise InfeasibleTourError(f"node {action} does not exist; nodes are 0 to {num_nodes - 1}")
        if action >= num_depots and seen[action]:
            raise InfeasibleTourError(f"customer {action} is served twice; every customer must be served once")
        seen[action] = True
    for customer in range(num_depots, num_nodes):
        if not seen[customer]:
            raise InfeasibleTourError(f"customer {customer} is not served; every customer must be served once")


def _length(instance: PlainInstance, route: Route) -> float:
    length, node = 0.0, route.depot
    for customer in route.customers:
        length += instance.distance(node, customer)
        node = customer
    return length if instance.is_open else length + instance.distance(node, route.depot)


def _worst_load(instance: PlainInstance, route: Route) -> tuple[float, str]:
    """Largest excess over the capacity 1, and what is wrong there."""
    delivered = sum(instance.linehaul[customer] for customer in route.customers)
    collected = sum(instance.backhaul[customer] for customer in route.customers)
    worst, problem = delivered - 1.0, f"leaves with load {delivered:.6f} of 1"
    if instance.mixed:
        load = delivered
        for customer in route.customers:
            load += instance.backhaul[customer] - instance.linehaul[customer]
            if load - 1.0 > worst:
                worst, problem = load - 1.0, f"holds load {load:.6f} of 1 after customer {customer}"
        return max(worst, 0.0), problem
    after_backhaul = False
    for customer in route.customers:
        if instance.backhaul[customer] > 0.0:
            after_backhaul = True
        elif after_backhaul:
            return math.inf, f"serves linehaul customer {customer} after a backhaul customer"
    if collected - 1.0 > worst:
        worst, problem = collected - 1.0, f"returns with load {collected:.6f} of 1"
    return max(worst, 0.0), problem


def _worst_time(instance: PlainInstance, route: Route, length: float, tolerance: float) -> tuple[float, str | None]:
    """Largest excess over a window, the closing time or the length limit; the worst that the tolerance forbids."""
    worst, gravest, problem = 0.0, 0.0, None
    for node, value, bound in _bounded(instance, route, length):
        excess = value - bound
        worst = max(worst, excess)
        if excess > max(gravest, tolerance_at(bound, tolerance)):
            gravest, problem = excess, _lateness(instance, node, value, bound)
    return worst, problem


def _bounded(instance: PlainInstance, route: Route, length: float) -> Iterator[tuple[int | None, float, float]]:
    """What has a bound: the route's length (no node), starts of service, the return; node, value, bound."""
    yield None, length, instance.limit
    time, node = 0.0, route.depot
    for customer in route.customers:
        earliest, latest = instance.windows[customer]
        start = max(time + instance.distance(node, customer), earliest)
        yield customer, start, latest
        time, node = start + instance.service[customer], customer
    if not instance.is_open:
        yield route.depot, time + instance.distance(node, route.depot), instance.windows[route.depot][1]


def _lateness(instance: PlainInstance, node: int | None, value: float, bound: float) -> str:
    if node is None:
        return f"has length {value:.6f}, the limit is {bound:.6f}"
    if node < instance.num_depots:
        return f"returns at {value:.6f}, depot {node} closes at {bound:.6f}"
    return f"serves customer {node} at {value:.6f}, its window ends {bound:.6f}"


def first_impossible_customer(instances: Instances[Any], index: int) -> str | None:
    """Names the first customer that no vehicle can serve even alone, from any depot, and the rule in the way.

    Args:
        instances: Arrays in main memory.
        index: Which instance.

    Returns:
        ``"customer 3: demand 1.2 exceeds the capacity 1"`` and the like, customers by node index; None if each
        customer can be served alone, so that a solution exists.
    """
    instance = PlainInstance.of(instances, index)
    for customer in range(instance.num_depots, len(instance.locs)):
        demand = max(instance.linehaul[customer], instance.backhaul[customer])
        if instance.units(demand) > instance.capacity:
            return f"customer {customer}: demand {demand:.6g} exceeds the capacity 1"
        depots = sorted(range(instance.num_depots), key=lambda depot: instance.distance(depot, customer))
        obstacles = [_obstacle(instance, depot, customer) for depot in depots]
        if None not in obstacles:
            return f"customer {customer}: {obstacles[0]}" + (" (no other depot helps)" if len(depots) > 1 else "")
    return None


def _obstacle(instance: PlainInstance, depot: int, customer: int) -> str | None:
    """Why the route from ``depot`` to ``customer`` alone breaks a rule; None if it breaks none."""
    route = Route(depot, (customer,))
    arrival = instance.distance(depot, customer)
    length = _length(instance, route)
    earliest, latest = instance.windows[customer]
    closing = math.inf if instance.is_open else instance.windows[depot][1]
    back = max(arrival, earliest) + instance.service[customer] + arrival
    if max(arrival, earliest) - latest > tolerance_at(latest, MASK_EPSILON):
        return f"its window ends at {latest:.6g}, the first arrival is {arrival:.6g}"
    if back - closing > tolerance_at(closing, MASK_EPSILON):
        return f"the vehicle would be back at {back:.6g}, depot {depot} closes at {closing:.6g}"
    if length - instance.limit > tolerance_at(instance.limit, MASK_EPSILON):
        return f"the way there{'' if instance.is_open else ' and back'} is {length:.6g}, the limit {instance.limit:.6g}"
    return None
