"""Normalisation of rewards by a running mean of their group of variants (RouteFinder's training)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

OLD_SHARE = 0.75
GROUPS = 8


class RewardNormalizer:
    """Divides costs by the exponential mean of their group's costs.

    Groups are the combinations of open routes, time windows and distance limits; instances with and without backhauls
    share one, as in the published code. The mean is ``0.75 old + 0.25 new``, updated before use; a group's first
    batch sets it, unless the group was absent from the very first batch: then it starts from 0.

    Args:
        means: Running mean of each group, empty before the first batch.
        device: Where the costs are.
        add_up: Adds a tensor up, in place, over the processes that share a batch.
    """

    def __init__(self, means: Sequence[float], device: torch.device, add_up: Callable[[Tensor], None]) -> None:
        # Not a number stands for "before the first batch", so that no step has to look at values.
        self._means = torch.tensor(means or [torch.nan] * GROUPS, device=device)
        self._add_up = add_up

    @property
    def means(self) -> list[float]:
        """Running mean of each group, empty before the first batch."""
        means: list[float] = self._means.tolist()
        return [] if means[0] != means[0] else means

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
        self._add_up(members)
        self._add_up(sums)
        latest = sums / members.clamp(min=1)
        old = torch.where(self._means.isnan(), latest, self._means)
        self._means.copy_(torch.where(members > 0, OLD_SHARE * old + (1 - OLD_SHARE) * latest, old))
        return cost / self._means[group][:, None]
