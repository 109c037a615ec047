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
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from polarvrp.config import TrainConfig
from polarvrp.model.precision import has_bfloat16
from polarvrp.progress import progress
from polarvrp.study import fingerprint, parse_train_spec
from polarvrp.tracking import Tracker, open_tracker
from polarvrp.training.checkpoints import CheckpointStore, Position, restore
from polarvrp.training.history import epoch_row, write_jsonl
from polarvrp.training.locks import file_lock, leased_device
from polarvrp.training.outputs import write_outputs
from polarvrp.training.refinement import Refiner
from polarvrp.training.rewards import RewardNormalizer
from polarvrp.training.schedule import batch_sizes, decoder_ramp, learning_rate
from polarvrp.training.stages import StageNetworks
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
        networks = StageNetworks(model_config, config, folder, device)
        trainer = Trainer(job.run, networks, config, folder, refiner)
        tracker = open_tracker(job.run, job.spec, job.tracking, folder)
        try:
            if not trainer.finished:
                trainer.run(Validation(job.validation, config.validation_instances, refiner, device), tracker, stop)
            if trainer.finished:
                write_outputs(job.output, job.run, job.spec, trainer.policy, trainer.position)
        finally:
            tracker.finish()
        return trainer.finished


class Trainer:
    """State and loop of one training.

    Args:
        run: Name, for log lines.
        networks: Network of each stage.
        config: Recipe.
        folder: Checkpoints and ``history.jsonl``.
        refiner: Local search.
    """

    def __init__(self, run: str, networks: StageNetworks, config: TrainConfig, folder: Path, refiner: Refiner) -> None:
        self._run = run
        self._networks = networks
        self._config = config
        self._folder = folder
        self._refiner = refiner
        self._store = CheckpointStore(folder)
        self.position, tensors = self._store.load()
        if tensors:
            logger.info("%s: resumed at epoch %d, step %d", run, self._epoch_number, self.position.step)
        self._begin_stage(tensors)

    @property
    def finished(self) -> bool:
        """Whether the last epoch of the last stage is done."""
        return self.position.stage == len(self._config.stages) - 1 and self.position.epoch > self._config.epochs

    @property
    def _epoch_number(self) -> int:
        """The present epoch, counted over all stages."""
        return self.position.stage * self._config.epochs + self.position.epoch

    def run(self, validation: Validation, tracker: Tracker, stop: "StopRequest") -> None:
        """Train until the end or until ``stop``; the state is on disk afterwards."""
        for row in self.position.history:
            tracker.log_epoch(row)
        while not self.finished:
            if self.position.epoch > self._config.epochs:
                self._end_stage()
            if not self._run_epoch(stop):
                self._store.save(self.position, self.policy, self._optimizer)
                logger.info("%s: stopped in epoch %d; the same command goes on", self._run, self._epoch_number)
                return
            tracker.log_epoch(self._finish_epoch(validation))

    def _begin_stage(self, tensors: dict[str, Tensor]) -> None:
        """Network and optimiser of the present stage, with the state of a checkpoint if there is one."""
        config = self._config
        self.policy = self._networks.build(self.position.stage)
        trainable = [parameter for parameter in self.policy.parameters() if parameter.requires_grad]
        kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
        self._optimizer = kind(trainable, lr=config.learning_rate, betas=(0.9, 0.999), weight_decay=config.weight_decay)
        restore(tensors, self.policy, self._optimizer)
        device = next(self.policy.parameters()).device
        normalizer = RewardNormalizer(self.position.reward_means) if config.normalize_rewards else None
        self._step = TrainingStep(
            self.policy, self._optimizer, config, _uses_bfloat16(config, device), self._refiner, normalizer
        )

    def _end_stage(self) -> None:
        """Keep the network of the finished stage and go on to the next."""
        position = self.position
        self._networks.keep(position.stage, self.policy)
        self.position = Position(position.stage + 1, elapsed_s=position.elapsed_s, history=position.history)
        self._begin_stage({})

    def _run_epoch(self, stop: "StopRequest") -> bool:
        """Steps of the present epoch; False if stopped before its end."""
        position, config = self.position, self._config
        sizes = batch_sizes(config)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(config, position.epoch)
        self.policy.train()
        description = f"{self._run} epoch {self._epoch_number} of {config.total_epochs}"
        for step in progress(range(position.step, len(sizes)), len(sizes), description, "step", done=position.step):
            if stop.requested:
                return False
            start_s = time.perf_counter()
            self.policy.ramp = decoder_ramp(self._epoch_number, step, len(sizes))
            sums = self._step.run(position.stage, position.epoch, step, sizes[step])
            if not math.isfinite(sums["loss"]):
                raise FloatingPointError(
                    f"{self._run}: loss is {sums['loss']} in epoch {self._epoch_number}, step {step}, "
                    f"seed {config.seed}"
                )
            sums["seconds"] = time.perf_counter() - start_s
            for name, value in sums.items():
                position.sums[name] = position.sums.get(name, 0.0) + value
            position.elapsed_s += sums["seconds"]
            position.reward_means = self._step.reward_means
            position.step = step + 1
        self.policy.ramp = 1.0
        return True

    def _finish_epoch(self, validation: Validation) -> dict[str, Any]:
        """Validate, record the epoch and move to the next; the epoch's row."""
        position = self.position
        self.policy.eval()
        row = epoch_row(
            self._epoch_number,
            learning_rate(self._config, position.epoch),
            position.sums,
            validation.run(self.policy),
            _peak_memory_gb(next(self.policy.parameters()).device),
        )
        self.position = replace(position, epoch=position.epoch + 1, step=0, sums={}, history=[*position.history, row])
        self._store.save(self.position, self.policy, None if self.finished else self._optimizer)
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
        return has_bfloat16(device)
    return config.precision == "bfloat16"


def _peak_memory_gb(device: torch.device) -> float:
    """Largest memory of the device's allocator, or of the process on a CPU, in 1e9 bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
