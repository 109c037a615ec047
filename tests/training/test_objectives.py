"""Objectives against plain loops over their definitions."""

import math

import pytest
import torch

from polarvrp.training.objectives import loss_and_coefficients, preference, reinforce


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


def test_reinforce_is_the_mean_of_advantage_times_likelihood(tours: tuple[torch.Tensor, torch.Tensor]) -> None:
    cost, likelihood = tours
    total = 0.0
    for i in range(3):
        baseline = sum(float(value) for value in cost[i]) / 5
        total += sum((float(cost[i, j]) - baseline) * float(likelihood[i, j]) for j in range(5))
    assert float(reinforce(cost, likelihood)) == pytest.approx(total / 15, rel=1e-12)


@pytest.mark.parametrize("objective", [reinforce, lambda cost, likelihood: preference(cost, likelihood, 0.05)])
def test_coefficients_are_the_derivative_by_each_likelihood(objective, tours) -> None:
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
