"""Some 100,000 sampled actions under the masks of all variants; ``benchmarks/masks.py`` samples as many as wanted."""

from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from torch import Tensor

from helpers.benchmark_scripts import loaded_script
from polarvrp.decoding import rollout
from polarvrp.problem.variants import VARIANTS

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def masks() -> Iterator[ModuleType]:
    with loaded_script("masks") as module:
        yield module


@pytest.mark.parametrize("num_depots", [1, 3])
@pytest.mark.parametrize("bfloat16", [False, True], ids=["float32", "bfloat16"])
def test_masked_actions_are_never_sampled(masks: ModuleType, num_depots: int, bfloat16: bool) -> None:
    count = masks.sample(num_depots, bfloat16, 500, 6, 256, CPU, 0)
    assert set(count.decisions) == {name for name, variant in VARIANTS.items() if variant.num_depots == num_depots}
    assert min(count.decisions.values()) >= 500 and sum(count.decisions.values()) > 20_000
    assert (count.masked, count.not_finite, count.broken) == (0, 0, 0)
    assert count.skipped < count.tours / 10 and count.checked > 0


def test_an_action_that_ignores_the_mask_is_counted(masks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    choose, once = rollout._choose, iter([True])

    def careless(log_probs: Tensor, *others: object) -> Tensor:
        action = choose(log_probs, *others)  # type: ignore[arg-type]
        if next(once, False):
            action[0, 0] = log_probs[0, 0].argmin()
        return action

    monkeypatch.setattr(rollout, "_choose", careless)
    count = masks.sample(1, False, 1, 6, 96, CPU, 0)
    assert (count.masked, count.not_finite) == (1, 1)
