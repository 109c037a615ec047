"""Mask and exact checker agree at any scale of coordinates and any capacity."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.walks import follow, random_walk
from polarvrp.config.model import ModelConfig
from polarvrp.decoding.greedy import Decoding, GreedySolver
from polarvrp.environment.environment import Environment
from polarvrp.evaluation.evaluate import evaluate_set
from polarvrp.model.registry import build_policy
from polarvrp.problem.datasets import instances_from_arrays
from polarvrp.problem.instances import Instances, NodeArrays, to_tensors
from polarvrp.problem.library_instances import LibraryInstance
from polarvrp.problem.library_prices import check_routes
from polarvrp.problem.tours import actions_to_routes, check_tour, first_impossible_customer, flat_actions
from polarvrp.problem.variants import capacity_for
from polarvrp.problem.vrplib import to_instances
from polarvrp.tolerances import MASK_EPSILON, POLICY_TOLERANCE, REFERENCE_TOLERANCE, tolerance_at

PLACES = [
    (6.0983, 83.1141),
    (4.1321, 35.3344),
    (38.5827, 75.7492),
    (39.9463, 42.2939),
    (44.3825, 0.6689),
    (68.0244, 21.4634),
]
"""The depot, then five customers; the way to the fourth and back is the limit, to the last digit of float32."""
LIMIT = 181.8008575


def instances_at(
    locs: NDArray[np.float64], num_depots: int = 1, **arrays: NDArray[np.float64]
) -> Instances[NodeArrays]:
    """Instances as a file of them is read, three units of demand each."""
    batch, nodes = locs.shape[:2]
    demand = np.full((batch, nodes - num_depots), 3 / capacity_for(nodes - num_depots))
    shared = {"vehicle_capacity": np.ones((batch, 1)), "num_depots": np.full((batch, 1), num_depots)}
    return instances_from_arrays({"locs": locs, "demand_linehaul": demand, **shared, **arrays})


def up(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """The nearest float32 numbers that are not below."""
    near = values.astype(np.float32)
    return np.where(near < values, np.nextafter(near, np.float32(np.inf)), near)


def distances(instances: Instances[NodeArrays]) -> NDArray[np.float64]:
    """From the first depot to all nodes, exact to float64, ``[B, N]``."""
    return np.linalg.norm(instances.locs.astype(np.float64) - instances.locs[:, :1].astype(np.float64), axis=-1)


def with_tight_limit(instances: Instances[NodeArrays], _: np.random.Generator) -> Instances[NodeArrays]:
    """The farthest customer's way there and back is all that a route may be long."""
    return dataclasses.replace(instances, distance_limit=up(2 * distances(instances).max(axis=1)))


def with_tight_windows(instances: Instances[NodeArrays], random: np.random.Generator) -> Instances[NodeArrays]:
    """Every window ends with the first arrival, and the depot closes with the last return."""
    away = distances(instances)
    service = (random.random(away.shape) * away).astype(np.float32)
    service[:, 0] = 0.0
    windows = np.zeros((*away.shape, 2), dtype=np.float32)
    windows[..., 1] = up(away)
    windows[:, 0, 1] = up((2 * away + service.astype(np.float64)).max(axis=1))
    return dataclasses.replace(instances, time_windows=windows, service_time=service)


def with_late_windows(instances: Instances[NodeArrays], random: np.random.Generator) -> Instances[NodeArrays]:
    """Every window opens so late that the vehicle is back just when the depot closes."""
    away = distances(instances)
    service = (random.random(away.shape) * away).astype(np.float32)
    service[:, 0] = 0.0
    closing = up(3 * (away + service).max(axis=1))
    latest_start = closing[:, None].astype(np.float64) - away - service
    opens = -up(-latest_start)  # not above
    windows = np.stack((opens, opens), axis=-1).astype(np.float32)
    windows[:, 0] = np.stack((np.zeros_like(closing), closing), axis=-1)
    return dataclasses.replace(instances, time_windows=windows, service_time=service)


@pytest.mark.parametrize("tighten", [with_tight_limit, with_tight_windows, with_late_windows])
@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_whom_the_checker_lets_be_served_alone_the_mask_does(
    scale: float, tighten: Callable[..., Instances[NodeArrays]], seed: int
) -> None:
    random = np.random.default_rng(seed)
    instances = tighten(instances_at(scale * random.random((64, 7, 2))), random)
    alone = [
        [check_tour_of_one(instances, index, customer) for customer in range(1, 7)] for index in range(len(instances))
    ]
    assert not any(problem for row in alone for problem in row)  # they are as tight as can be, and possible
    environment = Environment(to_tensors(instances))
    assert environment.servable().all()
    actions, _ = random_walk(environment, 4, torch.Generator().manual_seed(seed % 2**31))
    for index, rows in enumerate(actions.tolist()):
        for row in rows:
            assert check_tour(instances, index, flat_actions(row, 1), POLICY_TOLERANCE).first_problem is None


def check_tour_of_one(instances: Instances[NodeArrays], index: int, customer: int) -> str | None:
    """What forbids the route to one customer alone, nothing let pass but the rounding of float64."""
    only = [0, customer]
    alone = instances[[index]]
    arrays = {name: getattr(alone, name)[:, only] for name in ("locs", "time_windows", "service_time")}
    demands = {name: getattr(alone, name)[:, only] for name in ("demand_linehaul", "demand_backhaul")}
    return check_tour(dataclasses.replace(alone, **arrays, **demands), 0, [1], REFERENCE_TOLERANCE).first_problem


@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_whom_the_exact_check_finds_impossible_by_more_than_rounding_the_mask_does_too(scale: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    instances = instances_at(scale * random.random((32, 9, 2)), num_depots=2)
    limit = 2 * distances(instances).max(axis=1)
    # Around the limit, near and far: a tenth of the tolerance to ten thousand times it.
    share = random.choice([-1.0, 1.0], 32) * 10.0 ** random.uniform(-7, -2, 32)
    instances = dataclasses.replace(instances, distance_limit=(limit * (1 + share)).astype(np.float32))
    servable = Environment(to_tensors(instances)).servable().all(1)
    for index in range(len(instances)):
        bound = float(instances.distance_limit[index])
        exact = first_impossible_customer(instances, index)
        margin = np.float32(tolerance_at(bound, MASK_EPSILON))
        looser, stricter = (
            first_impossible_customer(dataclasses.replace(instances, distance_limit=limits), index)
            for limits in (instances.distance_limit + margin, instances.distance_limit - margin)
        )
        if (looser is None) == (stricter is None):  # not within rounding of the limit
            assert bool(servable[index]) == (exact is None)


def test_one_instance_at_the_edge_of_float32_stops_no_evaluation() -> None:
    locs = np.array([PLACES, PLACES])
    locs[1, 1:] = locs[1, :1] + 1.0
    instances = instances_at(locs, distance_limit=np.full((2, 1), LIMIT))
    assert first_impossible_customer(instances, 0) is None
    policy = build_policy(ModelConfig(width=32, heads=4, layers=1, feedforward_width=32), 0).eval()
    rows = evaluate_set(GreedySolver(policy, Decoding(8), False), "run", instances)
    for index, row in enumerate(rows):
        assert check_tour(instances, index, row.actions, POLICY_TOLERANCE).first_problem is None


@pytest.mark.parametrize("capacity", [3 * 10**7, 10**9, 2**30 - 1])
def test_loads_are_exact_at_any_capacity(capacity: int) -> None:
    third = capacity // 3
    coordinates = np.array([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])
    for demand, legal in ((third, True), (third + 1, False)):
        library = LibraryInstance("thirds", coordinates, np.array([0, demand, demand, demand]), capacity)
        environment = Environment(to_tensors(to_instances(library)))
        together = torch.tensor([[[1, 2, 3]]])
        assert follow(environment, together)[1].item() is legal
        actions, _ = random_walk(environment, 8, torch.Generator().manual_seed(0))
        for row in actions[0].tolist():
            assert check_routes(library, actions_to_routes(row, 1)).first_problem is None


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), magnitude=st.integers(1, 29))
def test_no_route_is_overloaded_by_a_single_unit(seed: int, magnitude: int) -> None:
    random = np.random.default_rng(seed)
    capacity = int(random.integers(2**magnitude, 2 ** (magnitude + 1)))
    demands = random.integers(0, capacity // random.integers(1, 5) + 1, 9)
    demands[0] = 0
    library = LibraryInstance("random", random.random((9, 2)), demands, capacity)
    instances = to_instances(library)
    environment = Environment(to_tensors(instances))
    assert environment.servable().all()
    actions, _ = random_walk(environment, 8, torch.Generator().manual_seed(seed % 2**31))
    for row in actions[0].tolist():
        assert check_routes(library, actions_to_routes(row, 1)).first_problem is None


@pytest.mark.parametrize("demand", [101, 10**6, 5 * 10**9])
def test_a_demand_above_the_capacity_cannot_be_served(demand: int) -> None:
    library = LibraryInstance("heavy", np.zeros((3, 2)), np.array([0, 1, demand]), 100)
    instances = to_instances(library)
    assert Environment(to_tensors(instances)).servable().tolist() == [[True, False]]
    assert "customer 2: demand" in str(first_impossible_customer(instances, 0))


def test_symmetric_copies_have_the_very_same_distances() -> None:
    instances = to_tensors(instances_at(np.random.default_rng(0).random((3, 30, 2))))
    environment = Environment(instances)
    copies = environment.symmetric(8)
    assert len(copies.instances) == 24
    assert torch.equal(copies.constants.distances, environment.constants.distances.repeat(8, 1, 1))
    assert not torch.equal(Environment(copies.instances).constants.distances, copies.constants.distances)
