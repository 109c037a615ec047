"""Seconds spent in each phase of a training step."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

PHASES = ("generate", "encode", "rollout", "refine", "score", "backward", "optimiser")


class PhaseClock:
    """Adds up seconds by phase: wall time on a CPU; on a GPU the time between events of its stream, read at the end.

    So nothing waits for a phase to end, and a phase that waits for the CPU counts that too.

    Args:
        device: Where the phases compute.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._events: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the enclosed work to ``name``."""
        if not self._on_gpu:
            start_s = time.perf_counter()
            yield
            self._seconds[name] += time.perf_counter() - start_s
            return
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        first.record()
        yield
        last.record()
        self._events.append((name, first, last))

    def read(self) -> dict[str, float]:
        """Seconds so far by phase; the device must be done with them."""
        for name, first, last in self._events:
            self._seconds[name] += first.elapsed_time(last) / 1e3
        self._events.clear()
        return dict(self._seconds)


def peak_memory_gb(device: torch.device) -> float:
    """Largest memory of the device's allocator, or of the process on a CPU, in 1e9 bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
