"""A training goes on on another machine from an exported state; damaged, foreign and older states are refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from polarvrp.cli.main import main
from polarvrp.errors import DataError
from polarvrp.study import canonical, fingerprint
from polarvrp.training import trainer as trainer_module
from polarvrp.training.checkpoints import CheckpointStore, Position
from polarvrp.training.locks import file_lock
from polarvrp.training.portable import LARGEST_FILE, LARGEST_STATE, export_state, import_state, write_specification
from tiny_training import RUN, tiny_spec

SPEC = tiny_spec(refinement_start_epoch=3)
STEPS_PER_EPOCH = 6


@pytest.fixture(scope="module")
def validation(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("validation") / "VRPTW-n8.npz"
    words = ["--variant", "VRPTW", "--num-customers", "8", "--instances", "2", "--seed", "4321"]
    assert main(["generate", *words, "--output", str(path)]) == 0
    return str(path)


@pytest.fixture(autouse=True)
def _untracked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")


def train(machine: Path, validation: str, steps: int | None = None) -> int:
    """Train on a machine, as long as so many steps or to the end; the command's exit code."""

    class StopAfter(trainer_module.StopRequest):
        seen = 0

        @property
        def requested(self) -> bool:
            self.seen += 1
            return steps is not None and self.seen > steps

    command = ["train", RUN, "--spec", canonical(SPEC), "--workers", "1", "--validation", validation]
    command += ["--state", str(machine / "state"), "--output", str(machine / "model" / "weights.safetensors")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_module, "StopRequest", StopAfter)
        return main(command)


def newest(machine: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    folder = max((machine / "state" / fingerprint(SPEC)).glob("checkpoint-*"))
    return json.loads((folder / "state.json").read_text()), load_file(folder / "state.safetensors")


def without_times(values: dict[str, Any]) -> dict[str, Any]:
    measured = ("seconds", "instances_per_second", "peak_memory")
    return {key: value for key, value in values.items() if not key.startswith(measured)}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, validation: str) -> dict[str, Path]:
    """Two epochs on ``first``, exported to ``moved``; ``straight`` did 13 steps in one go."""
    root = tmp_path_factory.mktemp("machines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "disabled")
        assert train(root / "first", validation, 2 * STEPS_PER_EPOCH) == 75
        assert main(["export-state", RUN, str(root / "moved"), "--state", str(root / "first" / "state")]) == 0
        assert train(root / "straight", validation, 2 * STEPS_PER_EPOCH + 1) == 75
    return {name: root / name for name in ("first", "moved", "straight")}


def importing(machines: dict[str, Path], machine: Path) -> list[str]:
    words = [RUN, str(machines["moved"]), "--state", str(machine / "state"), "--spec", canonical(SPEC)]
    return ["import-state", *words]


def test_weights_are_bit_equal_and_moments_are_rounded_once(machines: dict[str, Path], tmp_path: Path) -> None:
    assert main(importing(machines, tmp_path)) == 0
    (position, there), (moved, here) = newest(machines["first"]), newest(tmp_path)
    assert moved == position and (moved["epoch"], moved["step"], len(moved["history"])) == (3, 0, 2)
    assert here.keys() == there.keys() and any(name.startswith("optimizer.exp_avg_sq.") for name in here)
    for name, tensor in there.items():
        rounded = name.startswith(("optimizer.exp_avg.", "optimizer.exp_avg_sq."))
        assert here[name].dtype == tensor.dtype
        assert torch.equal(here[name], tensor.bfloat16().float() if rounded else tensor), name
    history = (tmp_path / "state" / fingerprint(SPEC) / "history.jsonl").read_text()
    assert [json.loads(line) for line in history.splitlines()] == position["history"]


def test_the_next_step_is_the_one_of_an_uninterrupted_training(
    machines: dict[str, Path], tmp_path: Path, validation: str
) -> None:
    """Same weights, same instances, same samples: every sum of the first step after the move is equal, bit for bit."""
    assert main(importing(machines, tmp_path)) == 0
    assert train(tmp_path, validation, 1) == 75
    (here, _), (straight, _) = newest(tmp_path), newest(machines["straight"])
    assert (here["epoch"], here["step"]) == (straight["epoch"], straight["step"]) == (3, 1)
    assert without_times(here["sums"]) == without_times(straight["sums"])


@pytest.mark.resume
def test_a_moved_training_ends_like_an_uninterrupted_one(
    machines: dict[str, Path], tmp_path: Path, validation: str
) -> None:
    assert main(importing(machines, tmp_path)) == 0
    assert train(tmp_path, validation) == 0
    assert (tmp_path / "model" / "weights.safetensors").is_file()
    straight = tmp_path / "straight"
    shutil.copytree(machines["straight"], straight)
    assert train(straight, validation) == 0
    here, there = newest(tmp_path)[0]["history"], newest(straight)[0]["history"]
    assert [without_times(row) for row in here[:2]] == [without_times(row) for row in there[:2]]
    for mine, theirs in zip(here, there, strict=True):
        assert (mine["epoch"], mine["learning_rate"]) == (theirs["epoch"], theirs["learning_rate"])
        for key in ("sampled_cost", "greedy_cost", "best_cost", "validation_cost"):
            assert mine[key] == pytest.approx(theirs[key], rel=0.02), key


def test_an_import_twice_is_one_and_an_older_state_is_refused(
    machines: dict[str, Path], tmp_path: Path, validation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(importing(machines, tmp_path)) == 0
    before = newest(tmp_path)
    assert main(importing(machines, tmp_path)) == 0
    assert before[0] == newest(tmp_path)[0]
    assert train(tmp_path, validation, 1) == 75
    folder = tmp_path / "state" / fingerprint(SPEC)
    files = sorted(folder.rglob("*"))
    capsys.readouterr()
    assert main(importing(machines, tmp_path)) == 2
    error = capsys.readouterr().err
    assert f"{folder} is at epoch 2 of 4 and 1 steps, {machines['moved']} at epoch 2 of 4; remove the former" in error
    assert error.count("\n") == 1
    assert sorted(folder.rglob("*")) == files
    # nor does an older state replace a newer export
    export = ["export-state", RUN, str(tmp_path / "again"), "--state"]
    assert main([*export, str(tmp_path / "state")]) == 0
    assert main([*export, str(machines["first"] / "state")]) == 2
    assert "holds a newer state" in capsys.readouterr().err
    assert main([*export, str(tmp_path / "state")]) == 0


def test_a_run_that_is_being_trained_is_left_alone(machines: dict[str, Path], tmp_path: Path) -> None:
    with file_lock(tmp_path / fingerprint(SPEC) / "lock", "run"), pytest.raises(DataError, match="stop it first"):
        import_state(machines["moved"], RUN, SPEC, tmp_path)


def cut(path: Path, removed: int) -> None:
    path.write_bytes(path.read_bytes()[:-removed])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


DAMAGES = {
    "state-001.safetensors is missing; copy the whole folder": lambda copy: (copy / "state-001.safetensors").unlink(),
    "state-001.safetensors is damaged or cut off": lambda copy: cut(copy / "state-001.safetensors", 100),
    "state-001.safetensors is damaged or cut off; copy it again": lambda copy: flip(copy / "state-001.safetensors"),
    "manifest.json does not exist": lambda copy: (copy / "manifest.json").unlink(),
    "manifest.json is no whole manifest": lambda copy: cut(copy / "manifest.json", 200),
    "manifest.json was changed since it was written": lambda copy: (copy / "manifest.json").write_text(
        (copy / "manifest.json").read_text().replace('"epoch": 3', '"epoch": 4')
    ),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_damaged_exports_are_refused_and_leave_nothing(
    machines: dict[str, Path], tmp_path: Path, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(machines["moved"], copy)
    DAMAGES[message](copy)
    assert main(importing({"moved": copy}, tmp_path)) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == [copy]


def test_another_run_and_another_specification_are_refused(
    machines: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = SPEC | {"training": SPEC["training"] | {"seed": 1}}
    words = [str(machines["moved"]), "--state", str(tmp_path / "state"), "--spec"]
    assert main(["import-state", "polarnet-ple-polar-n8-s1", *words, canonical(other)]) == 2
    assert f"holds a state of {RUN}, not of polarnet-ple-polar-n8-s1" in capsys.readouterr().err
    longer = SPEC | {"training": SPEC["training"] | {"epochs": 5}}
    assert main(["import-state", RUN, *words, canonical(longer)]) == 2
    assert "another specification (training.epochs is 4 there and 5 here)" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_bad_exports_are_one_line_and_leave_nothing(
    machines: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, output = tmp_path / "state", tmp_path / "out"
    words = ["export-state", RUN, str(output), "--state"]
    assert main([*words, str(state)]) == 2
    assert f"{state} holds no checkpoint; train {RUN} first" in capsys.readouterr().err
    folder = state / fingerprint(SPEC)
    shutil.copytree(machines["first"] / "state" / fingerprint(SPEC), folder)
    (folder / "specification.json").unlink()
    assert main([*words, str(state)]) == 2
    assert f"`polarvrp train {RUN} --max-seconds 0` with its configuration writes it" in capsys.readouterr().err
    write_specification(state, SPEC)
    (state / "other" / "checkpoint-00-00001-00000001").mkdir(parents=True)
    assert main([*words, str(state)]) == 2
    assert f"choose --fingerprint {fingerprint(SPEC)} or other" in capsys.readouterr().err
    assert not output.exists()
    output.mkdir()
    (output / "thesis.tex").write_text("")
    chosen = [*words, str(state), "--fingerprint", fingerprint(SPEC)]
    assert main(chosen) == 2
    assert f"{output} is not empty and holds no exported state" in capsys.readouterr().err
    (output / "thesis.tex").unlink()
    assert main(chosen) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "state"]


class Large(torch.nn.Module):
    """Weights of so many MiB in tensors of 1 MiB."""

    def __init__(self, mebibytes: int) -> None:
        super().__init__()
        self.parts = torch.nn.ParameterList(torch.full((2**18,), float(part)) for part in range(mebibytes))


def stored(state: Path, mebibytes: int) -> Large:
    """A checkpoint of large weights with moments, without training."""
    model = Large(mebibytes)
    optimizer = torch.optim.AdamW(model.parameters())
    torch.stack([part.sum() for part in model.parts]).sum().backward()
    optimizer.step()
    CheckpointStore(state / fingerprint(SPEC)).save(Position(epoch=2), model, optimizer)
    write_specification(state, SPEC)
    return model


def test_shards_stay_small_and_come_back_whole(tmp_path: Path) -> None:
    model = stored(tmp_path / "state", 28)
    manifest = export_state(RUN, tmp_path / "state", tmp_path / "out")
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "out").iterdir()}
    assert manifest["files"].keys() | {"manifest.json"} == sizes.keys()
    assert len(sizes) == 1 + 4 and max(sizes.values()) <= LARGEST_FILE and sum(sizes.values()) <= LARGEST_STATE
    import_state(tmp_path / "out", RUN, SPEC, tmp_path / "here")
    tensors = load_file(tmp_path / "here" / fingerprint(SPEC) / "checkpoint-00-00002-00000000" / "state.safetensors")
    assert all(torch.equal(tensors[f"model.{name}"], value) for name, value in model.state_dict().items())


def test_a_state_that_is_too_large_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    stored(tmp_path / "state", 31)
    with pytest.raises(DataError, match=r"has 62\.\d MiB, more than 60\.0 MiB"):
        export_state(RUN, tmp_path / "state", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_finished_stages_and_the_tracked_run_move_too(tmp_path: Path) -> None:
    stored(tmp_path / "state", 1)
    folder = tmp_path / "state" / fingerprint(SPEC)
    save_file({"weight": torch.ones(3)}, folder / "stage-0.safetensors", metadata={"polarvrp": "{}"})
    (folder / "wandb.json").write_text('{"id": "x", "epoch": 1}')
    export_state(RUN, tmp_path / "state", tmp_path / "out")
    import_state(tmp_path / "out", RUN, SPEC, tmp_path / "here")
    for name in ("stage-0.safetensors", "wandb.json", "specification.json"):
        assert (tmp_path / "here" / fingerprint(SPEC) / name).read_bytes() == (folder / name).read_bytes()
