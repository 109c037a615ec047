"""Normalisation of rewards by a running mean of their group of variants (RouteFinder's training)."""

import torch
from torch import Tensor

OLD_SHARE = 0.75
GROUPS = 8


class RewardNormalizer:
    """Divides costs by the exponential mean of their group's costs.

    Groups are the combinations of open routes, time windows and distance limits; instances with and without backhauls
    share one, as in the published code. The mean is ``0.75 old + 0.25 new``, updated before use; a group's first
    batch sets it, unless the group was absent from the very first batch: then it starts from 0.

    Attributes:
        means: Running mean of each group, empty before the first batch.
    """

    def __init__(self, means: list[float]) -> None:
        self.means = means

    def __call__(self, cost: Tensor, flags: Tensor) -> Tensor:
        """Update the means and normalise.

        Args:
            cost: Float, ``[B, S]``.
            flags: Constraint vectors, bool, ``[B, 6]``.

        Returns:
            Float, ``[B, S]``.
        """
        group = flags[:, 0] * 4 + flags[:, 1] * 2 + flags[:, 2]  # [B]
        members = torch.zeros(GROUPS, dtype=cost.dtype, device=cost.device).index_add(
            0, group, cost.new_ones(len(cost))
        )
        sums = torch.zeros_like(members).index_add(0, group, cost.mean(1))
        present = members > 0
        latest = sums / members.clamp(min=1)
        old = torch.tensor(self.means, dtype=cost.dtype, device=cost.device) if self.means else latest
        means = torch.where(present, OLD_SHARE * old + (1 - OLD_SHARE) * latest, old)
        self.means = means.tolist()
        return cost / means[group][:, None]
