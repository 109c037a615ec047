"""Leases of GPUs: named by the card, whichever is free first, the one of the local rank under torchrun."""

import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from polarvrp import machine
from polarvrp.errors import ConfigError, DataError
from polarvrp.training import locks
from polarvrp.training.locks import file_lock, leased_device

CARDS = ["uuid-a", "uuid-b"]
CURRENT = [0]
"""Number of the current device, innermost last."""


@contextmanager
def current_device(index: int) -> Iterator[None]:
    CURRENT.append(index)
    yield
    CURRENT.pop()


@pytest.fixture(autouse=True)
def two_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with two GPUs and nobody else on it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(CARDS))
    monkeypatch.setattr(torch.cuda, "device", current_device)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=CARDS[index]))
    yield


def test_trainings_take_different_cards() -> None:
    with leased_device() as first, leased_device() as second:
        assert [first, second] == [torch.device("cuda", 0), torch.device("cuda", 1)]
        assert CURRENT[-1] == 1  # where kernels are launched
    assert CURRENT == [0]
    with leased_device() as again:
        assert again == torch.device("cuda", 0)


def test_other_users_can_read_a_lock_whatever_the_mask_of_its_owner(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with leased_device():
            modes = [path.stat().st_mode & 0o777 for path in tmp_path.glob("polarvrp-gpu-*.lock")]
    finally:
        os.umask(before)
    assert modes == [0o644]


def test_a_card_is_locked_under_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """``CUDA_VISIBLE_DEVICES=1`` makes the second card number 0; it is still the second card."""
    with leased_device(), leased_device():
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=CARDS[1]))
        monkeypatch.setattr(locks.time, "sleep", lambda _seconds: pytest.fail("waits"))
        with pytest.raises(pytest.fail.Exception, match="waits"), leased_device():
            pass


def test_the_first_card_to_be_free_is_taken(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    first, second = leased_device(), leased_device()
    first.__enter__()
    second.__enter__()
    naps = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            second.__exit__(None, None, None)

    monkeypatch.setattr(locks.time, "sleep", sleep)
    with caplog.at_level("INFO"), leased_device() as device:
        assert device == torch.device("cuda", 1)
    assert len(naps) == 3
    assert [record.message for record in caplog.records] == ["waiting for a GPU: other processes hold all 2"]
    first.__exit__(None, None, None)


def test_under_torchrun_the_card_is_the_local_rank_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    with leased_device() as device:
        assert device == torch.device("cuda", 1)
        monkeypatch.delenv("LOCAL_RANK")
        with leased_device() as other:
            assert other == torch.device("cuda", 0)


@pytest.mark.parametrize(("version", "reason"), [(None, "torch is built without CUDA"), ("13.0", "torch shows none")])
def test_a_card_that_torch_does_not_see_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    version: str | None,
    reason: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", version)
    monkeypatch.setattr(machine, "GPU_DRIVER", tmp_path / "nvidiactl")
    for told in ([], [f"a GPU driver is loaded, but the CPU computes: {reason}"]):
        with leased_device() as device:
            assert device == torch.device("cpu")
        assert caplog.messages == told
        machine.GPU_DRIVER.touch()


def test_only_a_process_that_computes_on_the_cpu_keeps_freed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[str] = []
    monkeypatch.setattr(locks, "keep_freed_memory", lambda: kept.append("kept"))
    with leased_device():
        assert kept == []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with leased_device():
        assert kept == ["kept"]


@pytest.mark.parametrize("rank", ["2", "-1", "first"])
def test_a_local_rank_without_a_card_is_refused(monkeypatch: pytest.MonkeyPatch, rank: str) -> None:
    monkeypatch.setenv("LOCAL_RANK", rank)
    with pytest.raises(ConfigError, match=f"LOCAL_RANK is {rank}, but this machine shows 2 GPUs"), leased_device():
        pass


def _hold(path: str, ready: "multiprocessing.synchronize.Event", done: "multiprocessing.synchronize.Event") -> None:
    with file_lock(Path(path), "run x"):
        ready.set()
        done.wait(60)


def test_a_lock_that_must_not_wait_says_who_holds_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(str(tmp_path / "lock"), ready, done))
    process.start()
    assert ready.wait(60)
    with (
        pytest.raises(DataError, match=r"another process holds run x .*; stop it first"),
        file_lock(tmp_path / "lock", "run x", wait=False),
    ):
        pass
    done.set()
    process.join()
    with file_lock(tmp_path / "lock", "run x", wait=False):
        pass


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file/lock cannot be written"), file_lock(tmp_path / "file" / "lock", "it"):
        pass
