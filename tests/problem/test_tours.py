"""Exact check of tours: hand-made cases, invariances, both directions of the flat form."""

import dataclasses
import itertools
import math
import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.instances import generated
from polarvrp.errors import InfeasibleTourError
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.nearest_neighbour import nearest_neighbour
from polarvrp.problem.tours import (
    Route,
    actions_to_routes,
    check_tour,
    first_impossible_customer,
    flat_actions,
    flat_tours,
    routes_to_actions,
)
from polarvrp.problem.variants import VARIANTS
from polarvrp.tolerances import LOAD_TOLERANCE, POLICY_TOLERANCE


def make_instance(
    depots: Sequence[tuple[float, float]],
    customers: Sequence[Any],
    *,
    open_route: bool = False,
    limit: float = math.inf,
    closing: float = math.inf,
    backhaul_class: int = 1,
) -> Instances[NodeArrays]:
    """One float64 instance; a customer is (x, y) and any of linehaul, backhaul, earliest, latest, service."""
    rows = [dict(zip(("x", "y"), c[:2], strict=True)) | (c[2] if len(c) > 2 else {}) for c in customers]
    nodes = len(depots) + len(rows)
    windows = np.array(
        [[0.0, closing]] * len(depots) + [[r.get("earliest", 0), r.get("latest", math.inf)] for r in rows]
    )

    def column(name: str, default: float) -> NDArray[np.float64]:
        return np.array([[0.0] * len(depots) + [float(r.get(name, default)) for r in rows]])

    return Instances(
        locs=np.array([[*depots, *((r["x"], r["y"]) for r in rows)]], dtype=np.float64).reshape(1, nodes, 2),
        demand_linehaul=column("linehaul", 0.0),
        demand_backhaul=column("backhaul", 0.0),
        time_windows=windows[None],
        service_time=column("service", 0.0),
        distance_limit=np.array([limit]),
        open_route=np.array([open_route]),
        backhaul_class=np.array([backhaul_class]),
        flags=np.zeros((1, 6), dtype=bool),
        num_depots=len(depots),
        capacity=30,
    )


def random_tour(instances: Instances[NodeArrays], index: int, rng: random.Random) -> list[Route]:
    """A feasible tour: a random order cut greedily into routes that the checker accepts one by one."""
    num_depots = instances.num_depots
    left = list(range(num_depots, instances.num_nodes))
    rng.shuffle(left)
    routes: list[Route] = []
    while left:
        route: Route | None = None
        rest: list[int] = []
        for customer in left:
            depots = [route.depot] if route else rng.sample(range(num_depots), num_depots)
            grown = [Route(d, (*(route.customers if route else ()), customer)) for d in depots]
            accepted = next((r for r in grown if route_is_feasible(instances, index, r)), None)
            route, rest = (accepted, rest) if accepted else (route, [*rest, customer])
        assert route is not None
        routes.append(route)
        left = rest
    return routes


def route_is_feasible(instances: Instances[NodeArrays], index: int, route: Route) -> bool:
    """Check of a single route, on the instance of its customers alone."""
    nodes = [*range(instances.num_depots), *route.customers]
    part = {
        field: getattr(instances, field)[index : index + 1, nodes]
        for field in ("locs", "demand_linehaul", "demand_backhaul", "time_windows", "service_time")
    }
    alone = dataclasses.replace(instances[index : index + 1], **part)
    renamed = Route(route.depot, tuple(range(instances.num_depots, len(nodes))))
    return check_tour(alone, 0, routes_to_actions([renamed], instances.num_depots)).first_problem is None


LATE_CUSTOMER = [(1.0, 0.0, {"linehaul": 0.1, "earliest": 4.0, "latest": 4.5, "service": 0.3})]


@pytest.mark.parametrize(
    ("kind", "cost", "violation", "problem"),
    [
        ({"closing": 4.6}, 2.0, 0.7, "route 1 returns at 5.300000, depot 0 closes at 4.600000"),  # 4.0 + 0.3 + 1.0
        ({"closing": 4.6, "open_route": True}, 1.0, 0.0, None),  # nobody returns
        ({"limit": 1.5}, 2.0, 0.5, "route 1 has length 2.000000, the limit is 1.500000"),  # there and back
        ({"limit": 1.5, "open_route": True}, 1.0, 0.0, None),  # only there
    ],
)
def test_open_routes_ignore_the_way_back(
    kind: dict[str, Any], cost: float, violation: float, problem: str | None
) -> None:
    """Cost, closing time and limit agree on whether the way back exists."""
    report = check_tour(make_instance([(0, 0)], LATE_CUSTOMER, **kind), 0, [1])
    assert report.cost == cost
    assert report.first_problem == problem
    assert report.max_violation == report.time_violation == pytest.approx(violation, abs=1e-12)


@pytest.mark.parametrize(
    ("backhaul_class", "accepted"),
    [(2, {"abc", "acb", "bac"}), (1, {"abc", "bac"})],
)
def test_loads_of_deliveries_and_pickups_are_separate(backhaul_class: int, accepted: set[str]) -> None:
    """One route over linehauls a 0.7, b 0.3 and backhaul c 0.5: every order is judged as by hand."""
    customers = [(0.1, 0, {"linehaul": 0.7}), (0.2, 0, {"linehaul": 0.3}), (0.3, 0, {"backhaul": 0.5})]
    instance = make_instance([(0, 0)], customers, backhaul_class=backhaul_class)
    for order in itertools.permutations("abc"):
        actions = ["abc".index(letter) + 1 for letter in order]
        report = check_tour(instance, 0, actions)
        assert (report.first_problem is None) == ("".join(order) in accepted), order
        assert (report.load_violation == 0.0) == ("".join(order) in accepted)


def test_mixed_load_is_checked_after_every_visit() -> None:
    """Pickup 0.5 between two deliveries 0.3: 0.6 leaves, 1.1 is held after the pickup."""
    customers = [(0.1, 0, {"backhaul": 0.5}), (0.2, 0, {"linehaul": 0.3}), (0.3, 0, {"linehaul": 0.3})]
    instance = make_instance([(0, 0)], customers, backhaul_class=2)
    report = check_tour(instance, 0, [1, 2, 3])
    assert report.load_violation == pytest.approx(0.1, abs=1e-12)
    assert report.first_problem == "route 1 holds load 1.100000 of 1 after customer 1"
    assert check_tour(instance, 0, [2, 1, 3]).first_problem is None


def test_backhauls_may_come_first_in_a_route_of_their_own() -> None:
    """Routes of backhauls only are allowed, also while linehaul customers remain; their sum is bounded by itself."""
    customers = [(0.1, 0, {"linehaul": 0.9}), (0.2, 0, {"backhaul": 0.6}), (0.3, 0, {"backhaul": 0.6})]
    instance = make_instance([(0, 0)], customers)
    assert check_tour(instance, 0, [2, 0, 1, 3]).first_problem is None
    assert check_tour(instance, 0, [1, 2, 3]).first_problem == "route 1 returns with load 1.200000 of 1"
    report = check_tour(instance, 0, [2, 1, 0, 3])
    assert report.load_violation == math.inf
    assert report.first_problem == "route 1 serves linehaul customer 1 after a backhaul customer"


@pytest.mark.parametrize(("open_route", "cost"), [(False, 4.0), (True, 2.0)])
def test_routes_end_at_their_own_depot(open_route: bool, cost: float) -> None:
    """Depots (0,0) and (10,0), customers (1,0) and (9,0), each as large as a vehicle: each depot serves its own."""
    customers = [(1, 0, {"linehaul": 1.0}), (9, 0, {"linehaul": 1.0})]
    instance = make_instance([(0, 0), (10, 0)], customers, open_route=open_route)
    actions = nearest_neighbour(instance, 0)
    assert sorted(actions_to_routes(actions, 2), key=lambda r: r.depot) == [Route(0, (2,)), Route(1, (3,))]
    report = check_tour(instance, 0, actions)
    assert (report.cost, report.num_routes, report.first_problem) == (cost, 2, None)
    assert check_tour(instance, 0, [0, 3, 1, 2]).cost == (18.0 if open_route else 36.0)


def test_hand_computed_waiting_and_windows() -> None:
    """Waiting moves the clock, not the length; service may end after the window; excess is reported raw."""
    customers = [
        (3, 4, {"linehaul": 0.5, "earliest": 7.0, "latest": 7.0, "service": 2.0}),
        (3, 0, {"linehaul": 0.5, "earliest": 0.0, "latest": 12.75}),
    ]
    instance = make_instance([(0, 0)], customers, closing=16.0, limit=12.0)
    report = check_tour(instance, 0, [1, 2])
    assert report.cost == 12.0
    assert report.time_violation == 0.25  # 7 + 2 + 4 = 13 against 12.75; back at 16 in time, length 12 of 12
    assert report.first_problem == "route 1 serves customer 2 at 13.000000, its window ends 12.750000"
    assert check_tour(instance, 0, [1, 2], time_tolerance=0.3).first_problem is None
    # The other way round: 3, then 3 + 4 = 7, service until 9, back at 14.
    assert check_tour(instance, 0, [2, 1]).max_violation == 0.0


def test_tolerance_only_decides_about_the_problem() -> None:
    """A float32 rounding of a full load is raw in the report and no problem."""
    third = float(np.float32(1 / 3)) + 1e-7
    instance = make_instance([(0, 0)], [(0.1, 0, {"linehaul": third})] * 3)
    report = check_tour(instance, 0, [1, 2, 3])
    assert 0 < report.max_violation == report.load_violation < LOAD_TOLERANCE
    assert report.first_problem is None


@pytest.mark.parametrize(
    ("num_depots", "actions", "message"),
    [
        (1, [1, 0, 2], "customer 3 is not served"),  # missing
        (1, [1, 2, 0, 2, 3], "customer 2 is served twice"),  # repeated
        (1, [1, 2, 3, 4], "node 4 does not exist; nodes are 0 to 3"),  # too large
        (1, [1, 2, 3, -1], "node -1 does not exist"),  # negative would index from the end
        (2, [2, 0, 3, 4], "with 2 depots a tour starts at a depot, got customer 2 first"),
        (1, [], "customer 1 is not served"),  # nothing at all
    ],
)
def test_sequences_that_are_no_solution(num_depots: int, actions: list[int], message: str) -> None:
    depots = [(0.0, 0.0)] * num_depots
    instance = make_instance(depots, [(0.5, 0.5, {"linehaul": 0.1})] * 3)
    with pytest.raises(InfeasibleTourError, match=re.escape(message)):
        check_tour(instance, 0, actions)


@pytest.mark.parametrize(
    ("num_depots", "actions", "routes"),
    [
        (1, [3, 1, 0, 2], [Route(0, (3, 1)), Route(0, (2,))]),
        (1, [0, 0, 3, 1, 0, 0, 2, 0], [Route(0, (3, 1)), Route(0, (2,))]),  # empty routes and padding
        (3, [1, 4, 3, 0, 5], [Route(1, (4, 3)), Route(0, (5,))]),
        (3, [2, 1, 4, 3, 2, 0, 5, 0, 0], [Route(1, (4, 3)), Route(0, (5,))]),  # depots that nobody leaves
        (1, [], []),
    ],
)
def test_reading_the_flat_form(num_depots: int, actions: list[int], routes: list[Route]) -> None:
    assert actions_to_routes(actions, num_depots) == routes
    canonical = routes_to_actions(routes, num_depots)
    assert actions_to_routes(canonical, num_depots) == routes
    assert routes_to_actions(actions_to_routes(canonical, num_depots), num_depots) == canonical


@pytest.mark.parametrize("num_depots", [1, 2])
def test_negative_nodes_are_no_depots(num_depots: int) -> None:
    with pytest.raises(InfeasibleTourError, match="node -1 does not exist"):
        actions_to_routes([-1, 2, 3], num_depots)


def test_empty_routes_are_not_written() -> None:
    assert routes_to_actions([Route(0, ()), Route(0, (1,)), Route(0, ())], 1) == [1]
    assert routes_to_actions([Route(2, ()), Route(1, (3,))], 3) == [1, 3]


@pytest.mark.parametrize("name", VARIANTS)
def test_round_trip_of_random_feasible_tours(name: str) -> None:
    """routes -> actions -> routes keeps routes, cost and feasibility on every variant."""
    rng = random.Random(name)
    instances = generated(name, 12, 20, 5)
    for index in range(20):
        routes = random_tour(instances, index, rng)
        actions = routes_to_actions(routes, instances.num_depots)
        assert actions_to_routes(actions, instances.num_depots) == routes
        report = check_tour(instances, index, actions)
        assert report.first_problem is None
        assert report.num_routes == len(routes)
        padded = check_tour(instances, index, [0, *actions, 0, 0])
        assert padded == report


@pytest.mark.parametrize("name", VARIANTS)
def test_nearest_neighbour_is_feasible_exactly(name: str) -> None:
    """No window, closing time or limit is touched, loads only by float32 rounding."""
    instances = generated(name, 20, 5, 6)
    for index in range(5):
        report = check_tour(instances, index, nearest_neighbour(instances, index))
        assert report.time_violation == 0.0
        assert report.load_violation < LOAD_TOLERANCE
        assert first_impossible_customer(instances, index) is None


def test_cost_equals_a_vectorised_computation() -> None:
    """The loops agree with NumPy on closed and open routes of one and several depots."""
    for name in ("CVRP", "OVRP", "MDVRP", "MDOVRP"):
        instances = generated(name, 15, 3, 8)
        for index in range(3):
            actions = nearest_neighbour(instances, index)
            locs = instances.locs[index].astype(np.float64)
            total = 0.0
            for route in actions_to_routes(actions, instances.num_depots):
                way = [route.depot, *route.customers] + ([] if instances.open_route[index] else [route.depot])
                total += np.linalg.norm(np.diff(locs[way], axis=0), axis=1).sum()
            assert check_tour(instances, index, actions).cost == pytest.approx(total, rel=1e-13)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from(sorted(VARIANTS)), angle=st.floats(0, 2 * math.pi))
def test_relabelling_and_rotation_change_nothing(seed: int, name: str, angle: float) -> None:
    """Cost and violations depend on geometry only, not on the customers' numbers or the plane's orientation."""
    variant = VARIANTS[name]
    instances = generated(name, 8, 1, seed)
    rng = random.Random(seed)
    # Any assignment to routes, feasible or not.
    customers = rng.sample(range(variant.num_depots, instances.num_nodes), 8)
    cuts = sorted(rng.sample(range(1, 8), 2))
    parts = [customers[i:j] for i, j in itertools.pairwise([0, *cuts, 8])]
    routes = [Route(rng.randrange(variant.num_depots), tuple(part)) for part in parts]
    before = check_tour(instances, 0, routes_to_actions(routes, variant.num_depots))

    order = np.array([*range(variant.num_depots), *rng.sample(range(variant.num_depots, instances.num_nodes), 8)])
    position = {int(old): new for new, old in enumerate(order)}
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    moved = dataclasses.replace(
        instances,
        locs=(instances.locs.astype(np.float64) @ turn)[:, order],
        **{
            field: getattr(instances, field)[:, order]
            for field in ("demand_linehaul", "demand_backhaul", "time_windows", "service_time")
        },
    )
    renamed = [Route(r.depot, tuple(position[c] for c in r.customers)) for r in routes]
    after = check_tour(moved, 0, routes_to_actions(renamed, variant.num_depots))
    for field in ("cost", "load_violation", "time_violation", "max_violation"):
        assert getattr(after, field) == pytest.approx(getattr(before, field), abs=1e-12), field
    assert after.num_routes == before.num_routes


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from(["CVRP", "VRPL", "MDVRP", "MDVRPL"]))
def test_closed_routes_can_be_reversed(seed: int, name: str) -> None:
    """Without windows and backhauls the direction of a closed route does not matter."""
    instances = generated(name, 10, 1, seed)
    routes = actions_to_routes(nearest_neighbour(instances, 0), instances.num_depots)
    forth = check_tour(instances, 0, routes_to_actions(routes, instances.num_depots))
    reverse = [Route(route.depot, route.customers[::-1]) for route in routes]
    back = check_tour(instances, 0, routes_to_actions(reverse, instances.num_depots))
    assert back.cost == pytest.approx(forth.cost, rel=1e-13)
    assert back.first_problem is None


ONE_CUSTOMER = [
    ({"linehaul": 1.2}, {}, "customer 1: demand 1.2 exceeds the capacity 1"),
    ({"backhaul": 1.5}, {}, "customer 1: demand 1.5 exceeds the capacity 1"),
    ({"linehaul": 0.1, "latest": 0.5}, {}, "customer 1: its window ends at 0.5, the first arrival is 1"),
    ({"linehaul": 0.1}, {"limit": 1.5}, "customer 1: the way there and back is 2, the limit 1.5"),
    ({"linehaul": 0.1}, {"limit": 0.5, "open_route": True}, "customer 1: the way there is 1, the limit 0.5"),
    (
        {"linehaul": 0.1, "earliest": 4.0, "latest": 4.5, "service": 0.3},
        {"closing": 4.6},
        "customer 1: the vehicle would be back at 5.3, depot 0 closes at 4.6",
    ),
]


@pytest.mark.parametrize(("customer", "kind", "message"), ONE_CUSTOMER)
def test_impossible_customers_are_named_with_the_rule(
    customer: dict[str, float], kind: dict[str, Any], message: str
) -> None:
    """One customer each, breaking one rule: a message before anything could loop for ever."""
    instance = make_instance([(0, 0)], [(1.0, 0.0, customer)], **kind)
    assert first_impossible_customer(instance, 0) == message
    with pytest.raises(InfeasibleTourError, match=re.escape(message)):
        nearest_neighbour(instance, 0)


def test_another_depot_can_help() -> None:
    """A customer is impossible only if no depot reaches it."""
    customer = [(1.0, 0.0, {"linehaul": 0.1})]
    assert first_impossible_customer(make_instance([(9, 0), (1, 0)], customer, limit=1.0), 0) is None
    far = make_instance([(9, 0), (3, 0)], customer, limit=1.0)
    assert (
        first_impossible_customer(far, 0)
        == "customer 2: the way there and back is 4, the limit 1 (no other depot helps)"
    )


def test_published_solutions(published: pa.Table) -> None:
    """Of each of the 192 published sets five solutions and the most infeasible: cost and violations as published."""
    columns = {name: published[name].to_numpy() for name in ("exact_cost", "window_violation", "limit_violation")}
    excess = np.maximum(columns["window_violation"], columns["limit_violation"]).reshape(-1, 1000)
    heads = (
        published.select(["variant", "num_customers", "instance"])
        .take(list(range(0, len(published), 1000)))
        .to_pylist()
    )
    assert len(heads) == 192
    for number, head in enumerate(heads):
        assert head["instance"] == 0
        instances = generated(head["variant"], head["num_customers"], 1000)
        sample = {*random.Random(number).sample(range(1000), 5), int(excess[number].argmax())}
        for index in sample:
            row = 1000 * number + index
            report = check_tour(instances, index, published["actions"][row].as_py(), POLICY_TOLERANCE)
            assert report.cost == pytest.approx(columns["exact_cost"][row], abs=1e-9)
            assert report.load_violation < LOAD_TOLERANCE
            assert report.time_violation == pytest.approx(excess[number, index], abs=1e-6), (head, index)
            assert (report.first_problem is None) == (report.time_violation <= POLICY_TOLERANCE)


@pytest.mark.parametrize("num_depots", [1, 3])
def test_flat_forms_of_many_tours_are_those_of_each(num_depots: int) -> None:
    """Whatever the order, with empty routes, depots at both ends and padding."""
    actions = np.random.default_rng(4).integers(0, num_depots + 4, (500, 9))
    actions[:, 0] %= num_depots
    actions[:100, 6:] = 0
    actions[0] = 0
    assert flat_tours(actions, num_depots) == [flat_actions(tour, num_depots) for tour in actions.tolist()]
