"""Exact prices of solutions of library instances, in the numbers of their files and by the rounding of their sets.

Plain loops over Python numbers on purpose: no solver, environment or network shares this code.
"""

import math
from dataclasses import dataclass

from polarvrp.errors import InfeasibleTourError
from polarvrp.problem.library_instances import LibraryInstance
from polarvrp.problem.tours import Route, require_every_customer_once, require_no_negative_node
from polarvrp.tolerances import LARGEST_LIBRARY_EXCESS, LIBRARY_TOLERANCE


@dataclass(frozen=True, slots=True)
class LibraryReport:
    """Exact price of a solution.

    Attributes:
        cost: Sum of distances as the instance's ``rounding`` counts them; an int where that gives whole numbers.
        length: Sum of unrounded distances, float64.
        num_routes: Routes that visit somebody.
        first_problem: First rule broken and the route that breaks it; None if the solution is feasible.
    """

    cost: float
    length: float
    num_routes: int
    first_problem: str | None


def check_routes(library: LibraryInstance, routes: list[Route]) -> LibraryReport:
    """Exact price and feasibility of a solution; time counts distances as costs do.

    Rules: deliveries and pickups of a route each at most the capacity, no delivery after a pickup, service starts
    within the window, closed routes are back before their depot closes, none is longer than the limit.

    Args:
        library: The instance.
        routes: Node indices, depots first.

    Raises:
        InfeasibleTourError: If a node is out of range, or a customer is missing or served twice.
    """
    depots = library.num_depots
    for route in routes:
        require_no_negative_node((route.depot, *route.customers))
        if route.depot >= depots:
            raise InfeasibleTourError(f"node {route.depot} is no depot; depots are 0 to {depots - 1}")
        if min(route.customers, default=depots) < depots:
            customer = min(route.customers)
            raise InfeasibleTourError(f"customer {customer} is the depot; routes list customers from {depots}")
    require_every_customer_once([c for route in routes for c in route.customers], depots, len(library.demands))
    prices = _Prices(library)
    cost, length, first_problem = 0.0, 0.0, None
    for number, route in enumerate(routes, start=1):
        problem = prices.problem(route)
        if problem is not None and first_problem is None:
            first_problem = f"route {number} {problem}"
        for start, end in prices.legs(route):
            cost, length = cost + prices.leg(start, end), length + prices.distance(start, end)
    return LibraryReport(
        library.rounding.total(cost), length, sum(1 for route in routes if route.customers), first_problem
    )


def at_cheapest_depots(library: LibraryInstance, routes: list[Route]) -> list[Route]:
    """Routes of a solution file, each from the depot where it breaks no rule and costs least.

    Files of solutions name no depots.
    """
    if library.num_depots == 1:
        return routes
    prices, nodes = _Prices(library), len(library.demands)

    def rank(route: Route) -> tuple[bool, float]:
        return prices.problem(route) is not None, prices.length(route)

    return [
        min((Route(depot, route.customers) for depot in range(library.num_depots)), key=rank)
        if all(0 <= customer < nodes for customer in route.customers)
        else route
        for route in routes
    ]


def first_unservable_customer(library: LibraryInstance) -> str | None:
    """Names the first customer that no vehicle can serve even alone, and the rule in the way; None if there is none."""
    prices = _Prices(library)
    for customer in range(library.num_depots, len(library.demands)):
        problems = [prices.problem(Route(depot, (customer,))) for depot in range(library.num_depots)]
        if None not in problems:
            elsewhere = " (no other depot helps)" if len(problems) > 1 else ""
            # By a matrix a way through others may be shorter than the direct one.
            untried = "" if library.matrix is None else "; routes that reach it through others are not tried"
            return f"customer {customer} cannot be served: a route to it alone {problems[0]}{elsewhere}{untried}"
    return None


def split_to_feasible(library: LibraryInstance, routes: list[Route]) -> list[Route]:
    """Routes of which those that break a rule are cut before the customer where they would first break one.

    The pieces keep the order of visits; a piece starts at another depot where its first customer needs it. Every
    customer must be servable alone.
    """
    prices, pieces = _Prices(library), []
    for route in routes:
        if prices.problem(route) is None:
            pieces.append(route)
            continue
        piece = Route(route.depot, ())
        for customer in route.customers:
            longer = Route(piece.depot, (*piece.customers, customer))
            if prices.problem(longer) is None:
                piece = longer
                continue
            pieces.append(piece)
            alone = [Route(depot, (customer,)) for depot in (route.depot, *range(library.num_depots))]
            piece = next((single for single in alone if prices.problem(single) is None), alone[0])
        pieces.append(piece)
    return [piece for piece in pieces if piece.customers]


def service_starts(library: LibraryInstance, route: Route) -> list[float]:
    """When each customer of a route is served by a vehicle that leaves as soon as its depot opens."""
    prices, windows = _Prices(library), library.time_windows
    time = 0.0 if windows is None else float(windows[route.depot, 0])
    starts: list[float] = []
    for start, end in prices.legs(route)[: len(route.customers)]:
        time += prices.leg(start, end)
        time = time if windows is None else max(time, float(windows[end, 0]))
        starts.append(time)
        time += prices.service[end]
    return starts


class _Prices:
    """An instance as Python numbers: indexing arrays element by element would dominate the check."""

    def __init__(self, library: LibraryInstance) -> None:
        self.library = library
        self.places = library.coordinates.tolist()
        self.matrix = None if library.matrix is None else library.matrix.tolist()
        self.demands = library.demands.tolist()
        self.pickups = [0] * len(self.demands) if library.pickups is None else library.pickups.tolist()
        windows, service = library.time_windows, library.service_times
        self.windows = None if windows is None else windows.tolist()
        self.service = [0.0] * len(self.demands) if service is None else service.tolist()

    def distance(self, start: int, end: int) -> float:
        if self.matrix is not None:
            return float(self.matrix[start][end])
        (x, y), (other_x, other_y) = self.places[start], self.places[end]
        return math.sqrt((x - other_x) ** 2 + (y - other_y) ** 2)

    def leg(self, start: int, end: int) -> float:
        """A distance as costs count it."""
        return self.library.rounding.of(self.distance(start, end))

    def legs(self, route: Route) -> list[tuple[int, int]]:
        nodes = [route.depot, *route.customers]
        return list(zip(nodes, nodes[1:] if self.library.open_routes else [*nodes[1:], route.depot], strict=False))

    def length(self, route: Route) -> float:
        """Length as costs count it."""
        return sum(self.leg(start, end) for start, end in self.legs(route))

    def problem(self, route: Route) -> str | None:
        """The rule that a route breaks, loads before times; None if it breaks none."""
        capacity = self.library.capacity
        for what, loads in (("load", self.demands), ("a load to collect of", self.pickups)):
            load = sum(loads[customer] for customer in route.customers)
            if load > capacity:
                return f"has {what} {load}, the capacity is {capacity}"
        collecting = False
        for customer in route.customers:
            if collecting and self.demands[customer] > 0:
                return f"delivers to customer {customer} after a pickup"
            collecting = collecting or self.pickups[customer] > 0
        return self._lateness(route) if self.windows is not None else self._too_long(self.duration(route))

    def duration(self, route: Route) -> float:
        """Length and service, without waiting."""
        return self.length(route) + sum(self.service[customer] for customer in route.customers)

    def _too_long(self, duration: float) -> str | None:
        limit = self.library.distance_limit
        return f"has length {duration:.6f}, the limit is {limit:.6f}" if _exceeds(duration, limit) else None

    def _lateness(self, route: Route) -> str | None:
        """The first late service or return, or too long a time away at the best departure."""
        windows, depot = self.windows or [], route.depot
        time, closing = windows[depot]
        for start, end in self.legs(route):
            time = max(time, windows[start][0]) + self.service[start] + self.leg(start, end)
            if _exceeds(time, windows[end][1]):
                if end == depot:
                    return f"returns at {time:.6f}, depot {depot} closes at {closing:.6f}"
                return f"serves customer {end} at {time:.6f}, its window ends {windows[end][1]:.6f}"
        if self.library.open_routes and route.customers:
            last = route.customers[-1]
            time = max(time, windows[last][0]) + self.service[last]
        return self._too_long(max(self.duration(route), time - self._latest_departure(route)))

    def _latest_departure(self, route: Route) -> float:
        """When a vehicle can leave its depot at the latest without being late anywhere."""
        windows = self.windows or []
        latest = math.inf if self.library.open_routes else windows[route.depot][1]
        for start, end in reversed(self.legs(route)):
            latest = min(latest, windows[end][1]) - self.leg(start, end) - self.service[start]
        return latest


def _exceeds(value: float, bound: float) -> bool:
    return value - bound > min(LIBRARY_TOLERANCE * max(1.0, abs(bound)), LARGEST_LIBRARY_EXCESS)
