"""Training objectives as functions of the costs and log-likelihoods of S tours of each of B instances.

Both depend on the network through log-likelihoods alone, so the gradient of each is one coefficient a tour, which
``decoding.scoring`` turns into gradients of the parameters.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.catalog.records import resolve
from polarvrp.config.training import TrainConfig

Objective = Callable[[Tensor, Tensor], Tensor]

EQUAL_COSTS = 1e-5
"""Relative difference up to which tours count as equally long: the same routes in another order have another sum in
float32, and by that alone a tour would be preferred to itself."""

NEAR_TIES = {"0_1": 0.001, "0_5": 0.005, "1": 0.01, "5": 0.05}
"""Tolerances of near-ties, by their percentage in names of columns."""

MARGINS = (
    "preferred_pairs",
    "preferred_cost_gap",
    "preferred_policy_gap",
    *(f"cost_near_ties_{percent}" for percent in NEAR_TIES),
    *(f"policy_near_ties_{percent}" for percent in NEAR_TIES),
)
"""What is added up of preferred pairs: their number, differences of costs and, times the temperature, of
log-likelihoods, and numbers of near-ties."""


def objective_of(config: TrainConfig) -> Objective:
    """Loss of a training, as the record of its paradigm says."""
    paradigm = PARADIGMS[config.paradigm]
    return partial(resolve(paradigm.objective), **{key: getattr(config, key) for key in paradigm.objective_settings})


def reinforce(cost: Tensor, log_likelihood: Tensor) -> Tensor:
    """REINFORCE with the mean over an instance's tours as baseline (POMO).

    Formula: mean over i, j of ``(cost_ij - mean_j cost_ij) * log p_ij``. Tours that cost infinity, whose forced start
    was illegal, count 0.

    Args:
        cost: Float, ``[B, S]``.
        log_likelihood: Float, ``[B, S]``.

    Returns:
        Scalar loss.
    """
    advantage = (cost - mean_of_legal(cost)[:, None]).masked_fill(cost.isinf(), 0.0)
    return (advantage * log_likelihood).mean()


def preference(cost: Tensor, log_likelihood: Tensor, temperature: float) -> Tensor:
    """Preference optimisation over all ordered pairs of an instance's tours.

    Formula: minus the mean over i and all S * S pairs (j, k) of
    ``1[cost_ij < cost_ik] * log sigmoid(temperature * (log p_ij - log p_ik))``; ties (``EQUAL_COSTS``), the diagonal
    and pairs with a tour that costs infinity, whose forced start was illegal, count 0.

    Args:
        cost: Above 0, float, ``[B, S]``.
        log_likelihood: Float, ``[B, S]``.
        temperature: The paper's alpha.

    Returns:
        Scalar loss.

    Source: section on preference optimization with local augmented refinement.
    """
    margin = temperature * (log_likelihood[:, :, None] - log_likelihood[:, None, :])
    return -torch.where(preferred_pairs(cost), logsigmoid(margin), torch.zeros_like(margin)).mean()


def preferred_pairs(cost: Tensor) -> Tensor:
    """Pairs (j, k) of an instance's tours of which the first is preferred, bool, ``[B, S, S]``."""
    clearly_less = (1 - EQUAL_COSTS) * cost
    return (cost[:, :, None] < clearly_less[:, None, :]) & cost.isfinite()[:, None, :]


def preference_margins(cost: Tensor, log_likelihood: Tensor, temperature: float) -> Tensor:
    """How decisive the preferred pairs are, in cost and in the eyes of the policy, as sums over them.

    A pair is a near-tie at a tolerance if its costs, or log-likelihoods, differ by a smaller share of those of the
    preferred tour.

    Args:
        cost: Float, ``[B, S]``.
        log_likelihood: Float, ``[B, S]``.
        temperature: The paper's alpha.

    Returns:
        In the order of ``MARGINS``, float64.

    Source: appendix on the preference-margin analysis.
    """
    preferred = preferred_pairs(cost)
    cost = cost.masked_fill(cost.isinf(), 0.0)
    cost_gap = cost[:, None, :] - cost[:, :, None]
    policy_gap = (log_likelihood[:, :, None] - log_likelihood[:, None, :]).abs()

    def near_ties(gap: Tensor, scale: Tensor) -> list[Tensor]:
        return [(preferred & (gap < share * scale.abs()[:, :, None])).sum() for share in NEAR_TIES.values()]

    sums = [
        preferred.sum(),
        (cost_gap * preferred).sum(dtype=torch.float64),
        temperature * (policy_gap * preferred).sum(dtype=torch.float64),
        *near_ties(cost_gap, cost),
        *near_ties(policy_gap, log_likelihood),
    ]
    return torch.stack([value.double() for value in sums])


def mean_of_legal(cost: Tensor) -> Tensor:
    """Mean of the finite costs of each instance, ``[B, S]`` to ``[B]``."""
    legal = cost.isfinite()
    return cost.masked_fill(~legal, 0.0).sum(1) / legal.sum(1)


def loss_and_coefficients(objective: Objective, cost: Tensor, log_likelihood: Tensor) -> tuple[Tensor, Tensor]:
    """Loss and its derivative by each tour's log-likelihood.

    Returns:
        Detached scalar, and float ``[B, S]``.
    """
    leaf = log_likelihood.detach().requires_grad_()
    loss = objective(cost, leaf)
    (coefficients,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), coefficients
