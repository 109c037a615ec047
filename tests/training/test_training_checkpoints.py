"""Checkpoints on disk: leftovers of killed processes go, a full disk is one line and keeps what there was."""

import errno
import os
from pathlib import Path

import pytest
import torch

from polarvrp.errors import DataError
from polarvrp.training.checkpoints import CheckpointStore, Position


def leave_partial(folder: Path, number: int) -> Path:
    partial = folder / f".partial-{number}"
    partial.mkdir(parents=True)
    (partial / "state.safetensors").write_bytes(b"half")
    return partial


def test_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    store, model = CheckpointStore(tmp_path), torch.nn.Linear(2, 2)
    partial = leave_partial(tmp_path, 4242)
    store.load()
    assert not partial.exists()
    partial = leave_partial(tmp_path, 4243)
    store.save(Position(), model, torch.optim.AdamW(model.parameters()))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00-00001-00000000"]


def test_a_full_disk_is_one_line_and_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, model = CheckpointStore(tmp_path), torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    store.save(Position(step=1), model, optimizer)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"checkpoint-00-00001-00000002 cannot be written \(No space left on device\)"):
        store.save(Position(step=2), model, optimizer)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00-00001-00000001"]
    position, tensors = store.load()
    assert position.step == 1 and torch.equal(tensors["model.weight"], model.weight)


@pytest.mark.parametrize("name", ["state.safetensors", "state.json", "digests.json"])
def test_an_older_checkpoint_is_used_when_a_bit_of_the_newest_is_flipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    store, model = CheckpointStore(tmp_path), torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in (1, 2):
        store.save(Position(step=step, elapsed_s=1.0), model, optimizer)
    path = tmp_path / "checkpoint-00-00001-00000002" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert store.load()[0].step == 1
    assert "checkpoint-00-00001-00000002 is unreadable (" in caplog.text
    assert "trying the checkpoint before it" in caplog.text


def test_a_training_says_so_when_no_checkpoint_is_left_to_go_on_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A finished training keeps one alone."""
    store = CheckpointStore(tmp_path)
    store.save(Position(step=1), torch.nn.Linear(2, 2), None)
    (tmp_path / "checkpoint-00-00001-00000001" / "state.json").write_text("{")
    assert store.load()[0] == Position()
    assert "checkpoint-00-00001-00000001 is unreadable (" in caplog.text
    assert "the training begins anew" in caplog.text


def test_checkpoints_of_versions_without_digests_are_read(tmp_path: Path) -> None:
    store, model = CheckpointStore(tmp_path), torch.nn.Linear(2, 2)
    store.save(Position(step=1), model, torch.optim.AdamW(model.parameters()))
    (tmp_path / "checkpoint-00-00001-00000001" / "digests.json").unlink()
    assert store.load()[0].step == 1
