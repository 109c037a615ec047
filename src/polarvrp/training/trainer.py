"""The training loop: epochs of steps, validation, checkpoints; it resumes by itself and ends by a signal or a clock.

The random streams of a step derive from the seed, the epoch and the step's number, so a run that stopped anywhere
goes on as if it had not: bit for bit on the same CPU, in schedule and data on a GPU.
"""

import logging
import math
import resource
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from polarvrp.config import TrainConfig
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy
from polarvrp.progress import progress
from polarvrp.seeds import derive_seed
from polarvrp.study import fingerprint, parse_train_spec
from polarvrp.tracking import Tracker, open_tracker
from polarvrp.training.checkpoints import CheckpointStore, Position
from polarvrp.training.history import epoch_row, write_jsonl
from polarvrp.training.locks import file_lock, leased_device
from polarvrp.training.outputs import write_outputs
from polarvrp.training.refinement import Refiner
from polarvrp.training.schedule import batch_sizes, decoder_ramp, learning_rate
from polarvrp.training.step import TrainingStep
from polarvrp.training.validation import Validation

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrainJob:
    """One training and where its files are.

    Attributes:
        run: Name of the run.
        spec: Everything that its result depends on (``study.train_spec``).
        state: Folder of the run's resumable states, one subfolder a specification.
        validation: Validation sets.
        output: Final weights; configuration, history and metadata are written beside them.
        tracking: Folder that holds ``wandb/``.
        workers: Processes of local search; 1 works in this process.
        max_seconds: Stop and keep the state after that long, None to finish.
    """

    run: str
    spec: Mapping[str, Any]
    state: Path
    validation: Sequence[Path]
    output: Path
    tracking: Path
    workers: int = 1
    max_seconds: float | None = None


def train(job: TrainJob) -> bool:
    """Train, or go on training, until the last epoch.

    Returns:
        Whether the training is complete and its outputs are written; otherwise its state is, and the same call
        goes on.
    """
    model_config, config = parse_train_spec(job.spec)
    folder = job.state / fingerprint(job.spec)
    with (
        Refiner(num_workers=0 if job.workers == 1 else job.workers) as refiner,
        file_lock(folder / "lock", f"run {job.run}"),
        leased_device() as device,
        _stop_requests(job.max_seconds) as stop,
    ):
        policy = build_policy(model_config, derive_seed(config.seed, "weights") % 2**32).to(device)
        trainer = Trainer(job.run, policy, config, folder, refiner)
        tracker = open_tracker(job.run, job.spec, job.tracking, folder)
        try:
            if not trainer.finished:
                trainer.run(Validation(job.validation, config.validation_instances, refiner, device), tracker, stop)
            if trainer.finished:
                write_outputs(job.output, job.run, job.spec, policy, trainer.position)
        finally:
            tracker.finish()
        return trainer.finished


class Trainer:
    """State and loop of one training.

    Args:
        run: Name, for log lines.
        policy: Network, restored from the newest checkpoint if there is one.
        config: Recipe.
        folder: Checkpoints and ``history.jsonl``.
        refiner: Local search.
    """

    def __init__(self, run: str, policy: Policy, config: TrainConfig, folder: Path, refiner: Refiner) -> None:
        self._run = run
        self._policy = policy
        self._config = config
        self._folder = folder
        self._device = next(policy.parameters()).device
        self._optimizer = torch.optim.AdamW(
            policy.parameters(), lr=config.learning_rate, betas=(0.9, 0.999), weight_decay=config.weight_decay
        )
        self._store = CheckpointStore(folder)
        self.position = self._store.load(policy, self._optimizer)
        if self.position != Position():
            logger.info("%s: resumed at epoch %d, step %d", run, self.position.epoch, self.position.step)
        bfloat16 = _uses_bfloat16(config, self._device)
        self._step = TrainingStep(policy, self._optimizer, config, bfloat16, refiner)

    @property
    def finished(self) -> bool:
        """Whether the last epoch is done."""
        return self.position.epoch > self._config.epochs

    def run(self, validation: Validation, tracker: Tracker, stop: "StopRequest") -> None:
        """Train until the end or until ``stop``; the state is on disk afterwards."""
        for row in self.position.history:
            tracker.log_epoch(row)
        while not self.finished:
            if not self._run_epoch(stop):
                self._store.save(self.position, self._policy, self._optimizer)
                logger.info("%s: stopped in epoch %d; the same command goes on", self._run, self.position.epoch)
                return
            tracker.log_epoch(self._finish_epoch(validation))

    def _run_epoch(self, stop: "StopRequest") -> bool:
        """Steps of the present epoch; False if stopped before its end."""
        position, config = self.position, self._config
        sizes = batch_sizes(config)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(config, position.epoch)
        description = f"{self._run} epoch {position.epoch} of {config.epochs}"
        for step in progress(range(position.step, len(sizes)), len(sizes), description, "step", done=position.step):
            if stop.requested:
                return False
            start_s = time.perf_counter()
            self._policy.ramp = decoder_ramp(position.epoch, step, len(sizes))
            sums = self._step.run(position.epoch, step, sizes[step])
            if not math.isfinite(sums["loss"]):
                raise FloatingPointError(
                    f"{self._run}: loss is {sums['loss']} in epoch {position.epoch}, step {step}, seed {config.seed}"
                )
            sums["seconds"] = time.perf_counter() - start_s
            for name, value in sums.items():
                position.sums[name] = position.sums.get(name, 0.0) + value
            position.elapsed_s += sums["seconds"]
            position.step = step + 1
        self._policy.ramp = 1.0
        return True

    def _finish_epoch(self, validation: Validation) -> dict[str, Any]:
        """Validate, record the epoch and move to the next; the epoch's row."""
        position = self.position
        row = epoch_row(
            position.epoch,
            learning_rate(self._config, position.epoch),
            position.sums,
            validation.run(self._policy),
            _peak_memory_gb(self._device),
        )
        self.position = Position(position.epoch + 1, 0, {}, position.elapsed_s, [*position.history, row])
        self._store.save(self.position, self._policy, None if self.finished else self._optimizer)
        write_jsonl(self._folder / "history.jsonl", self.position.history)
        logger.info(
            "%s epoch %d: loss %.5f, sampled %.4f, best %.4f, validation gap %.2f %%, %.1f s",
            self._run,
            row["epoch"],
            row["loss"],
            row["sampled_cost"],
            row["best_cost"],
            row["validation_gap_percent"],
            row["seconds"],
        )
        return row


class StopRequest:
    """Whether the training should stop: a signal came or its time is over."""

    def __init__(self, max_seconds: float | None) -> None:
        self._deadline_s = math.inf if max_seconds is None else time.monotonic() + max_seconds
        self._signalled = False

    def signal(self, _number: int, _frame: FrameType | None) -> None:
        """Handler of SIGINT and SIGTERM."""
        self._signalled = True

    @property
    def requested(self) -> bool:
        return self._signalled or time.monotonic() >= self._deadline_s


@contextmanager
def _stop_requests(max_seconds: float | None) -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a request to stop after the present step."""
    request = StopRequest(max_seconds)
    previous = {number: signal.signal(number, request.signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _uses_bfloat16(config: TrainConfig, device: torch.device) -> bool:
    if config.precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return config.precision == "bfloat16"


def _peak_memory_gb(device: torch.device) -> float:
    """Largest memory of the device's allocator, or of the process on a CPU, in 1e9 bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
