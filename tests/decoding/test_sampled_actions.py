"""No sampled or most probable action is a masked one, whatever the logits, in both precisions of a network."""

import pytest
import torch

from polarvrp.decoding.rollout import _choose, entries_of
from polarvrp.decoding.sampling import Sampler

STEPS, NODES = 100_000, 21


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [0.0, 1.0, 10.0, 300.0])
def test_masked_actions_are_never_chosen(dtype: torch.dtype, scale: float) -> None:
    """Among 100,000 steps with one to 20 legal actions, the depot or the last node alone among them."""
    generator = torch.Generator().manual_seed(int(scale))
    logits = scale * torch.randn(STEPS // 50, 50, NODES, generator=generator)
    mask = torch.rand(logits.shape, generator=generator) < torch.rand(*logits.shape[:2], 1, generator=generator)
    only = torch.randint(NODES, logits.shape[:2], generator=generator)
    only[:20], only[20:40] = 0, NODES - 1
    mask[:40] = False
    mask.scatter_(2, only[..., None], True)
    log_probs = logits.masked_fill(~mask, -torch.inf).log_softmax(-1).to(dtype)
    for sampler in (Sampler(torch.Generator().manual_seed(1)), None):
        chosen = _choose(log_probs, sampler, greedy_last=sampler is not None)
        assert chosen.min() >= 0 and chosen.max() < NODES
        assert entries_of(mask, chosen).all()
        assert entries_of(log_probs, chosen).isfinite().all()


def test_the_smallest_and_largest_random_numbers_choose_legal_actions() -> None:
    """Where rounding could step over the ends of the row."""

    class Ends(Sampler):
        def uniform(self, like: torch.Tensor) -> torch.Tensor:
            ends = torch.tensor([0.0, 1.0 - 2**-24], dtype=like.dtype)
            return ends[torch.arange(like.shape[1]) % 2].expand(like.shape[:2])[..., None]

    mask = torch.zeros(NODES - 1, 2, NODES, dtype=torch.bool)
    for first in range(NODES - 1):
        mask[first, :, first : first + 2] = True
    log_probs = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf).log_softmax(-1)
    chosen = _choose(log_probs, Ends(torch.Generator()), greedy_last=False)
    assert chosen[:, 0].tolist() == list(range(NODES - 1))
    assert chosen[:, 1].tolist() == list(range(1, NODES))
