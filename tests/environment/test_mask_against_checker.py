"""The environment's mask and the plain-loop checker, which share no code, agree on every variant."""

import random

import pytest
import torch

from helpers.instances import generated
from helpers.walks import follow, random_walk
from polarvrp.environment.environment import Environment
from polarvrp.problem.instances import Instances, NodeArrays, to_tensors
from polarvrp.problem.tours import Route, actions_to_routes, check_tour, flat_actions, routes_to_actions
from polarvrp.problem.variants import VARIANTS
from polarvrp.tolerances import LOAD_TOLERANCE, POLICY_TOLERANCE

NUM_INSTANCES, NUM_ROWS = 12, 16


def mutate(actions: list[int], num_depots: int, num_nodes: int, random_: random.Random) -> list[int]:
    """Another order of visits: routes joined, customers exchanged, or a route moved to another depot."""
    routes = actions_to_routes(actions, num_depots)
    kind = random_.choice(("join", "exchange", "move"))
    if kind == "join" and len(routes) > 1:
        first, second = sorted(random_.sample(range(len(routes)), 2))
        joined = Route(routes[first].depot, routes[first].customers + routes[second].customers)
        routes = [*routes[:first], joined, *routes[first + 1 : second], *routes[second + 1 :]]
    elif kind == "move" and num_depots > 1:
        index = random_.randrange(len(routes))
        routes[index] = Route(random_.randrange(num_depots), routes[index].customers)
    else:
        one, two = random_.sample(range(num_depots, num_nodes), 2)
        swap = {one: two, two: one}
        routes = [Route(r.depot, tuple(swap.get(c, c) for c in r.customers)) for r in routes]
    return routes_to_actions(routes, num_depots)


def violations(instances: Instances[NodeArrays], tours: list[list[list[int]]]) -> list[list[float]]:
    return [[check_tour(instances, i, tour).max_violation for tour in row] for i, row in enumerate(tours)]


@pytest.mark.parametrize("name", VARIANTS)
def test_legal_means_feasible(name: str) -> None:
    instances = generated(name, 20, NUM_INSTANCES, seed=11)
    environment = Environment(to_tensors(instances))
    generator = torch.Generator().manual_seed(5)
    actions, cost = random_walk(environment, NUM_ROWS, generator)
    tours = [[flat_actions(row, instances.num_depots) for row in rows] for rows in actions.tolist()]
    for index, row in enumerate(tours):
        for tour, found in zip(row, cost[index].tolist(), strict=True):
            report = check_tour(instances, index, tour, time_tolerance=POLICY_TOLERANCE)
            assert report.first_problem is None
            assert found == pytest.approx(report.cost, abs=1e-4)

    random_ = random.Random(name)
    mutated = [[mutate(tour, instances.num_depots, instances.num_nodes, random_) for tour in row] for row in tours]
    length = max(len(tour) for row in mutated for tour in row) + 1
    padded = torch.tensor([[tour + [0] * (length - len(tour)) for tour in row] for row in mutated])
    _, legal = follow(environment, padded)
    excess = violations(instances, mutated)
    verdicts = [
        (allowed, amount)
        for row, amounts in zip(legal.tolist(), excess, strict=True)
        for allowed, amount in zip(row, amounts, strict=True)
        # Within the tolerances either answer is right.
        if not LOAD_TOLERANCE / 10 < amount < POLICY_TOLERANCE
    ]
    assert all(allowed == (amount <= POLICY_TOLERANCE) for allowed, amount in verdicts)
    assert any(allowed for allowed, _ in verdicts) and not all(allowed for allowed, _ in verdicts)


@pytest.mark.parametrize("name", ["VRPMB", "OVRPMBL", "MDVRPMB"])
def test_the_published_rule_of_mixed_backhauls_overloads_vehicles_and_the_strict_one_does_not(name: str) -> None:
    instances = generated(name, 50, NUM_INSTANCES)
    overloaded = {}
    for rule in ("strict", "published"):
        environment = Environment(to_tensors(instances), rule)
        actions, _ = random_walk(environment, NUM_ROWS, torch.Generator().manual_seed(1))
        tours = [[flat_actions(row, instances.num_depots) for row in rows] for rows in actions.tolist()]
        amounts = [amount for row in violations(instances, tours) for amount in row]
        overloaded[rule] = sum(amount > LOAD_TOLERANCE for amount in amounts)
    assert overloaded["strict"] == 0
    assert overloaded["published"] > 0
