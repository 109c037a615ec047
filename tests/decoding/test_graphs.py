"""Captured calls let go of what they were captured from, and say why they cannot be captured."""

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch

from polarvrp.decoding import graphs
from polarvrp.decoding.graphs import CapturedCall, CaptureError


class Graph:
    """Stands in for a CUDA graph."""

    def __init__(self) -> None:
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1


class Owner:
    def __init__(self) -> None:
        self.runs = 0
        self.call: CapturedCall[int]

    def run(self) -> int:
        self.runs += 1
        return self.runs


def stand_in_for_a_card(monkeypatch: pytest.MonkeyPatch, capture: Callable[..., Any]) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: "side")
    monkeypatch.setattr(torch.cuda, "default_stream", lambda _: "default")
    monkeypatch.setattr(torch.cuda, "set_stream", lambda _: None)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "new pool")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda *_: None)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda *_: None)
    monkeypatch.setattr(graphs, "_side_stream", lambda device: f"side of {device}")


def test_captured_calls_and_their_memory_go_with_their_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs hold gigabytes, so they must not wait for the collector of cycles."""
    graphs: list[tuple[Any, Any]] = []

    def capture(graph: Graph, pool: Any, stream: Any) -> Any:
        graphs.append((weakref.ref(graph), stream))
        return nullcontext()

    stand_in_for_a_card(monkeypatch, capture)
    owner = Owner()
    owner.call = CapturedCall(owner.run, torch.device("cuda"))
    assert owner.call() == owner.call() == 1
    assert owner.runs == 1
    graph, stream = graphs[0]
    assert stream == "side"
    assert graph().replays == 2
    gc.disable()
    try:
        del owner
        assert graph() is None
    finally:
        gc.enable()


@contextmanager
def broken_at_its_end(graph: Graph, pool: Any, stream: Any) -> Iterator[None]:
    """A capture as the driver ends it after an error, or where something went on beside it."""
    try:
        yield
    finally:
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")


def test_a_capture_says_what_went_wrong_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short memory is told apart by its message, and the end of a broken capture has another."""

    def fail() -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

    stand_in_for_a_card(monkeypatch, broken_at_its_end)
    with pytest.raises(CaptureError, match=r"^CUDA out of memory\. Tried to allocate 2\.00 GiB$"):
        CapturedCall(fail, torch.device("cuda"))
    with pytest.raises(CaptureError, match=r"^CUDA error: operation failed due to a previous error during capture$"):
        CapturedCall(Owner().run, torch.device("cuda"))


@pytest.mark.parametrize("ended", [False, True])
def test_a_broken_capture_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch, ended: bool) -> None:
    """Torch does where the end of the capture succeeds; else nothing of the pool would be free for a second attempt."""
    done = []

    def end(device: int, pool: Any) -> None:
        if ended:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        done.append(("ended", device, pool))

    stand_in_for_a_card(monkeypatch, broken_at_its_end)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda device, pool: done.append(("released", device, pool)))
    for pool in (None, "shared pool"):
        with pytest.raises(CaptureError):
            CapturedCall(Owner().run, torch.device("cuda", 0), pool=pool)
    wanted = [(what, 0, pool) for pool in ("new pool", "shared pool") for what in ("ended", "released")]
    assert done == ([] if ended else wanted)


def test_a_broken_capture_leaves_its_caller_on_the_stream_it_came_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch goes back by itself only where the end of the capture succeeds."""
    current = ["default"]

    @contextmanager
    def on_a_stream_of_its_own(graph: Graph, pool: Any, stream: Any) -> Iterator[None]:
        current.append("its own")
        yield
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    stand_in_for_a_card(monkeypatch, on_a_stream_of_its_own)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: current[-1])
    monkeypatch.setattr(torch.cuda, "set_stream", current.append)
    with pytest.raises(CaptureError):
        CapturedCall(Owner().run, torch.device("cuda"))
    assert current == ["default", "its own", "default"]


def test_each_card_is_captured_on_a_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a stream of another card nothing would be captured, and replays would change nothing."""
    streams = []

    def capture(graph: Graph, pool: Any, stream: Any) -> Any:
        streams.append(stream)
        return nullcontext()

    stand_in_for_a_card(monkeypatch, capture)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: "default")
    for number in (0, 1):
        CapturedCall(Owner().run, torch.device("cuda", number))
    assert streams == ["side of cuda:0", "side of cuda:1"]
