"""The refiner: never longer, never infeasible, the same whoever works, and loud when it cannot work."""

import dataclasses

import numpy as np
import pytest
import pyvrp
from pyvrp import RandomNumberGenerator
from pyvrp.search import OPERATORS, LocalSearch, NeighbourhoodParams, PerturbationManager, compute_neighbours

from helpers.instances import generated
from helpers.local_search import mixed_batch, some_tours
from polarvrp.local_search import pyvrp_search
from polarvrp.local_search.pyvrp_search import NUM_NEIGHBOURS, PENALTIES, neighbours, refine_tours
from polarvrp.local_search.refinement import Refiner
from polarvrp.local_search.shared_memory import RefinedTour
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.nearest_neighbour import nearest_neighbour
from polarvrp.problem.tours import Route, actions_to_routes, check_tour, routes_to_actions
from polarvrp.problem.variants import VARIANTS
from polarvrp.solvers.integers import integer_instance
from polarvrp.solvers.pyvrp_model import problem_data


@pytest.mark.parametrize("variant", VARIANTS)
def test_never_longer_never_infeasible(variant: str) -> None:
    instances = generated(variant, 20, 6)
    tours = some_tours(instances)
    refined = Refiner(0).refine(instances, tours, seeds=range(6))
    for index, (tour, result) in enumerate(zip(tours, refined, strict=True)):
        before, after = check_tour(instances, index, tour), check_tour(instances, index, result.actions)
        assert after.first_problem is None
        assert result.cost == after.cost
        assert result.improved == (after.cost < before.cost)
        assert result.improved or result.actions == tour
    assert sum(result.improved for result in refined) >= 5


@pytest.mark.parametrize("variant", ["CVRP", "VRPTW", "OVRPBL", "VRPBLTW", "MDVRPMB"])
def test_local_search_pays_off(variant: str) -> None:
    """Nearest neighbour tours are a fifth to a half above the best; one local search takes most of that away."""
    instances = generated(variant, 50, 8)
    tours = some_tours(instances)
    before = [check_tour(instances, index, tour).cost for index, tour in enumerate(tours)]
    after = [result.cost for result in Refiner(0).refine(instances, tours, seeds=range(8))]
    assert np.mean(np.array(after) / np.array(before)) < 0.87


def test_number_of_workers_does_not_matter(two_workers: Refiner) -> None:
    instances = mixed_batch(20)
    tours, seeds = some_tours(instances), [7**index for index in range(16)]
    here = Refiner(0).refine(instances, tours, seeds)
    assert two_workers.refine(instances, tours, seeds) == here
    with Refiner(8) as eight_workers:
        assert eight_workers.refine(instances, tours, seeds) == here
    reversed_order = two_workers.refine(instances[::-1], tours[::-1], seeds[::-1])
    assert reversed_order[::-1] == here
    assert any(two_workers.refine(instances, tours, seeds[::-1])[i].actions != here[i].actions for i in range(16))


def test_several_depots_in_workers(two_workers: Refiner) -> None:
    instances = generated("MDOVRPMBLTW", 20, 5)
    tours = some_tours(instances)
    refined = two_workers.refine(instances, tours, seeds=[1] * 5)
    assert refined == Refiner(0).refine(instances, tours, seeds=[1] * 5)
    assert {action for result in refined for action in result.actions} == set(range(23))


def refined_slowly(instances: Instances[NodeArrays], index: int, tour: list[int], seed: int) -> list[int]:
    """The whole schedule of penalties, with PyVRP's own neighbours and objects."""
    data = problem_data(integer_instance(instances, index))
    depots = instances.num_depots
    routes = [
        pyvrp.Route(data, [customer - depots for customer in route.customers], vehicle_type=route.depot)
        for route in actions_to_routes(tour, depots)
    ]
    search = LocalSearch(data, RandomNumberGenerator(seed), compute_neighbours(data), PerturbationManager())
    for operator in OPERATORS:
        if operator.supports(data):
            search.add_operator(operator(data))
    cost = check_tour(instances, index, tour).cost
    for penalty in PENALTIES:
        found = search(pyvrp.Solution(data, routes), pyvrp.CostEvaluator([penalty], penalty, penalty), exhaustive=True)
        visits = [
            Route(route.start_depot(), tuple(visit.idx + depots for visit in route.schedule()[1:-1]))
            for route in found.routes()
        ]
        report = check_tour(instances, index, actions := routes_to_actions(visits, depots))
        if report.first_problem is None and report.cost < cost:
            return actions
    return tour


@pytest.mark.parametrize("variant", ["mixed", "MDVRPBTW"])
def test_what_is_left_out_changes_nothing(variant: str) -> None:
    instances = mixed_batch(30) if variant == "mixed" else generated(variant, 30, 8)
    tours = some_tours(instances)
    for seed in range(4):
        refined = Refiner(0).refine(instances, tours, seeds=[seed] * len(tours))
        slowly = [refined_slowly(instances, index, tour, seed) for index, tour in enumerate(tours)]
        tours = [result.actions for result in refined]
        assert tours == slowly
    assert not all(result.improved for result in refined)


def test_local_optima_come_back_as_they_are() -> None:
    instances = mixed_batch(20)
    tours = some_tours(instances)
    for _ in range(6):
        refined = Refiner(0).refine(instances, tours, seeds=[3] * 16)
        tours = [result.actions for result in refined]
    assert not any(result.improved for result in refined)
    costs = [check_tour(instances, index, tour).cost for index, tour in enumerate(tours)]
    assert [result.cost for result in refined] == costs


def test_the_reserve_of_vehicles_does_not_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    instances = mixed_batch(50)
    tours = some_tours(instances)
    small_fleet = Refiner(0).refine(instances, tours, seeds=range(16))
    monkeypatch.setattr(pyvrp_search, "SPARE_VEHICLES", 50)
    assert Refiner(0).refine(instances, tours, seeds=range(16)) == small_fleet


@pytest.mark.parametrize("variant", VARIANTS)
def test_neighbours_are_those_of_the_library(variant: str) -> None:
    for size in (10, 60):
        instances = generated(variant, size, 2)
        for index in range(2):
            integers = integer_instance(instances, index)
            library = compute_neighbours(problem_data(integers), NeighbourhoodParams())
            assert neighbours(integers, NUM_NEIGHBOURS) == library


def test_an_infeasible_tour_is_only_ever_replaced_by_a_feasible_one() -> None:
    instances = generated("VRPTW", 20, 4)
    for index in range(4):
        one_route = list(range(1, 21))
        assert check_tour(instances, index, one_route).first_problem is not None
        result = refine_tours(instances, index, [one_route], seeds=[0])[0]
        assert result.actions == one_route or check_tour(instances, index, result.actions).first_problem is None


def test_tiny_instances() -> None:
    instances = generated("CVRP", 1, 1)
    assert refine_tours(instances, 0, [[1]], seeds=[0])[0].actions == [1]
    twins = generated("VRPB", 6, 1)
    same_place = dataclasses.replace(twins, locs=np.zeros_like(twins.locs))
    tour = nearest_neighbour(same_place, 0)
    assert refine_tours(same_place, 0, [tour], seeds=[0]) == [RefinedTour(tour, 0.0, improved=False)]
