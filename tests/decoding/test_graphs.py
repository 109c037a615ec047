"""Captured calls let go of what they were captured from."""

import gc
import weakref
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from polarvrp.decoding.graphs import CapturedCall


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


def test_captured_calls_and_their_memory_go_with_their_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs hold gigabytes, so they must not wait for the collector of cycles."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: "side")
    monkeypatch.setattr(torch.cuda, "default_stream", lambda _: "default")
    graphs: list[tuple[Any, Any]] = []

    def capture(graph: Graph, pool: Any, stream: Any) -> Any:
        graphs.append((weakref.ref(graph), stream))
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "graph", capture)
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
