"""A training that was stopped or killed and started again equals one that ran through, bit for bit on a CPU."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from helpers.tiny_training import RUN, stop_after, tiny_spec, validation_sets
from polarvrp.study.specs import canonical, fingerprint
from polarvrp.training import trainer as trainer_module
from polarvrp.training.step import PendingStep
from polarvrp.training.trainer import TrainJob, train

SPEC = tiny_spec()

CURRICULUM = tiny_spec(
    refinement_ramp=0.3,
    stages=[
        {"name": "small", "num_customers": 6, "paradigm": "po", "epochs": 2, "batch_size": 6, "starts": 4},
        {"epochs": 2, "instances_per_epoch": 11, "refinement_start_epoch": 0, "learning_rate": 0.0005},
    ],
)


@pytest.fixture(scope="module")
def validation(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return validation_sets(tmp_path_factory.mktemp("validation"), "CVRP", "OVRPBLTW")


@pytest.fixture(autouse=True)
def _untracked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")


def job(folder: Path, validation: list[Path], spec: dict[str, Any] = SPEC, **changes: Any) -> TrainJob:
    output = folder / "weights.safetensors"
    return TrainJob(RUN, spec, folder / "state", validation, output, tracking=folder, **changes)


def train_whole(folder: Path, validation: list[Path], spec: dict[str, Any]) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "disabled")
        assert train(job(folder, validation, spec))
    return folder


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, validation: list[Path]) -> Path:
    return train_whole(tmp_path_factory.mktemp("uninterrupted"), validation, SPEC)


@pytest.fixture(scope="module")
def curriculum(tmp_path_factory: pytest.TempPathFactory, validation: list[Path]) -> Path:
    return train_whole(tmp_path_factory.mktemp("curriculum"), validation, CURRICULUM)


def timeless_history(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / "history.parquet").to_pylist()
    measured = ("seconds", "instances_per_second", "peak_memory")
    return [{key: value for key, value in row.items() if not key.startswith(measured)} for row in rows]


def require_equal(one: Path, other: Path) -> None:
    assert [row["epoch"] for row in timeless_history(one)] == [1, 2, 3, 4]
    assert timeless_history(one) == timeless_history(other)
    weights, expected = load_file(one / "weights.safetensors"), load_file(other / "weights.safetensors")
    assert weights.keys() == expected.keys()
    assert all((weights[name] == expected[name]).all() for name in weights)


@pytest.mark.resume
@pytest.mark.parametrize(
    ("spec", "whole", "steps", "stops"),
    # 12 steps, two a process: five times stopped with work left; 10 steps, three a process
    [(SPEC, "uninterrupted", 2, 5), (CURRICULUM, "curriculum", 3, 3)],
    ids=["one stage", "curriculum"],
)
def test_stopping_in_every_epoch_changes_nothing(
    tmp_path: Path,
    validation: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    spec: dict[str, Any],
    whole: str,
    steps: int,
    stops: int,
) -> None:
    expected = request.getfixturevalue(whole)

    stop_after(monkeypatch, steps)
    runs = 0
    while not train(job(tmp_path, validation, spec)):
        runs += 1
        assert runs < 20
    assert runs == stops
    require_equal(tmp_path, expected)


@pytest.mark.resume
@pytest.mark.parametrize(("seconds", "steps_left"), [(0.0, 7), (600.0, 9)])
def test_a_state_in_mid_epoch_saves_the_work_of_a_killed_process(
    tmp_path: Path,
    validation: list[Path],
    uninterrupted: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    steps_left: int,
) -> None:
    """Killed in the third step of its second epoch: with a state after each step, or after the first epoch alone."""

    class Killed(BaseException):
        pass

    steps = 0
    whole_step = trainer_module.TrainingStep.launch

    def launch(*arguments: Any) -> PendingStep:
        nonlocal steps
        steps += 1
        if steps == 6:
            raise Killed
        return whole_step(*arguments)

    monkeypatch.setattr(trainer_module, "SECONDS_BETWEEN_STATES", seconds)
    monkeypatch.setattr(trainer_module.TrainingStep, "launch", launch)
    with pytest.raises(Killed):
        train(job(tmp_path, validation))
    steps = 100
    assert train(job(tmp_path, validation))
    assert steps == 100 + steps_left
    require_equal(tmp_path, uninterrupted)


def test_the_first_stage_of_a_curriculum_is_the_training_of_its_values_alone(
    tmp_path: Path, validation: list[Path], curriculum: Path
) -> None:
    """And the next goes on with its weights: a step of next to no length leaves them where they are."""
    first = CURRICULUM["training"]["stages"][0]
    values = {key: value for key, value in first.items() if key != "name"}
    alone = tiny_spec(**values)
    output = tmp_path / "weights.safetensors"
    run = "polarnet-ple-po-n6-s0"
    assert train(TrainJob(run, alone, tmp_path / "state", validation, output, tracking=tmp_path))
    weights = load_file(output)
    handed_over = load_file(curriculum / "state" / fingerprint(CURRICULUM) / "stage-0.safetensors")
    assert all((weights[name] == handed_over[name]).all() for name in weights)

    still = {
        "epochs": 1,
        "instances_per_epoch": 64,
        "batch_size": 64,
        "learning_rate": 1e-9,
        "refinement_start_epoch": 0,
    }
    moved = train_whole(tmp_path / "still", validation, tiny_spec(stages=[first, still]))
    rows = timeless_history(moved)
    assert [(row["epoch"], row["stage"], row["refined_tours"] > 0) for row in rows] == [
        (1, 1, False),
        (2, 1, False),
        (3, 2, True),
    ]
    kept = load_file(moved / "weights.safetensors")
    assert max(abs(kept[name] - weights[name]).max() for name in weights) < 1e-7
    assert rows[2]["validation_cost"] == pytest.approx(rows[1]["validation_cost"], rel=1e-5)  # its own size all along


@pytest.mark.resume
def test_a_killed_process_group_resumes_and_each_epoch_counts_once(
    tmp_path: Path, validation: list[Path], uninterrupted: Path
) -> None:
    command = [sys.executable, "-m", "polarvrp", "train", RUN, "--spec", canonical(SPEC), "--workers", "2"]
    command += ["--state", str(tmp_path / "state"), "--output", str(tmp_path / "weights.safetensors")]
    command += ["--validation", *map(str, validation)]
    history = tmp_path / "state" / fingerprint(SPEC) / "history.jsonl"
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not history.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "weights.safetensors").exists()
    finished_epochs = len(history.read_text().splitlines())
    assert 1 <= finished_epochs < 4

    again = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "resumed at epoch" in again.stderr
    lines = [json.loads(line)["epoch"] for line in history.read_text().splitlines()]
    assert lines == [1, 2, 3, 4]
    require_equal(tmp_path, uninterrupted)


@pytest.mark.resume
def test_a_truncated_checkpoint_falls_back_to_the_one_before(
    tmp_path: Path, validation: list[Path], uninterrupted: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 7)
        assert not train(job(tmp_path, validation))
    checkpoints = sorted((tmp_path / "state" / fingerprint(SPEC)).glob("checkpoint-*"))
    assert len(checkpoints) == 2
    weights = checkpoints[-1] / "state.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    assert train(job(tmp_path, validation))
    assert "unreadable" in caplog.text
    require_equal(tmp_path, uninterrupted)


@pytest.mark.resume
def test_a_finished_training_rewrites_its_outputs_without_training(
    tmp_path: Path, validation: list[Path], uninterrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = job(uninterrupted, validation)
    elsewhere = TrainJob(RUN, SPEC, finished.state, validation, tmp_path / "weights.safetensors", tracking=tmp_path)
    monkeypatch.setattr(trainer_module.TrainingStep, "launch", lambda *_: pytest.fail("trained again"))
    told: list[int] = []

    class Told:
        def log_epoch(self, row: dict[str, Any]) -> None:
            told.append(row["epoch"])

        def finish(self) -> None:
            pass

    monkeypatch.setattr(trainer_module, "open_tracker", lambda *_: Told())
    assert train(elsewhere)
    require_equal(tmp_path, uninterrupted)
    assert told == [1, 2, 3, 4]  # the first process may have ended before its tracker did


@pytest.mark.resume
def test_the_same_result_with_one_and_two_workers(tmp_path: Path, validation: list[Path], uninterrupted: Path) -> None:
    assert train(job(tmp_path, validation, workers=2))
    require_equal(tmp_path, uninterrupted)
