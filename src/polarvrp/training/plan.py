"""The computations of a training step, run one by one or, on a GPU, captured and replayed.

One CUDA graph a phase: all phases of a step replayed one after the other cost seven launches instead of one, and in
return each phase can be timed without waiting, gradients can travel between processes after the backward pass, and
local search on CPU cores finds its place between rollout and scoring.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from polarvrp.decoding.graphs import CapturedCall, CaptureError
from polarvrp.training.clock import PhaseClock

WARM_UP_RUNS = 2
"""Steps run one by one before a capture: kernels are compiled, and the optimiser makes its state."""


class Plan:
    """Phases of all steps of one shape.

    Results live in attributes of whatever object the phases are methods of: a captured phase reads and writes the
    same memory in every step.

    Args:
        device: Where the phases compute.
        captured: Capture the phases after the first steps.
        generators: All that the phases draw from.
    """

    def __init__(self, device: torch.device, captured: bool, generators: Sequence[torch.Generator]) -> None:
        self._device, self._captured, self._generators = device, captured, generators
        self._calls: dict[str, CapturedCall[None]] = {}
        self._pool: Any = torch.cuda.graph_pool_handle() if captured and device.type == "cuda" else None
        self._runs = 0
        self._clock = PhaseClock(device)

    def begin(self) -> PhaseClock:
        """Start a step; its clock."""
        self._runs += 1
        self._clock = PhaseClock(self._device)
        return self._clock

    @property
    def replays(self) -> bool:
        """Whether phases are captured by now."""
        return self._captured and self._runs > WARM_UP_RUNS

    def run(self, phase: str, name: str, function: Callable[[], None]) -> None:
        """Run a phase.

        Args:
            phase: One of ``clock.PHASES``, for its time.
            name: Of the function, unique in the step; always given in the same order.
            function: Reads and writes attributes only.

        Raises:
            CaptureError: If it cannot be captured; this plan and its generators must not be used any more.
        """
        with self._clock.phase(phase):
            if not self.replays:
                function()
                return
            if name not in self._calls:
                try:
                    self._calls[name] = CapturedCall(function, self._device, self._generators, self._pool)
                except CaptureError as error:
                    raise CaptureError(f"phase {name} cannot be captured: {error}") from error
            self._calls[name]()
