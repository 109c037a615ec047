"""Properties of generators, flat forms, symmetries and reversed routes, on whatever hypothesis draws."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.instances import drawn, generated
from helpers.odd_instances import CAPACITY, odd_instances
from polarvrp.environment.environment import Environment
from polarvrp.problem.instances import Instances, NodeArrays, to_arrays, to_tensors
from polarvrp.problem.symmetries import NUM_SYMMETRIES, apply_symmetry, augment
from polarvrp.problem.tours import (
    Route,
    actions_to_routes,
    check_tour,
    first_impossible_customer,
    flat_actions,
    flat_tours,
    most_actions,
    routes_to_actions,
)
from polarvrp.problem.variants import VARIANTS

seeds = st.integers(0, 2**32 - 1)


def require_sound(instances: Instances[NodeArrays], variant: str) -> None:
    """What each instance of a variant must be, read from its arrays by plain loops."""
    depots, named = instances.num_depots, VARIANTS[variant]
    assert Environment(to_tensors(instances)).servable().all()
    for index in range(len(instances)):
        assert first_impossible_customer(instances, index) is None
        assert np.isfinite(instances.distance_limit[index]) == named.distance_limit
        assert bool(instances.open_route[index]) == named.open_route
        assert instances.backhaul_class[index] == max(named.backhaul, 1)
        for node in range(instances.num_nodes):
            loads = [float(array[index, node]) for array in (instances.demand_linehaul, instances.demand_backhaul)]
            units = [load * instances.capacity for load in loads]
            earliest, latest = instances.time_windows[index, node].tolist()
            assert all(0.0 <= place <= 1.0 for place in instances.locs[index, node])
            assert all(abs(unit - round(unit)) < 1e-4 for unit in units)
            assert 0.0 <= earliest <= latest and np.isfinite(latest) == named.time_windows
            if node < depots:
                assert units == [0.0, 0.0] and earliest == 0.0 and instances.service_time[index, node] == 0.0
            else:
                assert min(units) == 0.0 and 1 <= round(max(units)) <= 9 <= instances.capacity
                assert (instances.service_time[index, node] > 0.0) == named.time_windows


@settings(max_examples=40, deadline=None, derandomize=True)
@given(variant=st.sampled_from(sorted(VARIANTS)), num_customers=st.integers(1, 25), seed=seeds)
def test_instances_of_both_generators_are_sound(variant: str, num_customers: int, seed: int) -> None:
    require_sound(generated(variant, num_customers, 3, seed), variant)
    require_sound(to_arrays(drawn(num_customers, 3, seed, (variant,))), variant)


@st.composite
def any_routes(draw: st.DrawFn) -> tuple[int, int, list[Route]]:
    """Numbers of depots and customers, and routes that serve each customer once, some of them nobody."""
    depots = draw(st.integers(1, 4))
    customers = draw(st.permutations(range(depots, depots + draw(st.integers(1, 8)))))
    cuts = sorted(draw(st.lists(st.integers(0, len(customers)), max_size=4)))
    parts = [tuple(customers[start:end]) for start, end in itertools.pairwise([0, *cuts, len(customers)])]
    return depots, len(customers), [Route(draw(st.integers(0, depots - 1)), part) for part in parts]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(drawn_routes=any_routes(), padding=st.integers(0, 3))
def test_routes_and_actions_tell_the_same(drawn_routes: tuple[int, int, list[Route]], padding: int) -> None:
    """Both ways, with empty routes and padding, one tour or many at once, within the bound on actions."""
    depots, customers, routes = drawn_routes
    served = [route for route in routes if route.customers]
    actions = routes_to_actions(routes, depots)
    assert actions_to_routes(actions, depots) == served
    assert len(actions) <= most_actions(customers, depots)
    verbose = [node for route in routes for node in (route.depot, *route.customers)] + [0] * padding
    assert actions_to_routes(verbose, depots) == served
    assert flat_actions(verbose, depots) == flat_actions(actions, depots) == actions
    assert flat_tours(np.array([verbose, verbose[::-1] if depots == 1 else verbose]), depots)[0] == actions


def any_tour(instances: Instances[NodeArrays], seed: int) -> list[Route]:
    """Customers in a random order, cut at random, feasible or not."""
    random = np.random.default_rng(seed)
    order = random.permutation(np.arange(instances.num_depots, instances.num_nodes)).tolist()
    cut = int(random.integers(0, len(order) + 1))
    return [Route(int(random.integers(instances.num_depots)), tuple(part)) for part in (order[:cut], order[cut:])]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(instances=odd_instances(4), seed=seeds)
def test_symmetries_keep_costs_and_excesses(instances: Instances[NodeArrays], seed: int) -> None:
    """Quarters are exact in float32, so distances may differ by the rounding of square roots at most."""
    copies = to_arrays(augment(to_tensors(instances)))
    for number in range(len(copies)):
        index = number % len(instances)
        actions = routes_to_actions(any_tour(instances, seed + index), instances.num_depots)
        before, after = check_tour(instances, index, actions), check_tour(copies, number, actions)
        for name in ("cost", "load_violation", "time_violation"):
            assert getattr(after, name) == pytest.approx(getattr(before, name), abs=1e-12), name


def test_symmetries_are_the_group_of_the_square() -> None:
    """One after the other they are again one of the eight, and each is undone by one."""
    square = torch.tensor([[0.25, 0.5], [0.0, 0.125], [1.0, 0.75]])
    images = [apply_symmetry(square, index).tolist() for index in range(NUM_SYMMETRIES)]
    products = [
        [images.index(apply_symmetry(apply_symmetry(square, one), two).tolist()) for two in range(NUM_SYMMETRIES)]
        for one in range(NUM_SYMMETRIES)
    ]
    assert all(sorted(row) == list(range(NUM_SYMMETRIES)) for row in products)
    assert all(row.count(0) == 1 for row in products)


def without_direction(instances: Instances[NodeArrays], picks_up: bool) -> Instances[NodeArrays]:
    """The same without windows, closed, with deliveries or pickups alone, of everybody: no demand is a delivery."""
    demand, nothing = instances.demand_linehaul + instances.demand_backhaul, np.zeros_like(instances.demand_linehaul)
    demand[:, instances.num_depots :] = np.maximum(demand[:, instances.num_depots :], np.float32(1 / CAPACITY))
    windows = np.broadcast_to(np.array([0.0, np.inf], np.float32), instances.time_windows.shape)
    return dataclasses.replace(
        instances,
        demand_linehaul=nothing if picks_up else demand,
        demand_backhaul=demand if picks_up else nothing,
        time_windows=windows,
        open_route=np.zeros_like(instances.open_route),
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(instances=odd_instances(4), seed=seeds, picks_up=st.booleans())
def test_a_route_may_be_driven_backwards_where_nothing_gives_it_a_direction(
    instances: Instances[NodeArrays], seed: int, picks_up: bool
) -> None:
    """Cost, excess of length and of load are those of the way forth; the exact load is counted in whole units."""
    free = without_direction(instances, picks_up)
    for index in range(len(free)):
        routes = any_tour(free, seed + index)
        back = [Route(route.depot, route.customers[::-1]) for route in routes]
        reports = [check_tour(free, index, routes_to_actions(tour, free.num_depots)) for tour in (routes, back)]
        assert reports[0].cost == pytest.approx(reports[1].cost, abs=1e-12)
        assert reports[0].time_violation == pytest.approx(reports[1].time_violation, abs=1e-12)
        most = max(excess_units(free, index, route.customers) for route in routes)
        for report in reports:
            assert report.load_violation == pytest.approx(max(most, 0) / CAPACITY, abs=1e-6)


def excess_units(instances: Instances[NodeArrays], index: int, customers: Sequence[int]) -> int:
    """Units by which the customers of a route exceed the capacity, all of one kind."""
    demand = instances.demand_linehaul[index] + instances.demand_backhaul[index]
    return sum(round(float(demand[customer]) * CAPACITY) for customer in customers) - CAPACITY
