"""Self-attention over short sequences with rotary positions inside, for bfloat16 on a GPU.

Shape legend: S sequences (experts by instances), B instances, T rows, Q queries, H heads, D features of a head.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from polarvrp.model.rotation import Rotation

FORWARD_BLOCKS = {64: (64, 4), 128: (128, 8), 256: (64, 8)}
BACKWARD_BLOCKS = {64: (64, 4), 128: (32, 8), 256: (32, 8)}
"""Block of keys to block of queries and warps: what compiles for a Hopper GPU without spilling registers."""

MAX_ROWS = 256
SMALLEST_HEAD = 16
"""Columns of the smallest matrix that tensor cores multiply."""

HAS_TRITON = find_spec("triton") is not None


def is_short(query_key_value: Tensor) -> bool:
    """Whether :func:`short_attention` serves and pays for these, ``[..., T, 3, H, D]``."""
    num_rows, _, _, head_width = query_key_value.shape[-4:]
    power_of_two = head_width & (head_width - 1) == 0
    fits = num_rows <= MAX_ROWS and head_width >= SMALLEST_HEAD and power_of_two
    return HAS_TRITON and fits and query_key_value.is_cuda and query_key_value.dtype == torch.bfloat16


def short_attention(query_key_value: Tensor, rotation: Rotation | None, num_queries: int) -> Tensor:
    """Scaled dot-product attention of the first rows to all rows, queries and keys turned before.

    Args:
        query_key_value: Side by side, ``[E, B, T, 3, H, D]`` or ``[B, T, 3, H, D]``.
        rotation: Tables for T rows, or ``None``.
        num_queries: Q, T or fewer.

    Returns:
        Heads side by side, ``[E, B, Q, H * D]`` or ``[B, Q, H * D]``.
    """
    leading, shape = query_key_value.shape[:-4], query_key_value.shape[-4:]
    cosine, sine = (None, None) if rotation is None else (rotation.cosine, rotation.sine)
    mixed: Tensor = _attention(query_key_value.reshape(-1, *shape), cosine, sine, num_queries)[0]
    return mixed.reshape(*leading, num_queries, shape[2] * shape[3])


@torch.library.custom_op("polarvrp::short_attention", mutates_args=())
def _attention(
    query_key_value: Tensor, cosine: Tensor | None, sine: Tensor | None, num_queries: int
) -> tuple[Tensor, Tensor]:
    """``[S, Q, H, D]``, and the logarithms of the softmax's denominators, float32 ``[S, H, Q]``."""
    from polarvrp.model.kernels.short_attention import attention_forward

    sequences, num_rows, _, heads, head_width = query_key_value.shape
    query_key_value = query_key_value.contiguous()
    mixed = query_key_value.new_empty(sequences, num_queries, heads, head_width)
    normalizer = query_key_value.new_empty(sequences, heads, num_queries, dtype=torch.float32)
    with torch.cuda.device_of(query_key_value):  # type: ignore[no-untyped-call]  # kernels run on the current device
        attention_forward[(sequences * heads,)](
            query_key_value,
            *_tables(query_key_value, cosine, sine),
            mixed,
            normalizer,
            num_rows,
            num_queries,
            sequences if cosine is None else len(cosine),
            **_constants(query_key_value, cosine, FORWARD_BLOCKS),
        )
    return mixed, normalizer


@torch.library.custom_op("polarvrp::short_attention_backward", mutates_args=())
def _attention_backward(
    query_key_value: Tensor, cosine: Tensor | None, sine: Tensor | None, normalizer: Tensor, upstream: Tensor
) -> Tensor:
    """Gradient by ``query_key_value``."""
    from polarvrp.model.kernels.short_attention import attention_backward

    sequences, num_rows, _, heads, _ = query_key_value.shape
    query_key_value = query_key_value.contiguous()
    gradient = torch.empty_like(query_key_value)
    with torch.cuda.device_of(query_key_value):  # type: ignore[no-untyped-call]
        attention_backward[(sequences * heads,)](
            query_key_value,
            *_tables(query_key_value, cosine, sine),
            normalizer,
            upstream.contiguous(),
            gradient,
            num_rows,
            upstream.shape[1],
            sequences if cosine is None else len(cosine),
            **_constants(query_key_value, cosine, BACKWARD_BLOCKS),
        )
    return gradient


@_attention.register_fake
def _(query_key_value: Tensor, cosine: Tensor | None, sine: Tensor | None, num_queries: int) -> tuple[Tensor, Tensor]:
    sequences, _, _, heads, head_width = query_key_value.shape
    mixed = query_key_value.new_empty(sequences, num_queries, heads, head_width)
    return mixed, query_key_value.new_empty(sequences, heads, num_queries, dtype=torch.float32)


@_attention_backward.register_fake
def _(
    query_key_value: Tensor, cosine: Tensor | None, sine: Tensor | None, normalizer: Tensor, upstream: Tensor
) -> Tensor:
    return query_key_value.new_empty(query_key_value.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query_key_value, cosine, sine, _ = inputs
    ctx.save_for_backward(query_key_value, cosine, sine, output[1])


def _differentiate(ctx: Any, upstream: Tensor, _: Tensor | None) -> tuple[Tensor, None, None, None]:
    query_key_value, cosine, sine, normalizer = ctx.saved_tensors
    return _attention_backward(query_key_value, cosine, sine, normalizer, upstream), None, None, None


_attention.register_autograd(_differentiate, setup_context=_keep)


def _tables(query_key_value: Tensor, cosine: Tensor | None, sine: Tensor | None) -> tuple[Tensor, Tensor]:
    # Without rotation the kernel takes no look at these arguments, which have to be some tensors.
    if cosine is None or sine is None:
        return query_key_value, query_key_value
    return cosine.contiguous(), sine.contiguous()


def _constants(query_key_value: Tensor, cosine: Tensor | None, blocks: dict[int, tuple[int, int]]) -> dict[str, Any]:
    _, num_rows, _, heads, head_width = query_key_value.shape
    key_block = next(block for block in sorted(blocks) if block >= num_rows)
    query_block, num_warps = blocks[key_block]
    return {
        "heads": heads,
        "head_width": head_width,
        "rotated": cosine is not None,
        "scale": head_width**-0.5,
        "query_block": query_block,
        "key_block": key_block,
        "num_warps": num_warps,
        "num_stages": 1,
    }
