"""Self-attention over the rows of an instance: dense or sparse, with or without rotary positions.

Shape legend: E experts (absent for a plain block), B instances, T rows, H heads, D = d / H features of a head.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from polarvrp.model.cpu_attention import cpu_attention
from polarvrp.model.linear import Linear, accumulation_dtype
from polarvrp.model.rotation import Rotation, rotate
from polarvrp.model.short_attention import is_short, short_attention


class Attention(nn.Module):
    """Multi-head attention ``W_o concat_h softmax(q_h k_hᵀ / √D) v_h + b_o``.

    Args:
        width: d.
        heads: H.
        bias: Whether query, key and value have biases; the output map always has one.
        top_half: Each query and head attends to the ⌊T/2⌋ keys with the largest scores only.
        initial_factor: Start of a learnable factor on the attention weights; ``None`` for no factor.
        experts: Experts with their own weights.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        bias: bool = False,
        top_half: bool = False,
        initial_factor: float | None = None,
        experts: int | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.top_half = heads, top_half
        self.query_key_value = Linear(width, 3 * width, bias=bias, experts=experts, parts=3)
        self.output = Linear(width, width, experts=experts)
        self.factor = None if initial_factor is None else nn.Parameter(torch.tensor(initial_factor))

    def forward(self, rows: Tensor, rotation: Rotation | None, num_queries: int) -> Tensor:
        """Attend from the first ``num_queries`` rows to all rows.

        Args:
            rows: ``[E, B, T, d]`` or ``[B, T, d]``.
            rotation: Tables for T rows, or ``None``.
            num_queries: Rows to compute, T or fewer; the rest serve as keys and values only.

        Returns:
            ``[E, B, num_queries, d]`` or ``[B, num_queries, d]``.
        """
        width = rows.shape[-1]
        packed = self.query_key_value(rows)
        packed = packed.reshape(*packed.shape[:-1], 3, self.heads, width // self.heads)  # [E, B, T, 3, H, D]
        if not self.top_half and is_short(packed):
            merged = short_attention(packed, rotation, num_queries)
        else:
            merged = self._attend(packed, rotation, num_queries)
        if self.factor is not None:
            merged = merged * self.factor
        result: Tensor = self.output(merged)
        return result

    def _attend(self, packed: Tensor, rotation: Rotation | None, num_queries: int) -> Tensor:
        """Heads side by side, ``[..., T, 3, H, D]`` to ``[..., num_queries, d]``."""
        leading, num_rows = packed.shape[:-4], packed.shape[-4]
        query_key = packed[..., :2, :, :]
        if rotation is not None:
            query_key = rotate(query_key, rotation)
        query_key = query_key.reshape(-1, num_rows, *query_key.shape[-3:])  # [E B, T, 2, H, D]
        query = query_key[:, :num_queries, 0].transpose(1, 2)
        key = query_key[:, :, 1].transpose(1, 2)
        value = packed[..., 2, :, :].reshape(-1, num_rows, *packed.shape[-2:]).transpose(1, 2)  # [E B, H, T, D]
        if self.top_half:
            heads = sparse_attention(query, key, value)
        elif query.device.type == "cpu":
            heads = cpu_attention(query, key, value)
        else:
            heads = functional.scaled_dot_product_attention(query, key, value)
        return heads.transpose(1, 2).reshape(*leading, num_queries, -1)


def sparse_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention of each query to the half of its keys with the largest scores.

    Args:
        query: ``[B, H, Q, D]``.
        key: ``[B, H, T, D]``.
        value: ``[B, H, T, D]``.

    Returns:
        ``[B, H, Q, D]``.
    """
    return sparse_weights(query, key).to(value.dtype) @ value


def sparse_weights(query: Tensor, key: Tensor) -> Tensor:
    """Attention weights with ⌊T/2⌋ non-zero ones in each row, ``[B, H, Q, T]``, float32 at least."""
    scores = (query @ key.transpose(-1, -2)).to(accumulation_dtype(query.dtype)) * query.shape[-1] ** -0.5
    largest, indices = scores.topk(key.shape[-2] // 2, dim=-1)
    return torch.zeros_like(scores).scatter(-1, indices, largest.softmax(dim=-1))
