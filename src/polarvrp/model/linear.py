"""Affine maps, alone or as a stack of experts, and the precision that sums deserve.

Shape legend: E experts, B instances, T rows (tokens), d features.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The precision for norms, softmax and pointer: float32 for half precisions, otherwise the given one."""
    return torch.promote_types(dtype, torch.float32)


class Linear(nn.Module):
    """``y = W x + b``, or one such map for each of E experts, computed as one batched product.

    Weight and bias start uniform in ±1/√in_features.

    Args:
        in_features: Features of x.
        out_features: Features of y.
        bias: Whether b exists.
        experts: Number of experts E with their own weights; ``None`` for one plain map.
        parts: How many maps of equal size lie side by side in the output (query, key and value are 3); adapters
            treat each on its own.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, experts: int | None = None, parts: int = 1
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.experts, self.parts = experts, parts
        if experts is None:
            self.weight = nn.Parameter(torch.empty(out_features, in_features))
        else:
            self.weight = nn.Parameter(torch.empty(experts, in_features, out_features))
        bias_shape = (out_features,) if experts is None else (experts, 1, out_features)
        self.bias = nn.Parameter(torch.empty(bias_shape)) if bias else None
        bound = in_features**-0.5
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Map rows.

        Args:
            x: Float, ``[..., in_features]``; with experts ``[E, ..., in_features]``.

        Returns:
            The same shape with ``out_features``.
        """
        if self.experts is None:
            return functional.linear(x, self.weight, self.bias)
        rows = x.flatten(1, -2)  # [E, rows, in_features]
        y = torch.bmm(rows, self.weight) if self.bias is None else torch.baddbmm(self.bias, rows, self.weight)
        return y.reshape(*x.shape[:-1], self.out_features)


def map_pair(linear: nn.Module, left: Tensor, right: Tensor) -> Tensor:
    """``W [left ; right] + b``; in float32 on a CPU without laying the two side by side, where the map is a plain one.

    There products like widths that are powers of two, and copying costs a pass. In bfloat16 the sum of two rounded
    products would lose half as much again as the rest of a decoder does.

    Args:
        linear: A map of ``l + r`` features.
        left: ``[..., l]``.
        right: ``[..., r]``.
    """
    together = left.device.type != "cpu" or torch.is_autocast_enabled("cpu")
    if together or type(linear) is not Linear or linear.experts is not None:
        mapped: Tensor = linear(torch.cat((left, right), dim=-1))
        return mapped
    width = left.shape[-1]
    mapped = functional.linear(left, linear.weight[:, :width], linear.bias)
    return mapped + functional.linear(right, linear.weight[:, width:])
