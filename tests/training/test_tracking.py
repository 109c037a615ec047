"""Tracking: every epoch once, whatever was interrupted; nothing depends on W&B; offline unless told otherwise."""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.wandb_files import offline_runs
from polarvrp.cli.main import main
from polarvrp.errors import ConfigError, DataError
from polarvrp.files import write_text
from polarvrp.study.specs import fingerprint
from polarvrp.training import tracking, wandb_runs
from polarvrp.training.locks import file_lock
from polarvrp.training.recorded import read_training, read_unfinished, write_description
from polarvrp.training.tracking import (
    GuardedTracker,
    NullTracker,
    OfflineTracker,
    OnlineTracker,
    Tracker,
    catch_up,
    open_tracker,
    replay,
)
from polarvrp.training.wandb_runs import Description

RUN = "polarnet-ple-polar-n10-s0"
TRAINING = {"paradigm": "polar", "num_customers": 10, "epochs": 3}
SPEC = {"model": {"backbone": "polarnet"}, "training": TRAINING}
DESCRIPTION = Description(run=RUN, spec=SPEC, scale="quick", facts={"parameters": 12345, "device": "a card"})
ROWS = [{"epoch": epoch, "loss": 1.0 / epoch, "greedy_cost": None, "seconds": 2.0 * epoch} for epoch in (1, 2, 3)]


class FakeRun:
    """Keeps what would be sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.finished = False

    def log(self, values: dict[str, Any], step: int) -> None:
        assert step == values["epoch"]
        self.sent.append(values)

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeRun]:
    """Runs that were opened, by id; W&B itself is not called."""
    runs: dict[str, FakeRun] = {}

    def start(identity: str, *_: Any) -> FakeRun:
        return runs.setdefault(identity, FakeRun())

    monkeypatch.setattr(tracking, "start_training_run", start)
    return runs


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)


def epochs(run: FakeRun) -> list[int]:
    return [row["epoch"] for row in run.sent]


def test_offline_is_the_default(tmp_path: Path) -> None:
    tracker = open_tracker(DESCRIPTION, tmp_path, tmp_path / "state")
    assert isinstance(tracker, GuardedTracker) and isinstance(tracker.inner, OfflineTracker)


def test_disabled_tracks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    tracker = open_tracker(DESCRIPTION, tmp_path, tmp_path / "state")
    assert isinstance(tracker, NullTracker)
    tracker.log_epoch(ROWS[0])
    tracker.finish()
    assert list(tmp_path.iterdir()) == []


def test_unknown_mode_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "onlin")
    with pytest.raises(ConfigError, match="WANDB_MODE must be offline, online or disabled, got 'onlin'"):
        open_tracker(DESCRIPTION, tmp_path, tmp_path / "state")


def test_without_wandb_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with caplog.at_level("INFO"):
        assert isinstance(open_tracker(DESCRIPTION, tmp_path, tmp_path / "state"), NullTracker)
    assert [record.message for record in caplog.records] == [
        f"{RUN}: wandb is not installed, the training is not tracked"
    ]


def test_missing_key_degrades_to_offline_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setattr(tracking, "has_key", lambda: False)
    with caplog.at_level("INFO"):
        tracker = open_tracker(DESCRIPTION, tmp_path, tmp_path / "state")
    assert isinstance(tracker, GuardedTracker) and isinstance(tracker.inner, OfflineTracker)
    assert len(caplog.records) == 1 and "no W&B key, tracking offline" in caplog.text


def test_key_is_never_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", "from polarvrp.training.tracking import has_key; print(has_key())"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip().endswith("False")


def test_offline_run_is_written_once_and_only_when_complete(tmp_path: Path, started: dict[str, FakeRun]) -> None:
    def track(rows: list[dict[str, Any]]) -> None:
        tracker = OfflineTracker(DESCRIPTION, tmp_path)
        for row in rows:
            tracker.log_epoch(row)
        tracker.finish()

    track(ROWS[:2])  # interrupted after two epochs
    assert started == {}
    track(ROWS)  # resumed: earlier epochs are told again
    track([])  # outputs written again from a finished state
    track(ROWS)
    assert list(started) == [RUN]
    assert epochs(started[RUN]) == [1, 2, 3] and started[RUN].finished
    assert "greedy_cost" not in started[RUN].sent[0]


def test_training_in_stages_is_complete_after_the_last(tmp_path: Path, started: dict[str, FakeRun]) -> None:
    stages = [{"name": "base"}, {"name": "mixture", "adapters": "mixture"}]
    spec = {**SPEC, "training": {**TRAINING, "stages": stages}}
    for count in (3, 6):
        tracker = OfflineTracker(Description(run=RUN, spec=spec), tmp_path)
        for epoch in range(1, count + 1):
            tracker.log_epoch({"epoch": epoch, "seconds": 1.0})
        tracker.finish()
        assert list(started) == ([RUN] if count == 6 else [])
    assert epochs(started[RUN]) == [1, 2, 3, 4, 5, 6]


def test_second_training_of_a_name_gets_a_suffix(tmp_path: Path, started: dict[str, FakeRun]) -> None:
    again = [{**row, "loss": 2.0} for row in ROWS]
    assert replay(DESCRIPTION, ROWS, tmp_path, "offline") == RUN
    assert replay(DESCRIPTION, again, tmp_path, "offline") == f"{RUN}-r2"
    assert replay(DESCRIPTION, ROWS, tmp_path, "offline") is None
    assert replay(DESCRIPTION, ROWS, tmp_path, "online") == RUN  # an offline run is no upload
    assert set(started) == {RUN, f"{RUN}-r2"}


def test_failed_replay_is_closed_and_repeated(tmp_path: Path, started: dict[str, FakeRun]) -> None:
    with pytest.raises(KeyError):
        replay(DESCRIPTION, [ROWS[0], {"loss": 1.0}], tmp_path, "online")
    assert started[RUN].finished
    assert replay(DESCRIPTION, ROWS, tmp_path, "online") == RUN


def test_online_training_resumes_its_run_and_sends_each_epoch_once(tmp_path: Path, started: dict[str, FakeRun]) -> None:
    state = tmp_path / "state"
    state.mkdir()
    first = OnlineTracker(DESCRIPTION, tmp_path, state)
    first.log_epoch(ROWS[0])
    first.log_epoch(ROWS[1])  # killed here, without finish
    second = OnlineTracker(DESCRIPTION, tmp_path, state)
    for row in ROWS:
        second.log_epoch(row)
    second.finish()
    assert list(started) == [RUN] and epochs(started[RUN]) == [1, 2, 3]
    assert replay(DESCRIPTION, ROWS, tmp_path, "online") is None  # nothing left to upload

    (state / "wandb.json").unlink()  # the state was deleted: a real retrain
    third = OnlineTracker(DESCRIPTION, tmp_path, state)
    third.log_epoch(ROWS[0])
    assert epochs(started[f"{RUN}-r2"]) == [1]


def test_a_training_of_other_settings_leaves_the_unfinished_run_alone(
    tmp_path: Path, started: dict[str, FakeRun]
) -> None:
    for name in ("before", "changed"):
        (tmp_path / name).mkdir()
        OnlineTracker(DESCRIPTION, tmp_path, tmp_path / name).log_epoch(ROWS[0])
    assert {name: epochs(run) for name, run in started.items()} == {RUN: [1], f"{RUN}-r2": [1]}


def test_real_offline_run_holds_the_history_once(tmp_path: Path) -> None:
    """A process of its own, without a terminal: wandb must neither ask nor hang."""
    code = (
        "import json, sys; from pathlib import Path; from polarvrp.training.tracking import open_tracker;"
        "from polarvrp.training.wandb_runs import Description;"
        "description, rows, folder = json.loads(sys.argv[1]);"
        "tracker = open_tracker(Description(**description), Path(folder), Path(folder));"
        "[tracker.log_epoch(row) for row in rows]; tracker.finish()"
    )
    command = [sys.executable, "-c", code, json.dumps([asdict(DESCRIPTION), ROWS, str(tmp_path)])]
    for _ in range(2):
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=True)
    ((identity, written),) = offline_runs(tmp_path).items()
    assert [(row["epoch"], row["loss"]) for row in written.history] == [(row["epoch"], row["loss"]) for row in ROWS]
    assert [row["trained_seconds"] for row in written.history] == [2.0, 6.0, 12.0]
    run = written.run
    assert (identity, run.run_id, run.display_name, run.project) == (RUN, RUN, RUN, "polarvrp")
    assert (run.run_group, run.job_type) == ("quick", "train")
    assert list(run.tags) == ["polarnet", "ple", "polar", "n10", "default", "quick"]
    config = written.config
    assert (config["backbone"], config["encoder"], config["paradigm"], config["scale"]) == (
        *RUN.split("-")[:3],
        "quick",
    )
    assert (config["parameters"], config["device"]) == (12345, "a card")
    assert config["architecture"]["layers"] == 6 and config["model"]["layers"] is None
    assert config["training"]["epochs"] == 3 and config["training"]["refined_tours"] == 1


def write_model(results: Path, run: str = RUN) -> Path:
    folder = results / "models" / run
    folder.mkdir(parents=True)
    schema = pa.schema(
        {"epoch": pa.int32(), "loss": pa.float64(), "greedy_cost": pa.float64(), "seconds": pa.float64()}
    )
    table = pa.Table.from_pylist(ROWS, schema.with_metadata({"polarvrp": json.dumps({"spec": SPEC})}))
    pq.write_table(table, folder / "history.parquet")
    return folder


def test_sync_uploads_each_history_once(
    tmp_path: Path, started: dict[str, FakeRun], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_model(tmp_path)
    monkeypatch.setattr(wandb_runs, "login_fault", lambda: None)
    assert main(["sync-wandb", "--results", str(tmp_path)]) == 0
    assert main(["sync-wandb", RUN, "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{RUN}: uploaded as {RUN}", f"{RUN}: already uploaded"]
    assert epochs(started[RUN]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "key", "message"),
    [
        ([RUN], False, "W&B cannot be used online: Failed to reach W&B; check the network and the key"),
        (["polarnet-ple-polar-n20-s0"], True, "nor did a training of polarnet-ple-polar-n20-s0 end an epoch yet"),
        (["nonsense"], True, "'nonsense' names no run"),
    ],
)
def test_sync_says_what_is_missing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    key: bool,
    message: str,
) -> None:
    write_model(tmp_path)
    monkeypatch.setattr(wandb_runs, "login_fault", lambda: None if key else "Failed to reach W&B")
    assert main(["sync-wandb", *arguments, "--results", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1


def test_sync_without_models_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sync-wandb", "--results", str(tmp_path)]) == 2
    assert "holds no trained run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "root", "scale"), [([], "results/laptop", "laptop"), (["--scale", "paper"], "results", "paper")]
)
def test_sync_takes_the_results_of_a_scale(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    root: str,
    scale: str,
) -> None:
    """That of the configuration, if none is named."""
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "config" / "config.yaml", "scale: laptop\n")
    assert main(["sync-wandb", *words]) == 2
    advice = f"make some with: snakemake --cores all train --config scale={scale}"
    assert f"{root} holds no trained run; {advice}\n" in capsys.readouterr().err


def begin_training(state: Path, rows: list[dict[str, Any]]) -> None:
    state.mkdir(parents=True, exist_ok=True)
    write_description(state, DESCRIPTION)
    (state / "history.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_unfinished_training_is_sent_and_goes_on_with_its_run(
    tmp_path: Path, started: dict[str, FakeRun], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wandb_runs, "login_fault", lambda: None)
    state = tmp_path / "checkpoints" / RUN / fingerprint(SPEC)
    for rows in (ROWS[:1], ROWS[:2], ROWS[:2]):
        begin_training(state, rows)
        assert main(["sync-wandb", "--results", str(tmp_path)]) == 0
    write_model(tmp_path)
    assert main(["sync-wandb", RUN, "--results", str(tmp_path)]) == 0
    assert main(["sync-wandb", RUN, "--results", str(tmp_path)]) == 0
    uploaded, already = f"{RUN}: uploaded as {RUN}", f"{RUN}: already uploaded"
    assert capsys.readouterr().out.splitlines() == [uploaded, uploaded, already, uploaded, already]
    assert list(started) == [RUN] and epochs(started[RUN]) == [1, 2, 3]


def test_training_that_sends_its_epochs_itself_is_left_alone(tmp_path: Path, started: dict[str, FakeRun]) -> None:
    OnlineTracker(DESCRIPTION, tmp_path, tmp_path)
    with file_lock(tmp_path / "lock", "the training"):
        assert catch_up(DESCRIPTION, ROWS[:2], tmp_path, tmp_path) is None
    assert epochs(started[RUN]) == []
    assert catch_up(DESCRIPTION, ROWS[:2], tmp_path, tmp_path) == RUN
    assert epochs(started[RUN]) == [1, 2]


def test_unfinished_training_becomes_an_offline_run_of_its_own(
    tmp_path: Path, started: dict[str, FakeRun], capsys: pytest.CaptureFixture[str]
) -> None:
    begin_training(tmp_path / "checkpoints" / RUN / fingerprint(SPEC), ROWS[:2])
    for _ in range(2):
        assert main(["sync-wandb", "--offline", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{RUN}: written as {RUN}-epoch2", f"{RUN}: already written"]
    tracker = OfflineTracker(DESCRIPTION, tmp_path)
    for row in ROWS:
        tracker.log_epoch(row)
    tracker.finish()
    assert {name: epochs(run) for name, run in started.items()} == {f"{RUN}-epoch2": [1, 2], RUN: [1, 2, 3]}


def test_state_of_an_earlier_version_says_so(tmp_path: Path) -> None:
    begin_training(tmp_path, ROWS)
    assert read_unfinished(tmp_path) == (DESCRIPTION, ROWS)
    (tmp_path / "description.json").unlink()
    with pytest.raises(DataError, match="does not say what it is"):
        read_unfinished(tmp_path)


def test_truncated_history_is_refused(tmp_path: Path) -> None:
    path = write_model(tmp_path) / "history.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="is no complete Parquet file"):
        read_training(path.parent)


class BrokenRun(FakeRun):
    """A connection that is gone."""

    def log(self, values: dict[str, Any], step: int) -> None:
        raise ConnectionError("gone\nand more")

    def finish(self) -> None:
        raise ConnectionError("gone")


@pytest.mark.parametrize("mode", ["offline", "online"])
@pytest.mark.parametrize("broken", ["start", "run", "key", "ledger"])
def test_a_failure_of_wandb_never_fails_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: str, broken: str
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no such project")

    monkeypatch.setenv("WANDB_MODE", mode)
    monkeypatch.setattr(tracking, "has_key", fail if broken == "key" else lambda: True)
    monkeypatch.setattr(tracking, "start_training_run", (lambda *_: BrokenRun()) if broken == "run" else fail)
    if broken == "ledger":
        ledger = tmp_path / "wandb" / "ledger" / mode / f"{RUN}.json"
        ledger.parent.mkdir(parents=True)
        ledger.write_text("{")
    tracker = open_tracker(DESCRIPTION, tmp_path, tmp_path / "state")
    for row in ROWS:
        tracker.log_epoch(row)
    tracker.finish()
    lines = [record.message for record in caplog.records if "W&B" in record.message]
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert lines[0].startswith(f"{RUN}: W&B failed (") and "polarvrp sync-wandb" in lines[0]


def test_an_interrupt_is_no_failure_of_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(tracking, "start_training_run", interrupt)
    tracker = open_tracker(DESCRIPTION, tmp_path, tmp_path / "state")
    for row in ROWS:
        tracker.log_epoch(row)
    with pytest.raises(KeyboardInterrupt):
        tracker.finish()


@pytest.mark.parametrize(
    ("mode", "kind"), [("", OfflineTracker), ("dryrun", OfflineTracker), ("disabled", NullTracker)]
)
def test_words_of_older_versions_and_nothing_are_modes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, kind: type[Tracker]
) -> None:
    monkeypatch.setenv("WANDB_MODE", mode)
    tracker = open_tracker(DESCRIPTION, tmp_path, tmp_path)
    assert isinstance(tracker.inner if isinstance(tracker, GuardedTracker) else tracker, kind)


@pytest.mark.parametrize("mode", ["run", " ONLINE ", "Run"])
def test_the_older_word_for_online_is_one_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    monkeypatch.setenv("WANDB_MODE", mode)
    monkeypatch.setattr(tracking, "has_key", lambda: False)
    with caplog.at_level("INFO"):
        open_tracker(DESCRIPTION, tmp_path, tmp_path)
    assert "no W&B key, tracking offline" in caplog.text
