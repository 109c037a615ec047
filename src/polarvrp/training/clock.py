"""Seconds spent in each phase of a training step."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

PHASES = ("generate", "encode", "rollout", "refine", "score", "backward", "optimiser")


class PhaseClock:
    """Adds up wall seconds by phase; on a GPU it waits for the phase's kernels.

    Args:
        device: Where the phases compute.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the enclosed work to ``name``."""
        start_s = time.perf_counter()
        yield
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.seconds[name] += time.perf_counter() - start_s
