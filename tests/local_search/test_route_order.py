"""Routes of refined tours follow the tours they came from; the solution stays the same."""

import pytest
import torch

from helpers.instances import mixed
from polarvrp.config.model import ModelConfig
from polarvrp.decoding.parallel import ParallelEngine
from polarvrp.decoding.rollout import multi_start
from polarvrp.decoding.sampling import Sampler
from polarvrp.environment.environment import Environment
from polarvrp.local_search.refinement import Refiner
from polarvrp.local_search.route_order import order_routes
from polarvrp.model.registry import build_policy
from polarvrp.problem.instances import Instances
from polarvrp.problem.variants import VARIANTS

SMALL = ModelConfig(width=32, heads=4, layers=1, feedforward_width=32)


def ordered(variant: str, refined: list[int], original: list[int]) -> list[int]:
    instances = mixed([variant], 6, count=1)
    length = max(len(refined), len(original)) + 2
    one, other = (torch.tensor([[tour + [0] * (length - len(tour))]]) for tour in (refined, original))
    found: list[int] = order_routes(instances, one, other)[0, 0].tolist()
    assert len(found) == length
    while found and found[-1] < instances.num_depots:
        found.pop()
    return found


@pytest.mark.parametrize(
    ("variant", "refined", "original", "expected"),
    [
        # the routes in the order of their customers, each direction free
        ("CVRP", [5, 6, 0, 1, 2, 0, 4, 3], [1, 2, 0, 3, 4, 0, 5, 6], [1, 2, 0, 3, 4, 0, 5, 6]),
        ("VRPL", [6, 5, 0, 2, 1, 0, 3, 4], [1, 2, 0, 3, 4, 0, 5, 6], [1, 2, 0, 3, 4, 0, 5, 6]),
        # the mean place counts: 6 moved into the first route, 1 into the last
        ("CVRP", [1, 5, 0, 2, 3, 6, 0, 4], [1, 2, 3, 0, 4, 5, 6], [1, 5, 0, 2, 3, 6, 0, 4]),
        ("CVRP", [4, 5, 1, 0, 6, 3, 2], [1, 2, 3, 0, 4, 5, 6], [1, 5, 4, 0, 2, 3, 6]),
        # directions that are not free stay
        ("OVRP", [6, 5, 0, 2, 1, 0, 3, 4], [1, 2, 0, 3, 4, 0, 5, 6], [2, 1, 0, 3, 4, 0, 6, 5]),
        ("VRPTW", [6, 5, 0, 2, 1, 0, 3, 4], [1, 2, 0, 3, 4, 0, 5, 6], [2, 1, 0, 3, 4, 0, 6, 5]),
        # what a tour that chose its first customer itself begins with, and empty routes, count for nothing
        ("CVRP", [0, 0, 5, 6, 0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 0, 5, 6], [1, 2, 3, 4, 0, 5, 6]),
        # three depots: 0, 1, 2; each route keeps its own
        ("MDVRP", [1, 8, 7, 2, 4, 3, 5, 6], [2, 3, 4, 5, 6, 1, 7, 8], [2, 4, 3, 5, 6, 1, 7, 8]),
        ("MDVRP", [1, 8, 7, 2, 6, 5, 4, 3, 0], [0, 3, 4, 0, 5, 6, 1, 7, 8], [2, 3, 4, 5, 6, 1, 7, 8]),
    ],
)
def test_routes_follow_the_original(variant: str, refined: list[int], original: list[int], expected: list[int]) -> None:
    assert ordered(variant, refined, original) == expected


def sampled_and_refined(depots: int) -> tuple[Environment, torch.Tensor, torch.Tensor, Instances[torch.Tensor]]:
    """Two tours of an instance of each variant with so many depots, sampled and refined."""
    instances = mixed([name for name, variant in VARIANTS.items() if variant.num_depots == depots], 9, count=2)
    environment = Environment(instances)
    policy = build_policy(SMALL, 0).eval()
    with torch.no_grad():
        embeddings = policy.encode(instances).embeddings
    sampler = Sampler(torch.Generator().manual_seed(1))
    tours = ParallelEngine().rollout(policy, embeddings, environment, multi_start(environment)[:2], sampler)
    with Refiner(0) as refiner:
        seeds = list(range(2 * len(instances)))
        refined = refiner.submit(instances, tours.actions, seeds).result().actions
    return environment, tours.actions, refined, instances


@pytest.mark.parametrize("depots", [1, 3])
def test_the_solution_of_every_variant_stays_the_same(depots: int) -> None:
    environment, original, refined, instances = sampled_and_refined(depots)
    found = order_routes(instances, refined, original)
    before, after = (ParallelEngine().replay(environment, actions) for actions in (refined, found))
    assert before.legal.all() and after.legal.all()
    torch.testing.assert_close(after.cost, before.cost, rtol=1e-6, atol=1e-6)
    changed = (found != refined).any(-1)
    assert changed.any()
    assert torch.equal(order_routes(instances, found, original), found)


@pytest.mark.parametrize("depots", [1, 3])
def test_a_tour_that_was_not_improved_is_told_as_it_was(depots: int) -> None:
    _, original, _, instances = sampled_and_refined(depots)
    told = order_routes(instances, original, original)
    for mine, theirs in zip(told.flatten(0, 1).tolist(), original.flatten(0, 1).tolist(), strict=True):
        customers = [node for node in theirs if node >= depots]
        assert [node for node in mine if node >= depots] == customers
