"""Steps of one shape: their phases in order, run one by one or, on a GPU, replayed as graphs.

Refinement on CPU cores overlaps with the device: the batch then goes through the step in microbatches, each handed to
the cores as soon as its tours are built.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from polarvrp.decoding.host_copy import HostCopy
from polarvrp.local_search.refinement import Refiner
from polarvrp.problem.instances import Instances
from polarvrp.seeds import derive_seed
from polarvrp.training.clock import PhaseClock
from polarvrp.training.group import Group, flatten, unflatten
from polarvrp.training.microbatch import Microbatch, StepContext
from polarvrp.training.plan import Plan

MICROBATCHES_WHILE_REFINING = 2

GRADIENT_NORM = "gradient_norm"
"""Last of a step's numbers, before the gradient is clipped."""


class ShapedStep:
    """Steps of one shape: their phases and, on a GPU, their graphs.

    Args:
        context: Of the training.
        optimizer: Over the policy's parameters.
        group: Processes that share the training.
        refiner: Local search; None where these steps do not refine.
        batch_size: Instances of a step.
        draw: Gives them from the state of a generator.
        splits: Parts that microbatches are cut into.

    Attributes:
        added_up: Whether the last step has added something up over several processes; it cannot be made again then,
            since the others would take what it adds for what follows.
    """

    def __init__(
        self,
        context: StepContext,
        optimizer: torch.optim.Optimizer,
        group: Group,
        refiner: Refiner | None,
        batch_size: int,
        draw: Callable[[torch.Generator], Instances[Tensor]],
        splits: int = 1,
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
        shares = group.shares(batch_size, splits * (MICROBATCHES_WHILE_REFINING if self._on_cores else 1))
        self._microbatches = [
            Microbatch(context, share, torch.Generator(self._device), torch.Generator(self._device)) for share in shares
        ]
        generators = [self._data, *(each for microbatch in self._microbatches for each in microbatch.generators)]
        captured = self._device.type == "cuda" and context.engine.capturable and batch_size == config.batch_size
        self._plan = Plan(self._device, captured, generators)
        self.added_up = False
        self._gradient_norm = torch.zeros((), device=self._device)
        self._means: Tensor | None = None

    def run(self, now: tuple[int, int, int]) -> tuple[HostCopy, PhaseClock]:
        """One update of the parameters.

        Args:
            now: Stage, epoch and step.

        Returns:
            Sums over instances in the order of ``microbatch.SUMS`` with the norm of the gradient, and the clock of the
            phases.

        Raises:
            BufferOverflowError, CaptureError: Before any parameter has changed.
        """
        plan, refines, self.added_up = self._plan, self._refiner is not None, False
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
                self._normalize_alike(number, clock)
            plan.run("score", f"loss {number}", microbatch.compute_loss)
            plan.run("backward", f"backward {number}", microbatch.backward)
        if self._group.size > 1:
            plan.run("backward", "flatten", self._flatten)
            with clock.phase("backward"):
                self._add_up(self._gradient)
        if not self._waits_early:  # the device has enough to do by now
            for microbatch in self._microbatches:
                microbatch.synchronize()
        plan.run("optimiser", "update", self._update)
        sums = torch.stack([microbatch.sums for microbatch in self._microbatches]).sum(0)
        self._add_up(sums)
        return HostCopy(torch.cat((sums, self._gradient_norm.double()[None]))), clock

    def _generate(self) -> None:
        instances = self._draw(self._data)
        for microbatch in self._microbatches:
            microbatch.take(instances)

    def _normalize_alike(self, number: int, clock: PhaseClock) -> None:
        """Before the loss of a microbatch: statistics of the whole batch, and the means that it began with."""
        normalizer = self._context.normalizer
        assert normalizer is not None
        if number > 0:
            assert self._means is not None
            normalizer.restore(self._means)
            return
        for place, microbatch in enumerate(self._microbatches):
            self._plan.run("score", f"reward_statistics {place}", microbatch.reward_statistics)
        with clock.phase("score"):  # never captured: processes capture at different steps
            self._means = normalizer.snapshot()
            total = torch.stack([microbatch.statistics for microbatch in self._microbatches]).sum(0)
            self._add_up(total)
            for microbatch in self._microbatches:
                microbatch.statistics.copy_(total)

    def _add_up(self, tensor: Tensor) -> None:
        self.added_up = self._group.size > 1
        self._group.add_up(tensor)

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
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, self._context.config.gradient_clip)
        self._gradient_norm.copy_(norm)
        if self._optimizer.defaults.get("fused"):
            # Leaves everything as it is where this is 1, without anybody waiting for the device. It stays 1, since
            # numbers are read one step late and the network that diverged is to be kept, not that of the next step.
            diverged: Tensor = self._optimizer.found_inf  # type: ignore[attr-defined]
            diverged.copy_(torch.maximum(diverged, (~self._gradient_norm.isfinite()).float()))
            self._optimizer.step()
        elif bool(self._gradient_norm.isfinite()):
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
