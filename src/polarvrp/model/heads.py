"""What a decoder makes of its glimpse before it points at nodes.

``answers_alone`` says whether each query is answered by itself, and at a price at which leaving some out pays;
``num_noise`` how many normal numbers a query takes in training, which a mixture of experts routes by.

Shape legend: B instances, M queries, H heads, D = d / H features of a head, d features, s state features.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from polarvrp.model.feedforward import ReluFeedForward, SwiGLU
from polarvrp.model.linear import Linear, accumulation_dtype, map_pair
from polarvrp.model.mixture import NUM_CHOICES, MixtureOutput
from polarvrp.model.norms import RootMeanSquareNorm

Ramp = float | Tensor


class PlainHead(nn.Module):
    """``W_o concat(y)``; the output map may be a mixture of experts.

    Args:
        output: The output map: ``[B, M, d]`` to the same and an auxiliary loss.
    """

    answers_alone = False

    def __init__(self, output: nn.Module) -> None:
        super().__init__()
        self.output = output
        self.num_noise = NUM_CHOICES if isinstance(output, MixtureOutput) else 0

    def forward(
        self, glimpse: Tensor, current: Tensor, state: Tensor, ramp: Ramp, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor | float]:
        """Pointer query.

        Args:
            glimpse: y, heads apart, ``[B, M, H, D]``.
            current: h_cur, ``[B, M, d]``.
            state: ``[B, M, s]``.
            ramp: How much of the head's residual block is on; ignored here.
            noise: Normal numbers for a mixture, ``[B, M, num_noise]``.

        Returns:
            ``[B, M, d]`` and the auxiliary loss.
        """
        heads = glimpse.flatten(-2)
        return (self.output(heads), 0.0) if noise is None else self.output(heads, noise)


class GatedHead(nn.Module):
    """Gated heads, a residual around them and a feed-forward block, both normalised afterwards::

        γ = sigmoid(W_γ [h_cur ; state]);  u = W_o concat_h(γ_h y_h) + b_o;  v = norm_a(h_cur + W_D state + u)
        ĥ = norm_b(v + SwiGLU(v))

    With a ramp a < 1 the result is ``u0 + a (ĥ - u0)``, u0 = W_o concat(y) + b_o: at the start of training ĥ is
    nearly parallel to all node embeddings, the clipped logits saturate and pass hardly any gradient.

    Args:
        width: d.
        heads: H.
        hidden: Hidden features of the feed-forward network.
        num_state: s.
    """

    answers_alone, num_noise = True, 0

    def __init__(self, width: int, heads: int, hidden: int, num_state: int) -> None:
        super().__init__()
        self.gate = Linear(width + num_state, heads, bias=False)
        self.output = Linear(width, width)
        self.state = Linear(num_state, width, bias=False)
        self.norm_glimpse = RootMeanSquareNorm(width)
        self.feedforward = SwiGLU(width, hidden)
        self.norm_output = RootMeanSquareNorm(width)

    def forward(self, glimpse: Tensor, current: Tensor, state: Tensor, ramp: Ramp) -> tuple[Tensor, Tensor | float]:
        """Pointer query; arguments as of :class:`PlainHead`."""
        gate = torch.sigmoid(map_pair(self.gate, current, state))  # [B, M, H]
        gated = self.output(_gated(gate, glimpse))
        residual = self.norm_glimpse(current + self.state(state) + gated)
        update, _ = self.feedforward(residual)
        full = self.norm_output(residual + update)
        if isinstance(ramp, Tensor) or ramp < 1.0:
            plain = self.output(glimpse.flatten(-2))
            return plain + ramp * (full - plain), 0.0
        return full, 0.0


def _gated(gate: Tensor, glimpse: Tensor) -> Tensor:
    """Each head times its gate, ``[B, M, H]`` and ``[B, M, H, D]`` to ``[B, M, d]``."""
    if glimpse.device.type != "cpu" or glimpse.dtype != torch.bfloat16:
        return (gate[..., None] * glimpse).flatten(-2)
    # A CPU's product with zeros and ones repeats gates five times faster than its loop over heads of 16 features.
    heads, head_width = glimpse.shape[-2:]
    repeat = torch.eye(heads, dtype=gate.dtype).repeat_interleave(head_width, dim=1)
    return (gate @ repeat) * glimpse.flatten(-2)


class ReldHead(nn.Module):
    """The head of ReLD: ``u = W_o concat(y) + b_o + a (h_cur + W_D state)``, ``ĥ = u + a FF(u)``.

    a is the ramp. The decoder that carries this head subtracts the logarithm of the distance from its logits.

    Args:
        width: d.
        hidden: Hidden features of the feed-forward network.
        num_state: Features of the state.
    """

    answers_alone, num_noise = True, 0

    def __init__(self, width: int, hidden: int, num_state: int) -> None:
        super().__init__()
        self.output = Linear(width, width)
        self.state = Linear(num_state, width, bias=False)
        self.feedforward = ReluFeedForward(width, hidden)

    def forward(self, glimpse: Tensor, current: Tensor, state: Tensor, ramp: Ramp) -> tuple[Tensor, Tensor | float]:
        """Pointer query; arguments as of :class:`PlainHead`."""
        mixed = self.output(glimpse.flatten(-2)) + ramp * (current + self.state(state))
        update, auxiliary = self.feedforward(mixed)
        return mixed + ramp * update, auxiliary


class LightHead(nn.Module):
    """Light form of MVMoE's decoder: the output map is a dense one or a mixture of experts, chosen by a gate.

    ``p = softmax(W_h y_0)``; with the choice j drawn from p the result is ``p_j`` times the map's, which is how W_h
    gets its gradient. The published code fixes p at the first free step of a rollout, from the mean over the batch,
    and draws j for the whole batch at each step. Here y_0 is what an empty vehicle at the depot sees of its own
    instance, so that p does not depend on which decisions are scored together, and j is drawn for each decision.
    In evaluation the more probable map is taken.

    Args:
        width: d.
        bias: The dense map has a bias.
    """

    answers_alone = False
    num_noise = NUM_CHOICES + 1

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.dense = Linear(width, width, bias=bias)
        self.mixture = MixtureOutput(width)
        self.gate = Linear(width, 2, bias=False)

    def choice(self, first_glimpse: Tensor) -> Tensor:
        """Probabilities of the dense map and of the mixture, ``[B, d]`` to ``[B, 2]``, float32 at least."""
        with torch.autocast(first_glimpse.device.type, enabled=False):
            wide = first_glimpse.to(accumulation_dtype(first_glimpse.dtype))
            return functional.linear(wide, self.gate.weight).softmax(dim=-1)

    def forward(
        self, glimpse: Tensor, current: Tensor, state: Tensor, ramp: Ramp, noise: Tensor, choice: Tensor
    ) -> tuple[Tensor, Tensor | float]:
        """Pointer query; arguments as of :class:`PlainHead`, and the choice of each instance, ``[B, 2]``."""
        heads = glimpse.flatten(-2)
        if self.training:
            use_mixture = torch.special.ndtr(noise[..., -1]) < choice[:, 1:]  # [B, M]
        else:
            use_mixture = choice[:, 1:] >= choice[:, :1]  # [B, 1]
        mixed, auxiliary = self.mixture(heads, noise[..., :NUM_CHOICES])
        dense, mixed = self.dense(heads), mixed.to(heads.dtype)
        weights = choice.to(dense.dtype)[:, None]  # [B, 1, 2]
        result = torch.where(use_mixture[..., None], weights[..., 1:] * mixed, weights[..., :1] * dense)
        return result, auxiliary * use_mixture.to(auxiliary.dtype).mean()
