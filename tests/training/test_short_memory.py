"""Out of memory: smaller parts of the same batch, the same update, and a resumed training that remembers them."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.tiny_training import RUN, stop_after, tiny_spec, validation_sets
from polarvrp.decoding.parallel import ParallelEngine
from polarvrp.local_search.refinement import Refiner
from polarvrp.model.registry import build_policy
from polarvrp.study.specs import fingerprint, parse_train_spec
from polarvrp.training.checkpoints import read_newest
from polarvrp.training.optimizer import make_optimizer
from polarvrp.training.step import TrainingStep
from polarvrp.training.trainer import TrainJob, train

NO_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB."


def allow_instances(patch: pytest.MonkeyPatch, most: int, fault: str = NO_MEMORY) -> None:
    """A device on which a rollout of more instances finds no memory."""
    whole = ParallelEngine.rollout

    def rollout(self: ParallelEngine, policy: Any, embeddings: Tensor, *rest: Any, **options: Any) -> Any:
        if len(embeddings) > most:
            raise RuntimeError(fault)
        return whole(self, policy, embeddings, *rest, **options)

    patch.setattr(ParallelEngine, "rollout", rollout)


def outcome(paradigm: str, splits: int = 1) -> tuple[dict[str, float], Tensor, TrainingStep]:
    model, config = parse_train_spec(tiny_spec(paradigm=paradigm, learning_rate=1.0))
    policy = build_policy(model, 0)
    with Refiner(0) as refiner:
        # plain gradient descent: Adam's first step is as long for a gradient of next to nothing
        optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
        step = TrainingStep(policy, optimizer, config, False, refiner, splits=splits)
        for number in range(2):
            sums = step.run(0, 2, number, 7)
    numbers = torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])
    return {key: value for key, value in sums.items() if not key.startswith("seconds")}, numbers, step


@pytest.mark.parametrize("paradigm", ["rl", "po", "polar"])
def test_the_update_is_that_of_the_whole_batch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, paradigm: str
) -> None:
    sums, numbers, _ = outcome(paradigm)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        allow_instances(patch, 2)
        parts, parts_numbers, step = outcome(paradigm)
    assert step.splits == (2 if paradigm == "polar" else 4)  # refinement takes halves anyway
    assert len(caplog.messages) == (1 if paradigm == "polar" else 2)
    assert caplog.messages[0].startswith("out of memory: from here on 7 instances are taken in parts of at most 4")
    assert parts == pytest.approx(sums, rel=2e-5, abs=2e-5)  # terms of the loss cancel
    torch.testing.assert_close(parts_numbers, numbers, rtol=0, atol=5e-6)


def test_authors_rewards_are_normalised_by_the_whole_batch() -> None:
    """Running means of the groups of variants, over two steps."""

    def means(splits: int) -> list[float]:
        model, config = parse_train_spec(tiny_spec(paradigm="rl", normalize_rewards=True))
        policy = build_policy(model, 0)
        step = TrainingStep(
            policy, make_optimizer(config, policy, torch.device("cpu")), config, False, None, splits=splits
        )
        for number in range(2):
            step.run(0, 1, number, 7)
        return step.reward_means

    assert means(3) == pytest.approx(means(1), rel=1e-4)
    assert len(means(1)) == 8


def test_other_errors_and_single_instances_are_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    allow_instances(monkeypatch, 2, "shapes do not match")
    with pytest.raises(RuntimeError, match="shapes"):
        outcome("po")
    monkeypatch.undo()
    allow_instances(monkeypatch, 0)
    with pytest.raises(RuntimeError, match="out of memory"):
        outcome("po")


def test_a_resumed_training_keeps_the_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    spec = tiny_spec(paradigm="po", epochs=2)
    job = TrainJob(
        RUN.replace("polar-n", "po-n"),
        spec,
        tmp_path / "state",
        validation_sets(tmp_path, "CVRP"),
        tmp_path / "weights.safetensors",
        tracking=tmp_path,
    )
    with monkeypatch.context() as patch:
        allow_instances(patch, 2)
        stop_after(patch, 4)
        assert not train(job)
    position, _ = read_newest(tmp_path / "state" / fingerprint(spec))
    assert position.splits == 2
    with monkeypatch.context() as patch:
        patch.setattr("polarvrp.training.step.logger", None)  # nothing has to be said again
        allow_instances(patch, 2)
        assert train(job)
