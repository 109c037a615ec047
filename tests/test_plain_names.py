"""What files say never leads out of the folder that they are of: ``../x`` names nothing."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from helpers.library_texts import PLAIN
from polarvrp.cli.main import main
from polarvrp.errors import DataError
from polarvrp.files import write_text
from polarvrp.problem.datasets import read_instances
from polarvrp.problem.sets import write_set
from polarvrp.study import shipped
from polarvrp.study.layout import Layout
from polarvrp.tables.wandb_sync import sync
from polarvrp.training.checkpoints import DIGESTS, CheckpointStore, Position, read_newest
from polarvrp.training.wandb_ledger import Ledger

OUTSIDE = ("../x", "../../../x", "a/../../x", "/tmp/x")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """An empty folder of results, the working folder around it, and files outside that nobody may name."""
    (tmp_path / "outside" / "work").mkdir(parents=True)
    for name in ("x.json", "x.vrp", "x.npz", "x.safetensors"):
        (tmp_path / "outside" / name).write_text(PLAIN)
    monkeypatch.chdir(tmp_path / "outside" / "work")
    monkeypatch.setenv("WANDB_MODE", "offline")
    return Layout(Path("results"))


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line with which a command ends."""
    before = {path: path.read_bytes() for path in Path.cwd().parent.rglob("*") if path.is_file()}
    assert main(list(words)) == 2
    assert {path: path.read_bytes() for path in before} == before
    assert {path for path in Path.cwd().parent.rglob("*") if path.is_file()} == set(before)
    error = capsys.readouterr().err
    assert re.fullmatch(rf"polarvrp {words[0]}: .*\n", error)
    return error


@pytest.mark.parametrize("scale", OUTSIDE)
def test_the_scale_of_a_table_is_no_path(results: Layout, scale: str) -> None:
    """Runs of W&B, and the file that remembers them, are called by it."""
    path = results.table("training_cost")
    write_text(path.with_suffix(".csv"), "")
    pq.write_table(pa.table({"scale": [scale], "method": ["a"]}), path)
    with pytest.raises(DataError, match=f"'{re.escape(scale)}-tables' is no name of a run"):
        list(sync(results, [], "offline", whole=True))
    assert {path.name for path in Path.cwd().iterdir()} == {"results"}


@pytest.mark.parametrize("name", OUTSIDE)
def test_runs_of_wandb_have_plain_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="is no name of a run of W&B"):
        Ledger(tmp_path, name, "offline")


def test_the_description_of_a_training_names_no_other_folder(
    results: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    run = "polarnet-ple-polar-n10-s0"
    state = results.checkpoints(run) / "print"
    spec = {"model": {"backbone": "polarnet"}, "training": {"paradigm": "polar", "num_customers": 10}}
    write_text(state / "description.json", json.dumps({"run": "../../../x", "spec": spec}))
    write_text(state / "history.jsonl", '{"epoch": 1}\n')
    assert "'../../../x-epoch1' is no name of a run" in refusal(capsys, "sync-wandb", run, "--offline")


@pytest.mark.parametrize("name", ["pretrained-n20/../x", "pretrained-n20/../../x", "pretrained-n/../x"])
def test_shipped_models_lie_in_their_folder(
    results: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setattr(shipped, "SHIPPED", Path.cwd().parent / "shipped")
    for folder in ("shipped/pretrained-n20", "shipped/pretrained-n", "shipped/x", "x"):
        write_text(Path.cwd().parent / folder / shipped.WEIGHTS, "")
    assert shipped.shipped_models() == ["pretrained-n20"]
    write_set(Path("a.npz"), "CVRP", 4, 1, seed=1)
    words = ("evaluate", "a.npz", "--model", name, "--output", "a.parquet")
    assert f"this version ships no model '{name}', there are pretrained-n20" in refusal(capsys, *words)


@pytest.mark.parametrize("name", OUTSIDE)
def test_solutions_name_instances_and_no_files(results: Layout, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Those that are looked for in a folder, and those of Set-X, which lie in an archive."""
    write_text("mine/a.vrp", PLAIN)
    pq.write_table(pa.table({"instance": [name], "routes": [[[1, 2], [3]]]}), "theirs.parquet")
    for place in ("mine", "set-x"):
        words = ("import", "theirs.parquet", "--instances", place, "--output", "ours.parquet")
        assert f"there is no instance '{name}' among the named instances" in refusal(capsys, *words)
    columns = {"instance": [name], "best_known": [1.0], "cost": [1.0], "actions": [[1]]}
    pq.write_table(pa.table(columns), "set_x.parquet")
    assert f"Set-X has no instance '{name}'" in refusal(capsys, "check", "set-x", "set_x.parquet")


def test_archives_hold_arrays_and_no_files(results: Layout) -> None:
    """A member called like a path is an unknown array, and nothing is ever unpacked."""
    arrays: dict[str, Any] = {"locs": np.zeros((1, 3, 2)), "demand_linehaul": np.full((1, 2), 0.1)}
    arrays |= {"vehicle_capacity": np.ones((1, 1)), "../x": np.ones((1, 1))}
    np.savez("set.npz", **arrays)
    before = Path("../x.npz").read_text()
    with pytest.raises(DataError, match=r"unknown array '\.\./x'"):
        read_instances("set.npz")
    assert {path.name for path in Path.cwd().iterdir()} == {"set.npz"} and Path("../x.npz").read_text() == before


def test_digests_of_a_checkpoint_are_of_its_own_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A state that vouches for files elsewhere vouches for none of its own."""
    CheckpointStore(tmp_path).save(Position(epoch=2), torch.nn.Linear(1, 1), None)
    (checkpoint,) = tmp_path.glob("checkpoint-*")
    assert read_newest(tmp_path)[0].epoch == 2
    digests = json.loads((checkpoint / DIGESTS).read_text())
    (checkpoint / DIGESTS).write_text(json.dumps({f"../{name}": digest for name, digest in digests.items()}))
    assert read_newest(tmp_path) == (Position(), {})
    assert "is unreadable" in caplog.text
