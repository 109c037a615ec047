"""The eight symmetries of the unit square, under which every instance keeps its costs.

Shape legend: B instances, N nodes, A symmetries.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from polarvrp.problem.instances import Instances

NUM_SYMMETRIES = 8
"""Read where nothing heavy may be loaded, which is why functions load torch themselves."""


def apply_symmetry(locs: Tensor, index: int) -> Tensor:
    """Coordinates under one symmetry of the unit square.

    Args:
        locs: Float, ``[..., 2]``, in the unit square.
        index: 0 (x, y), 1 (1-x, y), 2 (x, 1-y), 3 (1-x, 1-y), 4 (y, x), 5 (1-y, x), 6 (y, 1-x), 7 (1-y, 1-x).

    Returns:
        The same shape and type.
    """
    import torch

    if not 0 <= index < NUM_SYMMETRIES:
        raise ValueError(f"symmetries are 0 to {NUM_SYMMETRIES - 1}, got {index}")
    first, second = locs.unbind(dim=-1)
    if index >= 4:
        first, second = second, first
    if index % 2:
        first = 1.0 - first
    if index // 2 % 2:
        second = 1.0 - second
    return torch.stack((first, second), dim=-1)


def augment(instances: Instances[Tensor], count: int = NUM_SYMMETRIES) -> Instances[Tensor]:
    """Copies of a batch under the first ``count`` symmetries.

    Args:
        instances: B instances as tensors.
        count: A, at most ``NUM_SYMMETRIES``.

    Returns:
        A*B instances; number ``a * B + b`` is instance ``b`` under symmetry ``a``, so the first B are the originals.
    """
    import torch

    locs = torch.cat([apply_symmetry(instances.locs, index) for index in range(count)])  # [A*B, N, 2]
    copies = torch.arange(len(instances), device=locs.device).repeat(count)  # [A*B]
    return dataclasses.replace(instances[copies], locs=locs)
