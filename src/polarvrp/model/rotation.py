"""Rotary position embedding of planar coordinates: no parameters, scores see differences of coordinates only.

Half of a head's features carry x, half y. Each half holds pairs of features; pair j is turned by the angle
``2π · coordinate · 10000^(-j / number of pairs)``, so that the fastest pair makes one full turn over the unit square.

Shape legend: B instances, N nodes, p prompt rows, T = N + p rows, D features of a head.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from polarvrp.model.linear import accumulation_dtype

BASE = 10000.0


@dataclass(frozen=True, slots=True)
class Rotation:
    """Tables of one batch; rows beyond the nodes are not turned.

    Attributes:
        cosine: ``[B, T, D]``.
        sine: ``[B, T, D]``.
        pairwise: Whether both features of a pair have one angle.
    """

    cosine: Tensor
    sine: Tensor
    pairwise: bool = False

    def first(self, num_rows: int) -> "Rotation":
        """Tables of the first rows."""
        return replace(self, cosine=self.cosine[:, :num_rows], sine=self.sine[:, :num_rows])


def rotation_of(locs: Tensor, head_width: int, form: str, num_fixed_rows: int) -> Rotation:
    """Tables for nodes at ``locs``, followed by rows that stay as they are.

    Args:
        locs: Coordinates in the unit square, ``[B, N, 2]``.
        head_width: D, a multiple of 4.
        form: ``proper``; or ``as_released``, where the angles of a half are laid out block after block while
            neighbours form pairs, so that both features of a pair get different angles: not a rotation, kept for
            comparison with the released code.
        num_fixed_rows: p.
    """
    num_pairs = head_width // 4
    frequencies = [2 * math.pi * BASE ** (-pair / num_pairs) for pair in range(num_pairs)]
    # Numbers, not a tensor of them: a copy to the device would forbid capturing this as a CUDA graph.
    angles = torch.stack([locs * frequency for frequency in frequencies], dim=-1)  # [B, N, 2, D / 4]
    angles = angles.repeat_interleave(2, dim=-1) if form == "proper" else angles.repeat(1, 1, 1, 2)
    angles = functional.pad(angles.flatten(-2), (0, 0, 0, num_fixed_rows))  # [B, T, D]
    return Rotation(angles.cos(), angles.sin(), pairwise=form == "proper")


def rotate(features: Tensor, rotation: Rotation) -> Tensor:
    """Turn queries and keys.

    Args:
        features: ``[..., B, T, any, heads, D]``.
        rotation: Tables of the batch.

    Returns:
        The same shape and dtype.
    """
    wide = features.to(accumulation_dtype(features.dtype))
    if rotation.pairwise and wide.device.type == "cpu":
        # Pairs as complex numbers: one pass instead of four.
        turn = torch.complex(rotation.cosine[..., 0::2], rotation.sine[..., 0::2])[..., None, None, :]
        pairs = torch.view_as_complex(wide.reshape(*wide.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turn).flatten(-2).to(features.dtype)
    turned = torch.stack((-wide[..., 1::2], wide[..., 0::2]), dim=-1).flatten(-2)
    cosine, sine = rotation.cosine[..., None, None, :], rotation.sine[..., None, None, :]  # [B, T, 1, 1, D]
    return (wide * cosine + turned * sine).to(features.dtype)
