"""Times of training steps as a training runs them: the numbers of a step are read when the next one is launched."""

import time
from dataclasses import dataclass

import torch

from polarvrp.training.clock import PHASES
from polarvrp.training.step import PendingStep, TrainingStep


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Times of some steps.

    Attributes:
        median_s: Of a step, from the numbers of one to those of the next.
        phases_s: Mean seconds by phase.
        memory_gb: Peak of the device's allocator in 1e9 bytes since the last reset; not a number on a CPU.
    """

    median_s: float
    phases_s: dict[str, float]
    memory_gb: float


def timed_steps(step: TrainingStep, epoch: int, batch: int, count: int) -> StepTimes:
    """Run steps and time them.

    Args:
        step: Warmed up.
        epoch: For the random streams.
        batch: Instances of a step.
        count: Steps.
    """
    seconds, phases = [], dict.fromkeys(PHASES, 0.0)
    launched: PendingStep | None = None
    last_s = time.perf_counter()
    for number in range(count + 1):
        pending = step.launch(0, epoch, number, batch) if number < count else None
        if launched is not None:
            sums = launched.read()
            now_s = time.perf_counter()
            seconds.append(now_s - last_s)
            last_s = now_s
            for phase in PHASES:
                phases[phase] += sums[f"seconds_{phase}"] / count
        launched = pending
    memory = torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else float("nan")
    return StepTimes(sorted(seconds)[len(seconds) // 2], phases, memory)
