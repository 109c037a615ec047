"""Training loop: epochs of steps, validation, checkpoints; it resumes by itself and ends by a signal or a clock.

The random streams of a step derive from the seed, the epoch and the step's number, so a run that stopped anywhere
goes on as if it had not: bit for bit on the same CPU, in schedule and data on a GPU.
"""

import logging
import math
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from polarvrp.config.training import TrainConfig
from polarvrp.errors import DivergenceError
from polarvrp.local_search.refinement import Refiner
from polarvrp.model.precision import compile_parts, trains_in_bfloat16
from polarvrp.progress import progress
from polarvrp.study.layout import Layout
from polarvrp.study.specs import fingerprint, parse_train_spec
from polarvrp.training.announcement import announce
from polarvrp.training.checkpoints import CheckpointStore, Position, restore, state_tensors
from polarvrp.training.clock import peak_memory_gb
from polarvrp.training.divergence import WATCHED, diverged, is_finite
from polarvrp.training.group import SINGLE, Group, is_first_process, joined_group, processes_here
from polarvrp.training.history import epoch_row, write_jsonl
from polarvrp.training.instances import require_instances
from polarvrp.training.locks import file_lock, leased_device
from polarvrp.training.optimizer import make_optimizer, set_learning_rate
from polarvrp.training.outputs import training_facts, write_outputs
from polarvrp.training.recorded import write_description
from polarvrp.training.schedule import batch_sizes, decoder_ramp, learning_rate
from polarvrp.training.stages import StageNetworks
from polarvrp.training.step import PendingStep, TrainingStep
from polarvrp.training.tracking import Tracker, open_tracker
from polarvrp.training.validation import Validation
from polarvrp.training.wandb_runs import Description

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_STATES = 600.0
"""A training that is killed loses no more work than that, however long its epochs are."""


@dataclass(frozen=True, slots=True)
class TrainJob:
    """One training and where its files are.

    Attributes:
        run: Name of the run.
        spec: Everything that its result depends on (``study.specs.train_spec``).
        state: Folder of the run's resumable states, one subfolder a specification.
        validation: Validation sets.
        output: Final weights; configuration, history and metadata are written beside them.
        tracking: Folder that holds ``wandb/``.
        workers: Processes of local search; 1 works in this process.
        max_seconds: Stop and keep the state after that long, None to finish.
        engine: One of ``decoding.engine.LEVELS``.
        layout: Of the results, where initial weights are looked for.
        scale: Of the study, for readers; None where it is not known.
    """

    run: str
    spec: Mapping[str, Any]
    state: Path
    validation: Sequence[Path]
    output: Path
    tracking: Path
    workers: int = 1
    max_seconds: float | None = None
    engine: str = "auto"
    layout: Layout = field(default_factory=Layout)
    scale: str | None = None


def train(job: TrainJob) -> bool:
    """Train, or go on training, until the last epoch.

    Under ``torchrun`` each process calls this; the first one writes all files.

    Returns:
        Whether the training is complete and its outputs are written; otherwise its state is, and the same call
        goes on.
    """
    model_config, config = parse_train_spec(job.spec)
    require_instances(config)
    folder = job.state / fingerprint(job.spec)
    workers = max(1, job.workers // processes_here())
    with (
        Refiner(num_workers=0 if workers == 1 else workers) as refiner,
        file_lock(folder / "lock", f"run {job.run}") if is_first_process() else nullcontext(),
        leased_device() as device,
        joined_group(device) as group,
        _stop_requests(job.max_seconds) as stop,
    ):
        networks = StageNetworks(model_config, config, folder, device, job.layout)
        trainer = Trainer(job, networks, config, folder, refiner, group)
        group.wait()  # until all have read their state
        if not group.leads:
            _run(trainer, None, None, stop)
            return trainer.finished
        facts = training_facts(trainer.policy, config, trainer.level)
        description = Description(run=job.run, spec=job.spec, scale=job.scale, facts=facts)
        write_description(folder, description)
        tracker = open_tracker(description, job.tracking, folder)
        try:
            # All of it each time: a process may have ended between the last epoch and the tracker's own end.
            for row in trainer.position.history:
                tracker.log_epoch(row)
            if not trainer.finished:
                validation = Validation(job.validation, config.validation_instances, refiner, device)
                announce(job.run, facts, workers, job.scale)
                _run(trainer, validation, tracker, stop)
            if trainer.finished:
                write_outputs(job.output, job.run, job.spec, trainer.policy, trainer.position, trainer.level, job.scale)
        finally:
            tracker.finish()
        return trainer.finished


def _run(trainer: "Trainer", validation: Validation | None, tracker: Tracker | None, stop: "StopRequest") -> None:
    """Run a training; on a GPU, whose errors may pass, once more from the last checkpoint if a step is not finite."""
    try:
        trainer.run(validation, tracker, stop)
    except DivergenceError as error:
        if trainer.device.type == "cpu":
            raise
        logger.warning("%s; once more from the last checkpoint", error)
        trainer.resume()
        trainer.run(validation, tracker, stop)


class Trainer:
    """State and loop of one training.

    Args:
        job: Its name, for log lines, and the engine.
        networks: Network of each stage.
        config: Recipe of all stages.
        folder: Checkpoints and ``history.jsonl``.
        refiner: Local search.
        group: Processes that share the training.
    """

    def __init__(
        self,
        job: TrainJob,
        networks: StageNetworks,
        config: TrainConfig,
        folder: Path,
        refiner: Refiner,
        group: Group = SINGLE,
    ) -> None:
        self._run, self._engine = job.run, job.engine
        self._networks = networks
        self._config = config
        self._folder = folder
        self._refiner = refiner
        self._group = group
        for number in range(len(config.stages)):  # refused at once, not after the work of an epoch
            group.shares(min(batch_sizes(config.for_stage(number))), 1)
        self._store = CheckpointStore(folder)
        self.resume()

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.policy.parameters()).device

    @property
    def finished(self) -> bool:
        """Whether the last epoch of the last stage is done."""
        return self.position.stage == len(self._config.stages) - 1 and self.position.epoch > self._stage.epochs

    @property
    def level(self) -> str:
        """Level of the engine that trains."""
        return self._step.level

    @property
    def _epoch_number(self) -> int:
        """The present epoch, counted over all stages."""
        return sum(self._config.stage_epochs[: self.position.stage]) + self.position.epoch

    def resume(self) -> None:
        """Go on from the last checkpoint; without one, begin."""
        self.position, tensors = self._store.load()
        if tensors and self._group.leads:
            logger.info("%s: resumed at epoch %d, step %d", self._run, self._epoch_number, self.position.step)
        self._saved_s = time.monotonic()
        self._begin_stage(tensors)

    def run(self, validation: Validation | None, tracker: Tracker | None, stop: "StopRequest") -> None:
        """Train until the end or until ``stop``; the state is on disk afterwards.

        Args:
            validation: Solved after each epoch; None in processes that only compute, and so is the tracker.
            tracker: Told each epoch.
            stop: When to stop.
        """
        while not self.finished:
            if self.position.epoch > self._stage.epochs:
                self._end_stage()
            if not self._run_epoch(stop):
                self._save()
                if self._group.leads:
                    logger.info("%s: stopped in epoch %d; the same command goes on", self._run, self._epoch_number)
                return
            row = self._finish_epoch(validation)
            if tracker is not None:
                tracker.log_epoch(row)

    def _begin_stage(self, tensors: dict[str, Tensor]) -> None:
        """Network and optimiser of the present stage, with the tensors of a checkpoint or the stage before, if any."""
        config = self._stage = self._config.for_stage(self.position.stage)
        begins = self.position.stage == 0 and not tensors
        self.policy = self._networks.begin() if begins else self._networks.build(self.position.stage)
        device = self.device
        self._optimizer = make_optimizer(config, self.policy, device)
        restore(tensors, self.policy, self._optimizer)
        if device.type == "cuda":
            compile_parts(self.policy)
        self._step = TrainingStep(
            self.policy,
            self._optimizer,
            config,
            trains_in_bfloat16(device, config.precision),
            self._refiner,
            self.position.reward_means,
            self.position.refinement_gap,
            self._engine,
            self._group,
            self.position.splits,
        )

    def _end_stage(self) -> None:
        """Store the network of the finished stage and go on to the next."""
        position = self.position
        if self._group.leads:
            self._networks.store(position.stage, self.policy)
        self._group.wait()
        self.position = Position(
            position.stage + 1,
            elapsed_s=position.elapsed_s,
            refinement_gap=position.refinement_gap,
            history=position.history,
            splits=self._step.splits,
        )
        goes_on = self._config.stages[self.position.stage].adapters == "none"
        self._begin_stage(state_tensors(self.policy, self._optimizer) if goes_on else {})

    def _run_epoch(self, stop: "StopRequest") -> bool:
        """Steps of the present epoch; False if stopped before its end."""
        position, config = self.position, self._stage
        sizes = batch_sizes(config)
        set_learning_rate(self._optimizer, learning_rate(config, position.epoch))
        self.policy.train()
        self._step.resize_buffers()
        device = self.device
        self._counted_s = time.perf_counter()
        launched: PendingStep | None = None
        for step in self._progress(sizes):
            if self._group.any(stop.requested, device):
                self._count(launched)
                return False
            ramp = decoder_ramp(config, self._epoch_number, step, len(sizes))
            try:
                pending = self._step.launch(position.stage, position.epoch, step, sizes[step], ramp)
            except DivergenceError as error:
                raise self._diverged(step, dict.fromkeys(WATCHED, math.nan)) from error
            self._count(launched)  # one step late, so that a GPU never waits for this process
            launched = pending
            if device.type == "cpu":  # the step is over
                self._count(launched)
                launched = None
            if time.monotonic() - self._saved_s >= SECONDS_BETWEEN_STATES:
                self._count(launched)
                launched = None
                self._save()
                self._counted_s = time.perf_counter()
        self._count(launched)
        self.policy.ramp = 1.0
        return True

    def _count(self, launched: PendingStep | None) -> None:
        """Add the numbers of a launched step to the epoch's; waits for its end.

        Raises:
            DivergenceError: If its loss or its gradient is not finite.
        """
        if launched is None:
            return
        position, sums = self.position, launched.read()
        if not is_finite(sums):
            raise self._diverged(position.step, sums)
        del sums["gradient_norm"]
        now_s = time.perf_counter()
        sums["seconds"], self._counted_s = now_s - self._counted_s, now_s
        for name, value in sums.items():
            position.sums[name] = position.sums.get(name, 0.0) + value
        position.elapsed_s += sums["seconds"]
        position.step += 1

    def _diverged(self, step: int, sums: Mapping[str, float]) -> DivergenceError:
        """What to raise for a step of the present epoch whose numbers are not finite; its batch is kept."""
        now = (self.position.stage, self.position.epoch, step)
        batch = self._step.batch(now, batch_sizes(self._stage)[step])
        return diverged(self._folder, sums, (self._run, self._epoch_number, step, self._stage.seed), self.policy, batch)

    def _save(self) -> None:
        """Write the state, without moments once the training is finished; the first process does."""
        self.position.reward_means = self._step.reward_means
        self.position.refinement_gap = self._step.refinement_gap
        self.position.splits = self._step.splits
        if self._group.leads:
            self._store.save(self.position, self.policy, None if self.finished else self._optimizer)
        self._saved_s = time.monotonic()

    def _progress(self, sizes: Sequence[int]) -> Iterable[int]:
        """Steps of the present epoch that are still to do, shown as progress by the first process."""
        steps = range(self.position.step, len(sizes))
        if not self._group.leads:
            return steps
        description = f"{self._run} epoch {self._epoch_number} of {self._config.total_epochs}"
        return progress(steps, len(sizes), description, "step", done=self.position.step)

    def _finish_epoch(self, validation: Validation | None) -> dict[str, Any]:
        """Validate, record the epoch and move to the next; the epoch's row."""
        position = self.position
        self.policy.eval()
        device = self.device
        bfloat16 = trains_in_bfloat16(device, self._config.precision)
        found = {} if validation is None else validation.run(self.policy, bfloat16, self._engine)
        row = epoch_row(
            self._epoch_number,
            position.stage + 1,
            learning_rate(self._stage, position.epoch),
            position.sums,
            found,
            peak_memory_gb(device),
        )
        self.position = replace(position, epoch=position.epoch + 1, step=0, sums={}, history=[*position.history, row])
        self._save()
        if not self._group.leads:
            return row
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
