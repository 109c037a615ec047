"""One training step: fresh instances, tours without gradients, one coefficient a tour, gradients in one pass."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.config.training import TrainConfig
from polarvrp.decoding.engine import make_engine
from polarvrp.decoding.graphs import CaptureError
from polarvrp.decoding.host_copy import HostCopy
from polarvrp.decoding.parallel import ParallelEngine
from polarvrp.decoding.rollout import BufferOverflowError
from polarvrp.errors import EngineError, is_out_of_memory
from polarvrp.local_search.refinement import Refiner
from polarvrp.model.policy import Policy
from polarvrp.problem.instances import Instances
from polarvrp.problem.torch_generator import draw_variants
from polarvrp.problem.variants import VARIANTS, Kind
from polarvrp.seeds import derive_seed
from polarvrp.training.clock import PhaseClock
from polarvrp.training.group import SINGLE, Group
from polarvrp.training.instances import source_of
from polarvrp.training.microbatch import SUMS, StepContext
from polarvrp.training.objectives import MARGINS, objective_of
from polarvrp.training.plan import WARM_UP_RUNS
from polarvrp.training.rewards import RewardNormalizer
from polarvrp.training.schedule import refinement_weight, refines
from polarvrp.training.shaped_step import GRADIENT_NORM, ShapedStep

logger = logging.getLogger(__name__)

GAP_MEMORY = 0.9
"""Share of the old running mean of refinement gaps in the new one."""

Shape: TypeAlias = tuple[int, bool, bool, int, tuple[str, ...]]
"""Stage, whether tours are refined, whether the decoder is ramped up, batch size, variants."""


class TrainingStep:
    """Runs the steps of one training; all randomness of a step derives from the seed, the epoch and its number.

    Args:
        policy: Network in training.
        optimizer: Over its parameters.
        config: Recipe of one stage.
        bfloat16: Whether matrix products run in bfloat16.
        refiner: Local search; None where the recipe never refines.
        reward_means: Running means of the normaliser so far, of an earlier process.
        refinement_gap: Running mean of the gap between best sampled and refined tours so far, likewise.
        engine: One of ``decoding.engine.LEVELS``.
        group: Processes that share the training.
        splits: Parts that microbatches are cut into, of an earlier process that was short of memory.
    """

    def __init__(
        self,
        policy: Policy,
        optimizer: torch.optim.Optimizer,
        config: TrainConfig,
        bfloat16: bool,
        refiner: Refiner | None,
        reward_means: list[float] | None = None,
        refinement_gap: float | None = None,
        engine: str = "auto",
        group: Group = SINGLE,
        splits: int = 1,
    ) -> None:
        self.splits = splits
        self._policy, self._optimizer, self._config = policy, optimizer, config
        self._refiner, self._group, self._level = refiner, group, engine
        self._device = next(policy.parameters()).device
        self._source = source_of(config, self._device)
        normalizes = config.normalize_rewards and "normalize_rewards" in PARADIGMS[config.paradigm].settings
        self._context = StepContext(
            policy,
            make_engine(
                policy,
                config.num_customers + most_depots(config),
                engine,
                bfloat16=bfloat16,
                kinds=kinds_of(config),
            ),
            config,
            bfloat16,
            objective_of(config),
            RewardNormalizer(reward_means or [], self._device) if normalizes else None,
            torch.ones((), device=self._device) if config.refinement_ramp > 0 else None,
        )
        self.refinement_gap = refinement_gap
        self._steps = 0
        self._last: PendingStep | None = None
        self._ramp = torch.ones((), device=self._device)
        self._shaped: dict[Shape, ShapedStep] = {}
        # Work on a stream of its own: the default one cannot be captured, and backward passes stay on their stream.
        on_gpu = self._device.type == "cuda"
        self._stream = torch.cuda.Stream(self._device) if on_gpu else None  # type: ignore[no-untyped-call]

    @property
    def level(self) -> str:
        """The engine's level."""
        return self._context.engine.level

    @property
    def reward_means(self) -> list[float]:
        """Running means of the normaliser, to be kept in checkpoints."""
        return [] if self._context.normalizer is None else self._context.normalizer.means

    def resize_buffers(self) -> None:
        """Adapt the engine's buffers to the steps since the last time; done once the first ones have warmed up too."""
        if self._context.engine.resize_buffers():
            self._shaped.clear()

    def run(self, stage: int, epoch: int, step: int, batch_size: int, ramp: float = 1.0) -> dict[str, float]:
        """One update of the parameters; arguments and result as of :meth:`launch` and :meth:`PendingStep.read`."""
        return self.launch(stage, epoch, step, batch_size, ramp).read()

    def launch(self, stage: int, epoch: int, step: int, batch_size: int, ramp: float = 1.0) -> "PendingStep":
        """One update of the parameters, which a GPU may still be busy with on return.

        Args:
            stage: From 0.
            epoch: From 1 within the stage.
            step: From 0 within the epoch.
            batch_size: Instances to draw.
            ramp: How much of the decoder's residual block is on.

        Returns:
            Its sums, on their way to main memory.
        """
        refined = self._refiner is not None and refines(self._config, epoch)
        if self._context.refinement_weight is not None and self._last is not None:
            self._last.read()  # its gap decides on this step's weight
        weight = refinement_weight(self._config, self.refinement_gap, ramp)
        variants = self._variants((stage, epoch, step))
        key = (stage, refined, ramp < 1.0, batch_size, variants)
        if self._stream is not None:  # learning rate and restored state were written on the caller's stream
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            self._ramp.fill_(ramp)
            self._policy.ramp = self._ramp if ramp < 1.0 else 1.0
            if self._context.refinement_weight is not None:
                self._context.refinement_weight.fill_(weight)
            sums, clock = self._attempt(key, (stage, epoch, step))
        self._steps += 1
        if self._steps == WARM_UP_RUNS:  # before anything is captured with too much room
            self.resize_buffers()
        self._last = PendingStep(self, sums, clock, weight if refined else None)
        return self._last

    def named(self, sums: Sequence[float], weight: float | None) -> dict[str, float]:
        """Sums of a step by their names.

        Args:
            sums: Over instances, in the order of ``microbatch.SUMS``, and the norm of the gradient.
            weight: Of refinement in that step, None if it did not refine.
        """
        named = dict(zip((*SUMS, GRADIENT_NORM), sums, strict=True))
        paradigm = PARADIGMS[self._config.paradigm]
        if not paradigm.greedy_row:
            del named["greedy_cost"]
        if not paradigm.compares_pairs:
            named = {key: value for key, value in named.items() if key not in MARGINS}
        if weight is not None and self._context.refinement_weight is not None:
            named["refinement_weight"] = weight * named["instances"]
        return named

    def follow_gap(self, named: Mapping[str, float]) -> None:
        """Move the running mean of the gap of refined tours by a step whose weight of refinement follows it.

        Args:
            named: Sums of the step by their names.
        """
        if "refinement_weight" not in named:
            return
        gap = named["refinement_improvement"] / (named["instances"] * self._config.refined_tours)
        old = gap if self.refinement_gap is None else self.refinement_gap
        self.refinement_gap = GAP_MEMORY * old + (1 - GAP_MEMORY) * gap

    def _attempt(self, key: Shape, now: tuple[int, int, int]) -> tuple[HostCopy, PhaseClock]:
        """A step, made again as long as buffers overflow or memory is short; no parameter has changed by then."""
        normalizer = self._context.normalizer
        means = None if normalizer is None else normalizer.snapshot()
        while True:
            try:
                return self._shaped_step(key).run(now)
            except BufferOverflowError as error:
                logger.info("%s", error)
            except CaptureError as error:
                if not self._halve(error, key):
                    self._leave_graphs(error, self._shaped[key].added_up)
            except RuntimeError as error:
                if not self._halve(error, key):
                    raise
            self._shaped.clear()
            self._optimizer.zero_grad(set_to_none=True)
            if self._device.type == "cuda":
                torch.cuda.empty_cache()
            if normalizer is not None and means is not None:
                normalizer.restore(means)

    def _halve(self, error: RuntimeError, key: Shape) -> bool:
        """Cut microbatches into halves if memory was short; the batch, and so the update, stays the same.

        Processes that share a training would have to agree on it, and stop instead.
        """
        largest = max(share.size for share in self._group.shares(key[3], self.splits))
        if not is_out_of_memory(error) or self._group.size > 1 or largest == 1:
            return False
        self.splits *= 2
        logger.warning(
            "out of memory: from here on %d instances are taken in parts of at most %d; the update stays that of all",
            *(key[3], -(-largest // 2)),
        )
        return True

    def _leave_graphs(self, error: CaptureError, added_up: bool) -> None:
        """Go on with level parallel, which captures no phase, unless another level was asked for.

        Args:
            error: Of the capture.
            added_up: Whether other processes have gone on with this step.

        Raises:
            EngineError: If level fused was, or others have.
        """
        reason = str(error).partition("\n")[0]
        if self._level == "fused":
            raise EngineError(f"engine fused: {reason}; use engine parallel") from error
        if added_up:
            raise EngineError(f"{reason}, and other processes have gone on; use engine parallel") from error
        logger.warning("%s; engine parallel is used from here on", reason)
        graphed = None if self._context.engine.level == "fused" else False
        self._context = replace(self._context, engine=ParallelEngine(graphed))

    def batch(self, now: tuple[int, int, int], batch_size: int) -> Instances[Tensor]:
        """The instances of a step, drawn again.

        Args:
            now: Stage, epoch and step.
            batch_size: How many.
        """
        generator = torch.Generator(self._device)
        generator.manual_seed(derive_seed(self._config.seed, "data", *now))
        return self._source.draw(self._config, batch_size, generator, variants=self._variants(now))

    def _variants(self, now: tuple[int, int, int]) -> tuple[str, ...]:
        """What the batch is drawn from: variants with the same number of depots."""
        generator = torch.Generator().manual_seed(derive_seed(self._config.seed, "depots", *now))
        return draw_variants(self._source.variants, generator)

    def _shaped_step(self, key: Shape) -> ShapedStep:
        _, refined, _, batch_size, variants = key
        if key not in self._shaped:
            # Graphs of a stage, of steps without refinement, or of the first epoch only hold memory once that is over.
            if any(old[:3] != key[:3] for old in self._shaped):
                self._shaped.clear()
            refiner = self._refiner if refined else None
            draw = partial(self._source.draw, self._config, batch_size, variants=variants)
            self._shaped[key] = ShapedStep(
                self._context, self._optimizer, self._group, refiner, batch_size, draw, self.splits
            )
        return self._shaped[key]


class PendingStep:
    """A step whose numbers are on their way: read one step late, they cost no waiting.

    Args:
        owner: Of the step.
        sums: Over instances, in the order of ``microbatch.SUMS``, and the norm of the gradient.
        clock: Of its phases.
        weight: Of refinement, None if it did not refine.
    """

    def __init__(self, owner: TrainingStep, sums: HostCopy, clock: PhaseClock, weight: float | None) -> None:
        self._owner: TrainingStep | None = owner  # until it is read: a cycle would hold the memory of graphs for long
        self._sums, self._clock, self._weight = sums, clock, weight
        self._numbers: dict[str, float] = {}

    def read(self) -> dict[str, float]:
        """Numbers of the step; waits for its end.

        Returns:
            ``instances``; sums over instances of ``loss``, ``sampled_cost``, ``greedy_cost`` (POLAR) and
            ``best_cost``; ``refined_tours`` and the sums of their ``refinement_improvement`` and
            ``refinement_likelihood_change``; under a ramp also of ``refinement_weight``; ``objectives.MARGINS`` where
            tours are compared; ``seconds_{phase}``; ``gradient_norm`` before it was clipped.
        """
        if self._owner is not None:
            named = self._owner.named(self._sums.read(), self._weight)
            self._owner.follow_gap(named)
            seconds = {f"seconds_{phase}": value for phase, value in self._clock.read().items()}
            self._numbers, self._owner = named | seconds, None
        return dict(self._numbers)


def most_depots(config: TrainConfig) -> int:
    """Depots of the training instances that have the most."""
    return max(VARIANTS[name].num_depots for name in config.drawn_variants)


def kinds_of(config: TrainConfig) -> list[Kind]:
    """Kinds of the training instances, each once."""
    return sorted({VARIANTS[name].kind for name in config.drawn_variants})
