"""One training step: fresh instances, tours without gradients, one coefficient a tour, gradients in one pass.

Refinement on CPU cores overlaps with the device: the batch then goes through the step in microbatches, each handed to
the cores as soon as its tours are built.
"""

import logging
from collections.abc import Callable, Sequence
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
from polarvrp.errors import EngineError
from polarvrp.local_search.refinement import Refiner
from polarvrp.model.policy import Policy
from polarvrp.problem.instances import Instances
from polarvrp.problem.torch_generator import draw_variants
from polarvrp.problem.variants import VARIANTS
from polarvrp.seeds import derive_seed
from polarvrp.training.clock import PhaseClock
from polarvrp.training.group import SINGLE, Group, flatten, unflatten
from polarvrp.training.instances import source_of
from polarvrp.training.microbatch import SUMS, Microbatch, StepContext
from polarvrp.training.objectives import MARGINS, compares, objective_of
from polarvrp.training.plan import WARM_UP_RUNS, Plan
from polarvrp.training.rewards import RewardNormalizer
from polarvrp.training.schedule import refinement_weight, refines

logger = logging.getLogger(__name__)

MICROBATCHES_WHILE_REFINING = 2

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
    ) -> None:
        self._policy, self._optimizer, self._config = policy, optimizer, config
        self._refiner, self._group, self._level = refiner, group, engine
        self._device = next(policy.parameters()).device
        self._source = source_of(config, self._device)
        normalizes = config.normalize_rewards and "normalize_rewards" in PARADIGMS[config.paradigm].settings
        self._context = StepContext(
            policy,
            make_engine(policy, config.num_customers + most_depots(config), engine, bfloat16=bfloat16),
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
        """Sums of a step by their names; notes the gap of refined tours where the weight of refinement follows it.

        Args:
            sums: Over instances, in the order of ``microbatch.SUMS``.
            weight: Of refinement in that step, None if it did not refine.
        """
        named = dict(zip(SUMS, sums, strict=True))
        if not PARADIGMS[self._config.paradigm].greedy_row:
            del named["greedy_cost"]
        if not compares(self._config):
            named = {key: value for key, value in named.items() if key not in MARGINS}
        if weight is not None and self._context.refinement_weight is not None:
            named["refinement_weight"] = weight * named["instances"]
            gap = named["refinement_improvement"] / (named["instances"] * self._config.refined_tours)
            old = gap if self.refinement_gap is None else self.refinement_gap
            self.refinement_gap = GAP_MEMORY * old + (1 - GAP_MEMORY) * gap
        return named

    def _attempt(self, key: Shape, now: tuple[int, int, int]) -> tuple[HostCopy, PhaseClock]:
        """A step, made again as long as buffers overflow; no parameter has changed by then."""
        normalizer = self._context.normalizer
        means = None if normalizer is None else normalizer.snapshot()
        while True:
            try:
                return self._shaped_step(key).run(now)
            except BufferOverflowError as error:
                logger.info("%s", error)
            except CaptureError as error:
                self._leave_graphs(error)
            self._shaped.clear()
            self._optimizer.zero_grad(set_to_none=True)
            if normalizer is not None and means is not None:
                normalizer.restore(means)

    def _leave_graphs(self, error: CaptureError) -> None:
        """Go on with level parallel, which captures no phase, unless another level was asked for.

        Raises:
            EngineError: If level fused was.
        """
        reason = str(error).partition("\n")[0]
        if self._level == "fused":
            raise EngineError(f"engine fused: {reason}; use engine parallel") from error
        logger.warning("%s; engine parallel is used from here on", reason)
        graphed = None if self._context.engine.level == "fused" else False
        self._context = replace(self._context, engine=ParallelEngine(graphed))

    def _variants(self, now: tuple[int, int, int]) -> tuple[str, ...]:
        """What the batch is drawn from: variants with the same number of depots."""
        generator = torch.Generator().manual_seed(derive_seed(self._config.seed, "depots", *now))
        return draw_variants(self._source.variants, generator)

    def _shaped_step(self, key: Shape) -> "ShapedStep":
        _, refined, _, batch_size, variants = key
        if key not in self._shaped:
            # Graphs of a stage, of steps without refinement, or of the first epoch only hold memory once that is over.
            if any(old[:3] != key[:3] for old in self._shaped):
                self._shaped.clear()
            refiner = self._refiner if refined else None
            draw = partial(self._source.draw, self._config, batch_size, variants=variants)
            self._shaped[key] = ShapedStep(self._context, self._optimizer, self._group, refiner, batch_size, draw)
        return self._shaped[key]


class PendingStep:
    """A step whose numbers are on their way: read one step late, they cost no waiting.

    Args:
        owner: Of the step.
        sums: Over instances, in the order of ``microbatch.SUMS``.
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
            tours are compared; ``seconds_{phase}``.
        """
        if self._owner is not None:
            named = self._owner.named(self._sums.read(), self._weight)
            seconds = {f"seconds_{phase}": value for phase, value in self._clock.read().items()}
            self._numbers, self._owner = named | seconds, None
        return dict(self._numbers)


class ShapedStep:
    """Steps of one shape: their phases and, on a GPU, their graphs.

    Args:
        context: Of the training.
        optimizer: Over the policy's parameters.
        group: Processes that share the training.
        refiner: Local search; None where these steps do not refine.
        batch_size: Instances of a step.
        draw: Gives them from the state of a generator.
    """

    def __init__(
        self,
        context: StepContext,
        optimizer: torch.optim.Optimizer,
        group: Group,
        refiner: Refiner | None,
        batch_size: int,
        draw: Callable[[torch.Generator], Instances[Tensor]],
    ) -> None:
        config = context.config
        self._context, self._optimizer, self._group = context, optimizer, group
        self._refiner, self._draw = refiner, draw
        self._on_cores = refiner is not None and config.refiner == "pyvrp"
        # Cores need sound tours; and processes must agree on a step before they add anything up.
        self._waits_early = self._on_cores or group.size > 1
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._device = self._parameters[0].device
        self._data = torch.Generator(self._device)
        shares = group.shares(batch_size, MICROBATCHES_WHILE_REFINING if self._on_cores else 1)
        self._microbatches = [
            Microbatch(context, share, torch.Generator(self._device), torch.Generator(self._device)) for share in shares
        ]
        generators = [self._data, *(each for microbatch in self._microbatches for each in microbatch.generators)]
        captured = self._device.type == "cuda" and context.engine.capturable and batch_size == config.batch_size
        self._plan = Plan(self._device, captured, generators)

    def run(self, now: tuple[int, int, int]) -> tuple[HostCopy, PhaseClock]:
        """One update of the parameters.

        Args:
            now: Stage, epoch and step.

        Returns:
            Sums over instances in the order of ``microbatch.SUMS``, and the clock of the phases.

        Raises:
            BufferOverflowError, CaptureError: Before any parameter has changed.
        """
        plan, refines = self._plan, self._refiner is not None
        self._data.manual_seed(derive_seed(self._context.config.seed, "data", *now))
        clock = plan.begin()
        plan.run("generate", "generate", self._generate)
        for number, microbatch in enumerate(self._microbatches):
            microbatch.seed(now)
            plan.run("encode", f"encode {number}", microbatch.encode)
            plan.run("rollout", f"decode {number}", microbatch.decode)
            microbatch.fetch_usage()
            if self._waits_early:
                microbatch.synchronize()
            if refines:
                self._start_refinement(number, microbatch, now)
        for number, microbatch in enumerate(self._microbatches):
            if self._on_cores:
                with clock.phase("refine"):
                    microbatch.collect()
            if refines:
                plan.run("refine", f"replay {number}", microbatch.replay)
            if self._context.normalizer is not None and not refines:
                plan.run("score", f"reward_statistics {number}", microbatch.reward_statistics)
                with clock.phase("score"):  # never captured: processes capture at different steps
                    self._group.add_up(microbatch.statistics)
            plan.run("score", f"loss {number}", microbatch.compute_loss)
            plan.run("backward", f"backward {number}", microbatch.backward)
        if self._group.size > 1:
            plan.run("backward", "flatten", self._flatten)
            with clock.phase("backward"):
                self._group.add_up(self._gradient)
        if not self._waits_early:  # the device has enough to do by now
            for microbatch in self._microbatches:
                microbatch.synchronize()
        plan.run("optimiser", "update", self._update)
        sums = torch.stack([microbatch.sums for microbatch in self._microbatches]).sum(0)
        self._group.add_up(sums)
        return HostCopy(sums), clock

    def _generate(self) -> None:
        instances = self._draw(self._data)
        for microbatch in self._microbatches:
            microbatch.take(instances)

    def _start_refinement(self, number: int, microbatch: Microbatch, now: tuple[int, int, int]) -> None:
        self._plan.run("rollout", f"select {number}", microbatch.select_tours)
        if self._on_cores:
            assert self._refiner is not None
            microbatch.submit(self._refiner, now)
        else:
            self._plan.run("refine", f"search {number}", microbatch.search)

    def _flatten(self) -> None:
        """The gradient as one vector; parameters that took no part count 0."""
        self._gradient = flatten([torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters])

    def _update(self) -> None:
        if self._group.size > 1:
            for parameter in self._parameters:
                if parameter.grad is None:
                    parameter.grad = torch.empty_like(parameter)
            unflatten(self._gradient, [p.grad for p in self._parameters if p.grad is not None])
        torch.nn.utils.clip_grad_norm_(self._parameters, self._context.config.gradient_clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


def most_depots(config: TrainConfig) -> int:
    """Depots of the training instances that have the most."""
    return max(VARIANTS[name].num_depots for stage in config.stages for name in stage.variants)
