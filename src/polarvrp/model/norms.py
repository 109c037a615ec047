"""Normalisations: root mean square over features, instance normalisation over tokens.

Shape legend: E experts, B instances, T tokens, d features; statistics are computed in float32 at least.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from polarvrp.model.cpu_elementwise import RootMeanSquare
from polarvrp.model.linear import accumulation_dtype

EPSILON = 1e-5


def _affine_shape(width: int, experts: int | None) -> tuple[int, ...]:
    return (width,) if experts is None else (experts, 1, 1, width)


class RootMeanSquareNorm(nn.Module):
    """``x / √(mean_j x_j² + ε) ⊙ w``, each token for itself; w starts at 1, no bias.

    Args:
        width: d.
        experts: Experts with their own w; the input may lack their axis and gets it.
    """

    def __init__(self, width: int, experts: int | None = None) -> None:
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.ones(_affine_shape(width, experts)))

    def normalize(self, x: Tensor) -> Tensor:
        """``x`` with a root mean square of 1, in float32 at least, ``[..., d]``."""
        return functional.rms_norm(x.to(accumulation_dtype(x.dtype)), (self.width,), eps=EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "cpu":
            result: Tensor = RootMeanSquare.apply(x, self.weight, EPSILON)  # type: ignore[no-untyped-call]
            return result
        return (self.normalize(x) * self.weight).to(x.dtype)


class InstanceNorm(nn.Module):
    """Each feature of each instance gets mean β and standard deviation γ over the instance's tokens.

    Biased variance, no running statistics; γ starts at 1, β at 0.

    Args:
        width: d.
        experts: Experts with their own γ and β.
    """

    def __init__(self, width: int, experts: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(_affine_shape(width, experts)))
        self.bias = nn.Parameter(torch.zeros(_affine_shape(width, experts)))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(accumulation_dtype(x.dtype))  # [..., T, d]
        variance, mean = torch.var_mean(wide, dim=-2, correction=0, keepdim=True)
        return ((wide - mean) * torch.rsqrt(variance + EPSILON) * self.weight + self.bias).to(x.dtype)


NORMS: dict[str, type[RootMeanSquareNorm] | type[InstanceNorm]] = {"rms": RootMeanSquareNorm, "instance": InstanceNorm}
