"""One transformer block, pre- or post-norm, alone or as a stack of experts.

Shape legend: E experts (absent for a plain block), B instances, N nodes, p memory rows (prompt tokens), d features.
"""

import torch
from torch import Tensor, nn

from polarvrp.model.attention import Attention
from polarvrp.model.norms import InstanceNorm, RootMeanSquareNorm
from polarvrp.model.rotation import Rotation


class Block(nn.Module):
    """Attention and a feed-forward network, each with a residual and a norm.

    ====  ==========================================  =============================================
    form  attention                                   feed-forward
    ====  ==========================================  =============================================
    pre   ``x' = x + s · attention(norm_1(x))``       ``y = x' + s · feedforward(norm_2(x'))``
    post  ``x' = norm_1(x + s · attention(x))``       ``y = norm_2(x' + s · feedforward(x'))``
    ====  ==========================================  =============================================

    Args:
        attention: Attention part.
        feedforward: Feed-forward part: rows to rows and an auxiliary loss.
        norms: norm_1 and norm_2.
        pre_norm: Which form.
        residual_scale: s.
        experts: Number of experts in every part, or ``None``.
    """

    def __init__(
        self,
        attention: Attention,
        feedforward: nn.Module,
        norms: tuple[RootMeanSquareNorm | InstanceNorm, RootMeanSquareNorm | InstanceNorm],
        *,
        pre_norm: bool,
        residual_scale: float = 1.0,
        experts: int | None = None,
    ) -> None:
        super().__init__()
        self.attention, self.feedforward = attention, feedforward
        self.norm_attention, self.norm_feedforward = norms
        self.pre_norm, self.residual_scale, self.experts = pre_norm, residual_scale, experts

    def forward(
        self, x: Tensor, rotation: Rotation | None = None, memory: Tensor | None = None
    ) -> tuple[Tensor, Tensor | float]:
        """Update the rows of x.

        Args:
            x: ``[B, N, d]``, the same for all experts.
            rotation: Tables for N + p rows, or ``None``.
            memory: Further rows that are attended to and not returned, ``[B, p, d]``, or ``None``.

        Returns:
            Updated rows, ``[E, B, N, d]`` or ``[B, N, d]``, and the auxiliary loss.
        """
        num_rows = x.shape[-2]
        rows = x if memory is None else torch.cat((x, memory), dim=-2)
        if self.pre_norm:
            # The memory reaches other rows through its keys and values only, so no more of it is computed.
            x = x + self.residual_scale * self.attention(self.norm_attention(rows), rotation, num_rows)
            update, auxiliary = self.feedforward(self.norm_feedforward(x))
            return x + self.residual_scale * update, auxiliary
        if self.experts is not None:
            rows = rows.expand(self.experts, -1, -1, -1)
        attended = self.attention(rows, rotation, rows.shape[-2])
        rows = self.norm_attention(rows + self.residual_scale * attended)
        update, auxiliary = self.feedforward(rows)
        rows = self.norm_feedforward(rows + self.residual_scale * update)
        return rows[..., :num_rows, :], auxiliary
