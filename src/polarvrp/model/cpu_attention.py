"""Dot-product attention over few keys on a CPU, in batched products; the flash kernel starts anew for each head.

A head has 16 features and an instance some dozens of nodes, so the kernel of ``scaled_dot_product_attention`` spends
its time on blocks that are nearly empty; in bfloat16 its backward pass takes seven times as long as in float32. Scores,
softmax and sums are float32 at least, whatever precision surrounds them.

Shape legend: B instances, H heads, Q queries, T keys, D features of a head.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from polarvrp.model.linear import accumulation_dtype

MOST_KEYS = 64
"""Beyond it the flash kernel, which keeps no weights for the backward pass, is as fast."""


def cpu_attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
    """``softmax(q kᵀ / √D + bias) v``.

    Args:
        query: ``[B, H, Q, D]``, in main memory.
        key: ``[B, H, T, D]``.
        value: ``[B, H, T, D]``.
        bias: Added to the scores, minus infinity where a key is hidden, no gradient, ``[B, 1, Q, T]``.

    Returns:
        ``[B, H, Q, D]``, in the dtype of the query.
    """
    with torch.autocast("cpu", enabled=False):
        dtype = accumulation_dtype(query.dtype)
        # One pass converts and lays the heads apart, as batched products like them.
        q, k, v = (rows.to(dtype, memory_format=torch.contiguous_format).contiguous() for rows in (query, key, value))
        if key.shape[-2] > MOST_KEYS:
            mixed = functional.scaled_dot_product_attention(q, k, v, bias)
        else:
            mixed = _Attention.apply(q, k, v, bias)  # type: ignore[no-untyped-call]
        result: Tensor = mixed.to(query.dtype)
        return result


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        query = query * query.shape[-1] ** -0.5
        scores = query @ key.transpose(-1, -2)
        if bias is not None:
            scores += bias
        weights = scores.softmax(-1)
        ctx.save_for_backward(query, key, value, weights)
        return weights @ value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value, weights = ctx.saved_tensors
        of_weights = upstream @ value.transpose(-1, -2)
        of_scores = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, weights.dtype)
        of_query = (of_scores @ key).mul_(query.shape[-1] ** -0.5)
        return of_query, of_scores.transpose(-1, -2) @ query, weights.transpose(-1, -2) @ upstream, None
