"""Mixtures of experts with noisy top-2 routing of each token, and the loss that keeps their load even.

Every expert computes every token and unpicked ones get weight 0: shapes stay static, and the experts' maps are one
wide map.

Shape legend: E experts of a PLE layer, each a mixture of its own (absent for a plain block), B instances, T tokens of
an instance, R = B T tokens, m choices of a mixture, d features, f hidden features.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from polarvrp.model.linear import Linear, accumulation_dtype

NUM_CHOICES = 4
NUM_PICKED = 2
LOSS_COEFFICIENT = 1e-3
SMALLEST_DEVIATION = 0.01
EPSILON = 1e-10


class Router(nn.Module):
    """Picks 2 of m choices for each token; weights are a softmax over the picked scores.

    ``c = x W_g``; in training ``c' = c + σ ε`` with ``σ = softplus(x W_n) + 0.01`` and normal ε, otherwise c' = c.
    Both maps start at 0, so that noise alone picks at first; equal scores are taken in order. The auxiliary loss is
    ``0.001 (CV²(importance) + CV²(load))`` over the choices: importance is the sum of a choice's weights, load the
    expected number of tokens that pick it (in evaluation the actual one). Everything is computed in float32 at least.

    Args:
        width: d.
        experts: E.

    Attributes:
        generator: Source of the noise, on the device of the weights; ``None`` is torch's global one, as for dropout.
    """

    def __init__(self, width: int, experts: int | None = None) -> None:
        super().__init__()
        shape = (width, NUM_CHOICES) if experts is None else (experts, width, NUM_CHOICES)
        self.scores = nn.Parameter(torch.zeros(shape))
        self.deviations = nn.Parameter(torch.zeros(shape))
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Route tokens.

        Args:
            x: ``[E, B, T, d]`` or ``[B, T, d]``.
            noise: ε, the same with m for d, read in training only; ``None``: drawn here.

        Returns:
            Weights ``[E, B, T, m]`` or ``[B, T, m]``, two of each token positive; auxiliary loss, summed over E.
        """
        leading = x.shape[:-3]
        with torch.autocast(x.device.type, enabled=False):
            tokens = x.reshape(*leading, -1, x.shape[-1]).to(accumulation_dtype(x.dtype))  # [E, R, d]
            clean = tokens @ self.scores
            if self.training:
                deviation = functional.softplus(tokens @ self.deviations) + SMALLEST_DEVIATION
                if noise is None:
                    noise = torch.empty_like(clean).normal_(generator=self.generator)
                noisy = clean + deviation * noise.reshape(clean.shape).to(clean.dtype)
            else:
                noisy = clean
            rank = _rank(noisy)
            picked = rank < NUM_PICKED
            weights = noisy.masked_fill(~picked, float("-inf")).softmax(dim=-1)
            if self.training:
                last_in = _ranked(noisy, rank, NUM_PICKED - 1)
                first_out = _ranked(noisy, rank, NUM_PICKED)
                bound = torch.where(picked, first_out, last_in)
                load = torch.special.ndtr((clean - bound) / deviation).sum(dim=-2)
            else:
                load = picked.to(weights.dtype).sum(dim=-2)
            variation = _squared_variation(weights.sum(dim=-2)) + _squared_variation(load)
        return weights.reshape(*x.shape[:-1], NUM_CHOICES), LOSS_COEFFICIENT * variation.sum()


class MixtureFeedForward(nn.Module):
    """``Σ_e G_e (W2_e relu(W1_e x + b1_e) + b2_e)``, the feed-forward network of a block.

    Args:
        width: d.
        hidden: f of each choice.
        experts: E.
    """

    def __init__(self, width: int, hidden: int, experts: int | None = None) -> None:
        super().__init__()
        self.router = Router(width, experts)
        self.up = Linear(width, NUM_CHOICES * hidden, experts=experts, parts=NUM_CHOICES)
        self.down = Linear(NUM_CHOICES * hidden, width, bias=False, experts=experts)
        shape = (NUM_CHOICES, width) if experts is None else (experts, 1, NUM_CHOICES, width)
        self.down_bias = nn.Parameter(torch.empty(shape))
        for parameter in (self.down.weight, self.down_bias):
            nn.init.uniform_(parameter, -(hidden**-0.5), hidden**-0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weights, auxiliary = self.router(x)
        hidden = functional.relu(self.up(x))
        weights = weights.to(hidden.dtype)
        weighted = hidden.reshape(*hidden.shape[:-1], NUM_CHOICES, -1) * weights[..., None]
        return self.down(weighted.flatten(-2)) + weights @ self.down_bias.to(weights.dtype), auxiliary


class MixtureOutput(nn.Module):
    """``Σ_e G_e (W_e x + b_e)``, the output map of a decoder.

    Args:
        width: d.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.router = Router(width)
        self.maps = Linear(width, NUM_CHOICES * width, parts=NUM_CHOICES)

    def forward(self, x: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map tokens ``[B, T, d]``; noise as of :class:`Router`, ``[B, T, m]``."""
        weights, auxiliary = self.router(x, noise)
        outputs = self.maps(x).reshape(*x.shape[:-1], NUM_CHOICES, -1)  # [B, T, m, d]
        return (weights[..., None].to(outputs.dtype) * outputs).sum(dim=-2), auxiliary


def _rank(scores: Tensor) -> Tensor:
    """Position of each choice in falling order, equal ones in order of their index, ``[..., m]``."""
    mine, other = scores[..., :, None], scores[..., None, :]
    earlier = torch.ones(NUM_CHOICES, NUM_CHOICES, dtype=torch.bool, device=scores.device).tril(-1)
    return ((other > mine) | ((other == mine) & earlier)).sum(dim=-1)


def _ranked(scores: Tensor, rank: Tensor, position: int) -> Tensor:
    """The score at a position of the falling order, ``[..., 1]``."""
    return scores.masked_fill(rank != position, 0.0).sum(dim=-1, keepdim=True)


def _squared_variation(values: Tensor) -> Tensor:
    """Squared coefficient of variation over the last axis, unbiased variance."""
    return values.var(dim=-1) / (values.mean(dim=-1).square() + EPSILON)
