"""Two processes that share a training get what one gets, up to rounding."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from helpers.tiny_training import RUN, tiny_spec, validation_sets
from polarvrp.cli.main import main
from polarvrp.study.specs import canonical

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
