"""Objectives against plain loops over their definitions."""

import math
from typing import Any

import pytest
import torch

from helpers.instances import drawn
from helpers.walks import follow, random_walk
from polarvrp.environment.environment import Environment
from polarvrp.local_search.refinement import pad_actions
from polarvrp.problem.tours import actions_to_routes, routes_to_actions
from polarvrp.training.objectives import (
    MARGINS,
    loss_and_coefficients,
    preference,
    preference_margins,
    reinforce,
)


@pytest.fixture
def tours() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    cost = torch.rand(3, 5, generator=generator, dtype=torch.float64)
    cost[1, 2] = cost[1, 4]  # a tie
    return cost, -20 * torch.rand(3, 5, generator=generator, dtype=torch.float64)


def test_preference_is_the_mean_over_all_ordered_pairs(tours: tuple[torch.Tensor, torch.Tensor]) -> None:
    cost, likelihood = tours
    total = 0.0
    for i in range(3):
        for j in range(5):
            for k in range(5):
                if cost[i, j] < cost[i, k]:
                    total -= math.log(1 / (1 + math.exp(-0.05 * float(likelihood[i, j] - likelihood[i, k]))))
    assert float(preference(cost, likelihood, 0.05)) == pytest.approx(total / (3 * 5 * 5), rel=1e-12)


@pytest.mark.parametrize("factor", [1 - 2e-5, 1 - 1.1e-5, 1 - 0.9e-5, 1 - 1e-7, 1.0, 1 + 0.9e-5, 1 + 1.1e-5])
@pytest.mark.parametrize("scale", [0.3, 12.0, 1e4])
def test_costs_within_rounding_of_each_other_are_equal(factor: float, scale: float) -> None:
    """Every pair by hand: a tour wins if it is shorter by more than a hundred-thousandth of the longer one."""
    cost = torch.tensor([[scale, scale * factor, 2 * scale, math.inf]], dtype=torch.float64)
    likelihood = torch.tensor([[-3.0, -5.0, -4.0, -1.0]], dtype=torch.float64)
    costs, likelihoods = cost[0].tolist(), likelihood[0].tolist()
    total = 0.0
    for winner in range(4):
        for loser in range(4):
            shorter, longer = costs[winner], costs[loser]
            if math.isfinite(longer) and shorter < longer and (longer - shorter) / longer > 1e-5:
                total += math.log(1 + math.exp(-0.05 * (likelihoods[winner] - likelihoods[loser])))
    assert float(preference(cost, likelihood, 0.05)) == pytest.approx(total / 16, rel=1e-12)


@pytest.mark.parametrize("name", ["CVRP", "OVRPBLTW", "MDVRPTW"])
def test_a_tour_is_never_preferred_to_itself_with_its_routes_in_another_order(name: str) -> None:
    instances = drawn(30, 8, variants=(name,))
    environment = Environment(instances)
    actions, cost = random_walk(environment, 8, torch.Generator().manual_seed(1))
    depots = instances.num_depots
    turned = [
        [routes_to_actions(actions_to_routes(row, depots)[::-1], depots) for row in rows] for rows in actions.tolist()
    ]
    other, legal = follow(environment, pad_actions(turned))
    assert legal.all()
    assert (other != cost).any()  # by rounding alone
    pairs = torch.stack((cost, other), dim=-1).flatten(0, 1)
    _, coefficients = loss_and_coefficients(lambda c, ll: preference(c, ll, 0.05), pairs, torch.zeros_like(pairs))
    assert coefficients.abs().max() == 0
    _, advantages = loss_and_coefficients(reinforce, pairs, torch.zeros_like(pairs))
    assert advantages.abs().max() > 0  # REINFORCE takes costs as they are


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_margins_are_sums_over_all_preferred_pairs(tours: tuple[torch.Tensor, torch.Tensor], scale: float) -> None:
    cost, likelihood = tours
    cost, likelihood = 7 + scale * cost, -20 + scale * likelihood
    cost[0, 3] = math.inf  # an illegal start
    expected = dict.fromkeys(MARGINS, 0.0)
    for i in range(3):
        for j in range(5):
            for k in range(5):
                if not cost[i, j] < cost[i, k] < math.inf:
                    continue
                gap, policy_gap = float(cost[i, k] - cost[i, j]), abs(float(likelihood[i, j] - likelihood[i, k]))
                expected["preferred_pairs"] += 1
                expected["preferred_cost_gap"] += gap
                expected["preferred_policy_gap"] += 0.05 * policy_gap
                for percent in (0.1, 0.5, 1, 5):
                    name = f"{percent}".replace(".", "_")
                    expected[f"cost_near_ties_{name}"] += 100 * gap / float(cost[i, j]) < percent
                    expected[f"policy_near_ties_{name}"] += 100 * policy_gap / abs(float(likelihood[i, j])) < percent
    found = dict(zip(MARGINS, preference_margins(cost, likelihood, 0.05).tolist(), strict=True))
    assert found == pytest.approx(expected)
    assert expected["cost_near_ties_5"] > 0 and expected["policy_near_ties_5"] > 0


def test_reinforce_is_the_mean_of_advantage_times_likelihood(tours: tuple[torch.Tensor, torch.Tensor]) -> None:
    cost, likelihood = tours
    total = 0.0
    for i in range(3):
        baseline = sum(float(value) for value in cost[i]) / 5
        total += sum((float(cost[i, j]) - baseline) * float(likelihood[i, j]) for j in range(5))
    assert float(reinforce(cost, likelihood)) == pytest.approx(total / 15, rel=1e-12)


@pytest.mark.parametrize("objective", [reinforce, lambda cost, likelihood: preference(cost, likelihood, 0.05)])
def test_coefficients_are_the_derivative_by_each_likelihood(objective: Any, tours: Any) -> None:
    cost, likelihood = tours
    loss, coefficients = loss_and_coefficients(objective, cost, likelihood)
    assert float(loss) == pytest.approx(float(objective(cost, likelihood)))
    step = 1e-6
    for i in range(3):
        for j in range(5):
            moved = likelihood.clone()
            moved[i, j] += step
            slope = (objective(cost, moved) - objective(cost, likelihood)) / step
            assert float(coefficients[i, j]) == pytest.approx(float(slope), abs=1e-6)


def test_shorter_tours_gain_probability_and_ties_are_left_alone() -> None:
    cost = torch.tensor([[1.0, 2.0, 3.0]])
    likelihood = torch.tensor([[-9.0, -7.0, -8.0]])
    for objective in (reinforce, lambda c, ll: preference(c, ll, 0.05)):
        _, coefficients = loss_and_coefficients(objective, cost, likelihood)
        assert coefficients[0, 0] < 0 < coefficients[0, 2]  # gradient descent raises the likelihood of the shortest
        _, tied = loss_and_coefficients(objective, torch.ones(1, 3), likelihood)
        assert tied.abs().max() == 0
