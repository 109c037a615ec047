"""Normalisation of rewards by a running mean of their group of variants (RouteFinder's training)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from polarvrp.training.objectives import mean_of_legal

OLD_SHARE = 0.75
GROUPS = 8


class RewardNormalizer:
    """Normaliser of rewards: costs divided by the exponential mean of their group's costs.

    Groups are the combinations of open routes, time windows and distance limits; instances with and without backhauls
    share one, as in the published code. The mean is ``0.75 old + 0.25 new``, updated before use; a group's first
    batch sets it, unless the group was absent from the very first batch: then it starts from 0.

    Args:
        means: Running mean of each group, empty before the first batch.
        device: Where the costs are.
    """

    def __init__(self, means: Sequence[float], device: torch.device) -> None:
        # Not a number stands for "before the first batch", so that no step has to look at values.
        self._means = torch.tensor(means or [torch.nan] * GROUPS, device=device)

    @property
    def means(self) -> list[float]:
        """Running mean of each group, empty before the first batch."""
        means: list[float] = self._means.tolist()
        return [] if means[0] != means[0] else means

    def snapshot(self) -> Tensor:
        """Copy of the means, for ``restore``, ``[GROUPS]``."""
        return self._means.clone()

    def restore(self, means: Tensor) -> None:
        """Go back to earlier means."""
        self._means.copy_(means)

    def reward_statistics(self, cost: Tensor, flags: Tensor) -> Tensor:
        """Number of instances of each group and the sum of their mean costs; processes add theirs up.

        Args:
            cost: Float, ``[B, S]``.
            flags: Constraint vectors, bool, ``[B, 6]``.

        Returns:
            Float, ``[2, GROUPS]``.
        """
        member = _groups(flags)[:, None] == torch.arange(GROUPS, device=flags.device)  # [B, GROUPS]
        sums = torch.where(member, mean_of_legal(cost)[:, None], 0.0).sum(0)
        return torch.stack((member.sum(0).to(cost.dtype), sums))

    def __call__(self, cost: Tensor, flags: Tensor, statistics: Tensor) -> Tensor:
        """Update the means and normalise.

        Args:
            cost: Float, ``[B, S]``.
            flags: Constraint vectors, bool, ``[B, 6]``.
            statistics: Of the whole batch.

        Returns:
            Float, ``[B, S]``.
        """
        members, sums = statistics
        latest = sums / members.clamp(min=1)
        old = torch.where(self._means.isnan(), latest, self._means)
        self._means.copy_(torch.where(members > 0, OLD_SHARE * old + (1 - OLD_SHARE) * latest, old))
        return cost / self._means[_groups(flags)][:, None]


def _groups(flags: Tensor) -> Tensor:
    """Group of each instance, int64, ``[B]``."""
    return flags[:, 0] * 4 + flags[:, 1] * 2 + flags[:, 2]
