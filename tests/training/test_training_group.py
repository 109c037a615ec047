"""Two processes that share a training get what one gets, up to rounding."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from torch import distributed

from helpers.tiny_training import RUN, tiny_spec, validation_sets
from polarvrp.cli.main import main
from polarvrp.config.model import ModelConfig
from polarvrp.config.training import TrainConfig
from polarvrp.decoding.graphs import CaptureError
from polarvrp.errors import ConfigError, EngineError
from polarvrp.local_search.refinement import Refiner
from polarvrp.model.registry import build_policy
from polarvrp.study.layout import Layout
from polarvrp.study.specs import canonical, parse_train_spec
from polarvrp.training.group import Group
from polarvrp.training.optimizer import make_optimizer
from polarvrp.training.plan import Plan
from polarvrp.training.stages import StageNetworks
from polarvrp.training.step import TrainingStep
from polarvrp.training.trainer import Trainer, TrainJob

SPEC = tiny_spec(
    epochs=2,
    instances_per_epoch=15,
    batch_size=6,
    learning_rate=0.0003,
    milestones=[],
    starts=5,
    refinement_start_epoch=0,
    refinement_ramp=0.2,
)


def words(folder: Path, validation: Path) -> list[str]:
    """Of the command, whose outputs go into a folder."""
    outputs = ["--state", str(folder / "state"), "--output", str(folder / "weights.safetensors")]
    return ["train", RUN, "--spec", canonical(SPEC), "--workers", "1", "--validation", str(validation), *outputs]


def test_two_processes_equal_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    one, two = tmp_path / "one", tmp_path / "two"
    (validation,) = validation_sets(tmp_path, "OVRPBLTW")
    assert main(words(one, validation)) == 0
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launcher, "-m", "polarvrp", *words(two, validation)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    for mine, theirs in zip(
        *(pq.read_table(folder / "history.parquet").to_pylist() for folder in (one, two)), strict=True
    ):
        for key in (
            "loss",
            "sampled_cost",
            "greedy_cost",
            "best_cost",
            "refined_tours",
            "refinement_weight",
            "validation_cost",
        ):
            assert theirs[key] == pytest.approx(mine[key], rel=1e-4), key
    weights, expected = load_file(two / "weights.safetensors"), load_file(one / "weights.safetensors")
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-5)


def test_a_last_batch_too_small_for_all_processes_is_refused_at_once(tmp_path: Path) -> None:
    """Of any stage; at the end of an epoch its work would be lost, again and again."""
    spec = tiny_spec(stages=[{"instances_per_epoch": 12}, {}])  # batches of four, the very last one of two
    model, config = parse_train_spec(spec)
    state, output = tmp_path / "state", tmp_path / "weights.safetensors"
    networks = StageNetworks(model, config, state, torch.device("cpu"), Layout())
    job = TrainJob(RUN, spec, state, [], output, tracking=tmp_path)
    message = "a batch of 2 instances cannot be shared by 3 processes; start fewer"
    with Refiner(0) as refiner, pytest.raises(ConfigError, match=message):
        Trainer(job, networks, config, state, refiner, Group(0, 3))
    assert not state.exists()


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Phases that cannot be captured, once each, in one of two processes, the other of which adds nothing."""
    names: list[str] = []
    run = Plan.run

    def refusing(self: Plan, phase: str, name: str, function: Callable[[], None]) -> None:
        if name in names:
            names.remove(name)
            raise CaptureError(f"phase {name} cannot be captured: it waits")
        run(self, phase, name, function)

    monkeypatch.setattr(Plan, "run", refusing)
    monkeypatch.setattr(distributed, "all_reduce", lambda tensor: None)
    return names


def step_of_two(paradigm: str) -> TrainingStep:
    config = TrainConfig(paradigm=paradigm, num_customers=4, batch_size=4, normalize_rewards=paradigm == "rl")
    policy = build_policy(ModelConfig(width=32, heads=2, layers=1, feedforward_width=32), 0)
    optimizer = make_optimizer(config, policy, torch.device("cpu"))
    return TrainingStep(policy, optimizer, config, False, None, group=Group(0, 2))


@pytest.mark.parametrize(("paradigm", "phase"), [("po", "generate"), ("po", "flatten"), ("rl", "decode 0")])
def test_a_step_that_cannot_be_captured_is_made_again_before_processes_add_anything_up(
    paradigm: str, phase: str, refused: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    step = step_of_two(paradigm)
    assert step.run(0, 1, 0, 4)["instances"] == 2
    refused.append(phase)
    with caplog.at_level("WARNING"):
        assert step.run(0, 1, 1, 4)["instances"] == 2
    told = f"phase {phase} cannot be captured: it waits; engine parallel is used from here on"
    assert [record.getMessage() for record in caplog.records] == [told]


@pytest.mark.parametrize(("paradigm", "phase"), [("po", "update"), ("rl", "loss 0"), ("rl", "flatten")])
def test_a_step_that_cannot_be_captured_ends_the_training_once_processes_have_added_up(
    paradigm: str, phase: str, refused: list[str]
) -> None:
    """Made again, its first sum would meet the next one of the other process."""
    step = step_of_two(paradigm)
    refused.append(phase)
    message = f"^phase {phase} cannot be captured: it waits, and other processes have gone on; use engine parallel$"
    with pytest.raises(EngineError, match=message):
        step.run(0, 1, 0, 4)
