"""The PyVRP model against the exact checker: same verdict on random routes, same cost within rounding, both ways."""

import dataclasses
import random

import numpy as np
import pytest
from pyvrp import solve
from pyvrp.stop import MaxIterations

from helpers.instances import generated
from polarvrp.errors import DataError
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.nearest_neighbour import nearest_neighbour
from polarvrp.problem.tours import Route, actions_to_routes, check_tour, routes_to_actions
from polarvrp.problem.variants import VARIANTS
from polarvrp.solvers.integers import LARGEST_COST, LARGEST_PENALTY, LOAD_UNITS, integer_instance
from polarvrp.solvers.pyvrp_model import actions_of, problem_data, solution_of

EVERY_ATTRIBUTE = (
    "CVRP",
    "OVRPL",
    "VRPTW",
    "OVRPBTW",
    "VRPBL",
    "VRPMB",
    "VRPMBLTW",
    "MDVRPBLTW",
    "MDOVRPMBL",
    "MDVRPTW",
)


def with_customers(instances: Instances[NodeArrays], index: int, customers: list[int]) -> Instances[NodeArrays]:
    """One instance reduced to its depots and some customers."""
    nodes = [*range(instances.num_depots), *customers]
    one = instances[[index]]
    per_node = ("locs", "demand_linehaul", "demand_backhaul", "time_windows", "service_time")
    return dataclasses.replace(one, **{name: getattr(one, name)[:, nodes] for name in per_node})


def random_route(instances: Instances[NodeArrays], index: int, rng: random.Random) -> list[int]:
    """Customers in an order that respects windows and precedence, one of them, or none."""
    customers = rng.sample(range(instances.num_depots, instances.num_nodes), rng.randint(1, 9))
    keys = [
        (instances.time_windows[index, :, 1], rng.random() < 0.7),
        (instances.demand_backhaul[index] > 0, rng.random() < 0.7),
    ]
    for key, wanted in keys:
        if wanted:
            customers.sort(key=key.__getitem__)
    return customers


@pytest.mark.parametrize("variant", EVERY_ATTRIBUTE)
def test_random_routes_get_the_checkers_verdict(variant: str) -> None:
    rng = random.Random(variant)
    instances = generated(variant, 50, 20)
    verdicts = []
    for _ in range(1000):
        index = rng.randrange(len(instances))
        reduced = with_customers(instances, index, random_route(instances, index, rng))
        depot = rng.randrange(instances.num_depots)
        customers = tuple(range(instances.num_depots, reduced.num_nodes))
        actions = routes_to_actions([Route(depot, customers)], instances.num_depots)
        report = check_tour(reduced, 0, actions)
        integers = integer_instance(reduced, 0)
        solution = solution_of(problem_data(integers), actions)
        assert solution.is_feasible() == (report.first_problem is None), report
        if report.first_problem is None:
            excess = solution.distance() / integers.scale - report.cost
            assert -1e-9 <= excess <= (len(customers) + 1) / integers.scale
        verdicts.append(report.first_problem is None)
    assert 0.1 < np.mean(verdicts) < 0.95


@pytest.mark.parametrize("variant", VARIANTS)
def test_tours_survive_the_trip_through_pyvrp(variant: str) -> None:
    instances = generated(variant, 10, 20)
    rng = random.Random(variant)
    for index in range(len(instances)):
        data = problem_data(integer_instance(instances, index))
        actions = nearest_neighbour(instances, index)
        routes = actions_to_routes(actions, instances.num_depots)
        rng.shuffle(routes)
        shuffled = routes_to_actions(routes, instances.num_depots)
        solution = solution_of(data, shuffled)
        returned = actions_of(solution, instances.num_depots)
        assert solution.is_feasible()
        assert sorted(map(repr, actions_to_routes(returned, instances.num_depots))) == sorted(map(repr, routes))
        cost = check_tour(instances, index, actions).cost
        assert check_tour(instances, index, returned).cost == pytest.approx(cost, abs=1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
def test_searches_end_in_exactly_feasible_tours(variant: str) -> None:
    instances = generated(variant, 10, 2)
    for index in range(len(instances)):
        integers = integer_instance(instances, index)
        result = solve(problem_data(integers), MaxIterations(40), seed=1, collect_stats=False)
        assert result.best.is_feasible()
        report = check_tour(instances, index, actions_of(result.best, instances.num_depots))
        assert report.first_problem is None
        assert 0 <= result.best.distance() / integers.scale - report.cost < 20 / integers.scale
        assert report.cost <= check_tour(instances, index, nearest_neighbour(instances, index)).cost


def two_depots(open_route: bool) -> Instances[NodeArrays]:
    """Depots at (0, 0) and (10, 0), customers at (1, 0) and (9, 0), each a full vehicle."""
    locs = np.array([[[0, 0], [10, 0], [1, 0], [9, 0]]], np.float64)
    demand = np.array([[0, 0, 1, 1]], np.float64)
    windows = np.full((1, 4, 2), [0, np.inf])
    zeros = np.zeros((1, 4))
    flags = np.array([[open_route, False, False, False, False, True]])
    limit, is_open, kind = np.array([np.inf]), np.array([open_route]), np.array([1])
    return Instances(locs, demand, zeros, windows, zeros, limit, is_open, kind, flags, num_depots=2, capacity=1)


@pytest.mark.parametrize(("open_route", "cost"), [(False, 4.0), (True, 2.0)])
def test_each_depot_has_vehicles_that_come_home(open_route: bool, cost: float) -> None:
    instances = two_depots(open_route)
    result = solve(problem_data(integer_instance(instances, 0)), MaxIterations(20), collect_stats=False)
    actions = actions_of(result.best, 2)
    assert check_tour(instances, 0, actions).cost == cost
    assert {(route.depot, route.customers) for route in actions_to_routes(actions, 2)} == {(0, (2,)), (1, (3,))}


@pytest.mark.parametrize("num_customers", [1, 50, 1000])
@pytest.mark.parametrize("spread", [1.0, 1e3, 1e6])
def test_scale_leaves_room_for_penalties(num_customers: int, spread: float) -> None:
    instances = generated("VRPBTW", num_customers)
    instances = dataclasses.replace(
        instances, locs=instances.locs * spread, time_windows=instances.time_windows * spread
    )
    integers = integer_instance(instances, 0)
    assert num_customers * integers.forbidden * LARGEST_PENALTY < LARGEST_COST
    assert integers.forbidden > 2 * num_customers * integers.distance.max()
    if spread == 1:
        assert integers.scale == 10**7


@pytest.mark.parametrize("num_customers", [10, 20, 50, 100])
def test_full_vehicles_are_exactly_full(num_customers: int) -> None:
    """Float32 fractions of a full vehicle add up to more than 1; whole units add up to the capacity."""
    instances = generated("CVRP", num_customers)
    demand = np.zeros_like(instances.demand_linehaul)
    capacity = instances.capacity
    parts = [7] * (capacity // 7) + [capacity % 7] * bool(capacity % 7)
    demand[0, 1 : 1 + len(parts)] = np.array(parts, np.float32) / np.float32(capacity)
    integers = integer_instance(dataclasses.replace(instances, demand_linehaul=demand), 0)
    assert integers.delivery.sum() == integers.vehicle_load
    assert 0.99 * LOAD_UNITS < integers.vehicle_load <= LOAD_UNITS


def test_window_narrower_than_a_unit() -> None:
    """A customer that must be served at one moment stays feasible, and the clock is not early afterwards."""
    instances = generated("VRPTW", 2)
    windows = instances.time_windows.astype(np.float64)
    windows[0, 1] = 1.5 + 0.3e-7
    integers = integer_instance(dataclasses.replace(instances, time_windows=windows), 0)
    assert integers.earliest[0] == integers.latest[0] == 15_000_000
    service = float(instances.service_time[0, 1])
    assert integers.earliest[0] + integers.service[0] >= (windows[0, 1, 0] + service) * integers.scale
    assert solution_of(problem_data(integers), [1, 0, 2]).is_feasible()


def test_impossible_numbers_are_named() -> None:
    instances = generated("CVRP", 5)
    locs = instances.locs.copy()
    locs[0, 3, 1] = np.nan
    with pytest.raises(DataError, match="instance 0: coordinates"):
        integer_instance(dataclasses.replace(instances, locs=locs), 0)
    demand = instances.demand_linehaul.copy()
    demand[0, 2] = 0.5 / instances.capacity
    with pytest.raises(DataError, match=r"instance 0, customer 2: demand is 0\.5"):
        integer_instance(dataclasses.replace(instances, demand_linehaul=demand), 0)
    with pytest.raises(DataError, match="larger unit"):
        integer_instance(dataclasses.replace(instances, locs=instances.locs * np.float64(1e15)), 0)
    data = problem_data(integer_instance(instances, 0))
    with pytest.raises(DataError, match="PyVRP refuses the tour"):
        solution_of(data, [1, 2, 3, 4, 5, 5])
