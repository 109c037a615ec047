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
    clearly_less = (1 - EQUAL_COSTS) * cost
    preferred = (cost[:, :, None] < clearly_less[:, None, :]) & cost.isfinite()[:, None, :]
    margin = temperature * (log_likelihood[:, :, None] - log_likelihood[:, None, :])
    return -torch.where(preferred, logsigmoid(margin), torch.zeros_like(margin)).mean()


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
