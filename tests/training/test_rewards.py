"""Normalisation of rewards against a plain loop over groups."""

import pytest
import torch

from polarvrp.training.rewards import RewardNormalizer


def normalizer_of(means: list[float]) -> RewardNormalizer:
    return RewardNormalizer(means, torch.device("cpu"))


def normalized_by(normalizer: RewardNormalizer, cost: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
    return normalizer(cost, flags, normalizer.reward_statistics(cost, flags))


def test_running_means_follow_their_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    normalizer = normalizer_of([])
    assert normalizer.means == []
    means: dict[tuple[bool, ...], float] | None = None
    for _ in range(4):
        cost = torch.rand(6, 5, generator=generator, dtype=torch.float64) + 1
        flags = torch.rand(6, 6, generator=generator) < 0.5
        groups = [tuple(row[:3]) for row in flags.tolist()]
        latest = {
            group: sum(float(cost[i].mean()) for i in range(6) if groups[i] == group) / groups.count(group)
            for group in set(groups)
        }
        if means is None:
            means = dict(latest)
        else:
            for group, value in latest.items():
                means[group] = 0.75 * means.get(group, 0.0) + 0.25 * value
        normalized = normalized_by(normalizer, cost, flags)
        for i, group in enumerate(groups):
            assert normalized[i].tolist() == pytest.approx((cost[i] / means[group]).tolist())
    again = normalizer_of(normalizer.means)
    assert torch.equal(normalized_by(again, cost, flags), normalized_by(normalizer, cost, flags))


def test_backhauls_share_the_group_of_their_variant() -> None:
    flags = torch.zeros(2, 6, dtype=torch.bool)
    flags[1, 3] = True
    cost = torch.tensor([[1.0, 1.0], [3.0, 3.0]])
    assert normalized_by(normalizer_of([]), cost, flags).tolist() == [[0.5, 0.5], [1.5, 1.5]]


def test_tallies_of_shares_add_up_to_that_of_the_batch() -> None:
    generator = torch.Generator().manual_seed(1)
    cost = torch.rand(6, 4, generator=generator, dtype=torch.float64)
    flags = torch.rand(6, 6, generator=generator) < 0.5
    normalizer = normalizer_of([])
    shares = [normalizer.reward_statistics(cost[part], flags[part]) for part in (slice(0, 2), slice(2, 6))]
    torch.testing.assert_close(sum(shares), normalizer.reward_statistics(cost, flags))
