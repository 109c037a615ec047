"""Norms and gated units on a CPU with as few passes over memory as there can be; on a GPU the compiler does the same.

Shape legend: E experts (absent for a plain block), R rows of any shape, d features, f hidden features.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from polarvrp.model.linear import accumulation_dtype


class GatedUnit(torch.autograd.Function):
    """``silu(g) ⊙ u`` of ``[g ; u]``, ``[R, 2 f]`` to ``[R, f]``."""

    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        opening = functional.silu(gate)
        ctx.save_for_backward(gate_up, opening)
        return opening * up

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        gate_up, opening = ctx.saved_tensors
        gate, up = gate_up.chunk(2, dim=-1)
        gradient = torch.empty_like(gate_up)
        of_gate, of_up = gradient.chunk(2, dim=-1)  # both halves are written where they belong
        torch.mul(upstream, opening, out=of_up)
        torch.ops.aten.silu_backward.grad_input(upstream * up, gate, grad_input=of_gate)
        return gradient


class RootMeanSquare(torch.autograd.Function):
    """``x / √(mean_j x_j² + ε) ⊙ w``, sums in float32 at least.

    x is ``[R, d]`` or ``[E, R, d]``, w ``[d]`` or ``[E, 1, 1, d]``; x may lack the experts' axis and gets it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        wide = x.to(accumulation_dtype(x.dtype))
        scale = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        scale = scale.square_().mul_(1.0 / x.shape[-1]).add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        normal: Tensor = (wide * scale * weight).to(x.dtype)
        return normal

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, scale = ctx.saved_tensors
        wide = upstream.to(scale.dtype)
        unit = x.to(scale.dtype) * scale
        of_unit = (wide * weight).sum_to_size(unit.shape)
        of_weight = (wide * unit).sum_to_size(weight.shape)
        inward = (of_unit * unit).mean(-1, keepdim=True)
        return torch.addcmul(of_unit, unit, inward, value=-1).mul_(scale).to(x.dtype), of_weight, None
