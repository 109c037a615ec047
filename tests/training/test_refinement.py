"""The refiner: never longer, never infeasible, the same whoever works, and loud when it cannot work."""

import dataclasses
import time
from collections.abc import Iterator

import numpy as np
import pytest
from pyvrp.search import NeighbourhoodParams, compute_neighbours

from polarvrp.errors import InfeasibleTourError
from polarvrp.problem.datasets import instances_from_arrays
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.numpy_generator import generate_arrays
from polarvrp.problem.tours import check_tour, nearest_neighbour
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS
from polarvrp.references.integers import integer_instance
from polarvrp.references.pyvrp_model import problem_data
from polarvrp.tolerances import COST_TOLERANCE
from polarvrp.training import refinement
from polarvrp.training.refinement import NUM_NEIGHBOURS, RefinementError, Refiner, neighbours, refine_tour


def generated(variant: str, num_customers: int, num_instances: int) -> Instances[NodeArrays]:
    return instances_from_arrays(generate_arrays(VARIANTS[variant], num_customers, num_instances, seed=11))


def mixed_batch(num_customers: int) -> Instances[NodeArrays]:
    """One instance of each training variant in one batch."""
    parts = [generated(variant, num_customers, 1) for variant in TRAINING_VARIANTS]
    names = [field.name for field in dataclasses.fields(Instances) if field.name not in ("num_depots", "capacity")]
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Instances(**arrays, num_depots=1, capacity=parts[0].capacity)


def some_tours(instances: Instances[NodeArrays]) -> list[list[int]]:
    return [nearest_neighbour(instances, index) for index in range(len(instances))]


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Refiner]:
    with Refiner(2) as refiner:
        yield refiner


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
    """Nearest neighbour tours are a fifth to a half above the best; one descent takes most of that away."""
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
    monkeypatch.setattr(refinement, "SPARE_VEHICLES", 50)
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
        result = refine_tour(instances, index, one_route, seed=0)
        assert result.actions == one_route or check_tour(instances, index, result.actions).first_problem is None


def test_tiny_instances() -> None:
    instances = generated("CVRP", 1, 1)
    assert refine_tour(instances, 0, [1], seed=0).actions == [1]
    twins = generated("VRPB", 6, 1)
    same_place = dataclasses.replace(twins, locs=np.zeros_like(twins.locs))
    tour = nearest_neighbour(same_place, 0)
    assert refine_tour(same_place, 0, tour, seed=0) == refinement.RefinedTour(tour, 0.0, improved=False)


def test_errors_of_workers_surface_and_the_refiner_lives_on(two_workers: Refiner) -> None:
    instances = generated("CVRP", 10, 4)
    tours = some_tours(instances)
    start_s = time.monotonic()
    with pytest.raises(RefinementError, match=r"InfeasibleTourError: customer 10 is not served"):
        two_workers.refine(instances, [*tours[:3], [1, 2, 3, 4, 5, 6, 7, 8, 9]], seeds=[0] * 4)
    assert time.monotonic() - start_s < 10
    refined = two_workers.refine(instances, tours, seeds=[0] * 4)
    assert all(
        result.cost <= check_tour(instances, index, tour).cost + COST_TOLERANCE
        for index, (tour, result) in enumerate(zip(tours, refined, strict=True))
    )
    with pytest.raises(InfeasibleTourError):
        Refiner(0).refine(instances, [[1]] * 4, seeds=[0] * 4)


def test_close_is_safe_after_errors_and_twice() -> None:
    instances = generated("CVRP", 10, 2)
    refiner = Refiner(1)
    with pytest.raises(RefinementError):
        refiner.refine(instances, [[1], [1]], seeds=[0, 0])
    refiner.close()
    refiner.close()


def test_numbers_of_tours_and_seeds_must_match() -> None:
    instances = generated("CVRP", 10, 2)
    with pytest.raises(ValueError, match="2 instances"):
        Refiner(0).refine(instances, some_tours(instances), seeds=[0])
