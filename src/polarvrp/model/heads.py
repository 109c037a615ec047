"""What a decoder makes of its glimpse before it points at nodes.

Shape legend: B instances, M queries, H heads, D = d / H features of a head, d features, s state features.
"""

import torch
from torch import Tensor, nn

from polarvrp.model.feedforward import ReluFeedForward, SwiGLU
from polarvrp.model.linear import Linear
from polarvrp.model.norms import RootMeanSquareNorm

Ramp = float | Tensor


class PlainHead(nn.Module):
    """``W_o concat(y)``; the output map may be a mixture of experts.

    Args:
        output: The output map: ``[B, M, d]`` to the same and an auxiliary loss.
    """

    def __init__(self, output: nn.Module) -> None:
        super().__init__()
        self.output = output

    def forward(
        self, glimpse: Tensor, query: Tensor, current: Tensor, state: Tensor, ramp: Ramp
    ) -> tuple[Tensor, Tensor | float]:
        """Pointer query.

        Args:
            glimpse: y, heads apart, ``[B, M, H, D]``.
            query: c = [h_cur ; state], ``[B, M, d + s]``.
            current: h_cur, ``[B, M, d]``.
            state: ``[B, M, s]``.
            ramp: How much of the head's residual block is on; ignored here.

        Returns:
            ``[B, M, d]`` and the auxiliary loss.
        """
        result = self.output(glimpse.flatten(-2))
        return result if isinstance(result, tuple) else (result, 0.0)


class GatedHead(nn.Module):
    """Gated heads, a residual around them and a feed-forward block, both normalised afterwards::

        γ = sigmoid(W_γ c);  u = W_o concat_h(γ_h y_h) + b_o;  v = norm_a(h_cur + W_D state + u)
        ĥ = norm_b(v + SwiGLU(v))

    With a ramp a < 1 the result is ``u0 + a (ĥ - u0)``, u0 = W_o concat(y) + b_o: at the start of training ĥ is
    nearly parallel to all node embeddings, the clipped logits saturate and pass hardly any gradient.

    Args:
        width: d.
        heads: H.
        hidden: Hidden features of the feed-forward network.
        num_state: s.
    """

    def __init__(self, width: int, heads: int, hidden: int, num_state: int) -> None:
        super().__init__()
        self.gate = Linear(width + num_state, heads, bias=False)
        self.output = Linear(width, width)
        self.state = Linear(num_state, width, bias=False)
        self.norm_glimpse = RootMeanSquareNorm(width)
        self.feedforward = SwiGLU(width, hidden)
        self.norm_output = RootMeanSquareNorm(width)

    def forward(
        self, glimpse: Tensor, query: Tensor, current: Tensor, state: Tensor, ramp: Ramp
    ) -> tuple[Tensor, Tensor | float]:
        """Pointer query; arguments as of :class:`PlainHead`."""
        gate = torch.sigmoid(self.gate(query))  # [B, M, H]
        gated = self.output((gate[..., None] * glimpse).flatten(-2))
        residual = self.norm_glimpse(current + self.state(state) + gated)
        update, _ = self.feedforward(residual)
        full = self.norm_output(residual + update)
        if isinstance(ramp, Tensor) or ramp < 1.0:
            plain = self.output(glimpse.flatten(-2))
            return plain + ramp * (full - plain), 0.0
        return full, 0.0


class ReldHead(nn.Module):
    """The head of ReLD: ``u = W_o concat(y) + b_o + a (h_cur + W_D state)``, ``ĥ = u + a FF(u)``.

    a is the ramp. The decoder that carries this head subtracts the logarithm of the distance from its logits.

    Args:
        width: d.
        hidden: Hidden features of the feed-forward network.
        num_state: Features of the state.
    """

    def __init__(self, width: int, hidden: int, num_state: int) -> None:
        super().__init__()
        self.output = Linear(width, width)
        self.state = Linear(num_state, width, bias=False)
        self.feedforward = ReluFeedForward(width, hidden)

    def forward(
        self, glimpse: Tensor, query: Tensor, current: Tensor, state: Tensor, ramp: Ramp
    ) -> tuple[Tensor, Tensor | float]:
        """Pointer query; arguments as of :class:`PlainHead`."""
        mixed = self.output(glimpse.flatten(-2)) + ramp * (current + self.state(state))
        update, auxiliary = self.feedforward(mixed)
        return mixed + ramp * update, auxiliary
