"""Engine level ``parallel``: batched tensor operations, for every network, on CPU and GPU, at any size.

A rollout advances all tours of a batch at once; on a GPU a few steps at a time are one CUDA graph. All decisions are
then scored in one pass (``decoding.scoring``).

Shape legend: B instances, S tours per instance, N nodes, d width.
"""

import copy
import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Hashable

import torch
from torch import Tensor

from polarvrp.decoding.graphs import CapturedCall, CaptureError, copy_into, detached_copy
from polarvrp.decoding.rollout import StepFunction, StepOutput, Task, policy_step
from polarvrp.decoding.scoring import score, score_gradient
from polarvrp.decoding.steps import Moves, ScoredSteps
from polarvrp.decoding.stepwise import StepwiseEngine
from polarvrp.environment.environment import Environment
from polarvrp.environment.state import State
from polarvrp.errors import is_out_of_memory
from polarvrp.model.policy import Policy
from polarvrp.problem.instances import Instances

logger = logging.getLogger(__name__)

STEPS_PER_GRAPH = 8
"""Steps between two looks at whether all tours are done; the last look comes up to 7 steps late."""

KEPT_GRAPHS = 4


class ParallelEngine(StepwiseEngine):
    """See :class:`polarvrp.decoding.engine.Engine`.

    Args:
        graphed: Capture the steps of a rollout; ``None``: on a GPU.
    """

    level = "parallel"

    def __init__(self, graphed: bool | None = None) -> None:
        self._graphed = graphed
        self._seen: set[Hashable] = set()
        self._graphs: OrderedDict[Hashable, _GraphedSteps] = OrderedDict()

    def score(self, policy: Policy, embeddings: Tensor, instances: Instances[Tensor], decisions: ScoredSteps) -> Tensor:
        """Log-likelihood of each tour."""
        return score(policy, embeddings, instances, decisions)

    def score_gradient(
        self,
        policy: Policy,
        embeddings: Tensor,
        instances: Instances[Tensor],
        decisions: ScoredSteps,
        coefficients: Tensor,
    ) -> None:
        """Add the gradient."""
        score_gradient(policy, embeddings, instances, decisions, coefficients)

    def _step_function(self, task: Task) -> StepFunction:
        """Step by step the first time that a shape occurs, which serves as a graph's warm-up; graphed from then on.

        Raises:
            CaptureError: If steps that draw random numbers cannot be captured; greedy ones then run one by one.
        """
        if not (task.cache.embeddings.is_cuda if self._graphed is None else self._graphed):
            return policy_step(task)
        key = _graph_key(task)
        if key not in self._seen:
            self._seen.add(key)
            return policy_step(task)
        if key not in self._graphs:
            if len(self._graphs) == KEPT_GRAPHS:
                self._graphs.popitem(last=False)
            try:
                self._graphs[key] = _GraphedSteps(task)
            except CaptureError as error:
                if is_out_of_memory(error) or _generators(task):
                    raise
                logger.warning("%s; steps of rollouts run one by one from here on", str(error).partition("\n")[0])
                self._graphed = False
                return policy_step(task)
        steps = self._graphs[key]
        self._graphs.move_to_end(key)
        steps.load(task)
        return steps.advance

    def _decisions(self, environment: Environment, moves: Moves) -> ScoredSteps:
        return moves.pack()


class _GraphedSteps:
    """CUDA graph of a few rollout steps on fixed buffers.

    Args:
        task: An example, for its shapes. Its policy's parameters are read where they are, so an update needs no new
            graph; its sampler's generator is captured.
    """

    def __init__(self, task: Task) -> None:
        environment = copy.copy(task.environment)
        environment.constants = detached_copy(environment.constants)
        self._task = dataclasses.replace(task, cache=detached_copy(task.cache), environment=environment)
        self._state = detached_copy(environment.reset(task.num_rows))
        self._step_once = policy_step(self._task)
        self._captured: CapturedCall[StepOutput] = CapturedCall(
            self._run_steps, task.cache.embeddings.device, _generators(task)
        )

    def load(self, task: Task) -> None:
        """Take other instances of the same shapes."""
        copy_into(self._task.cache, task.cache)
        copy_into(self._task.environment.constants, task.environment.constants)

    def advance(self, state: State) -> tuple[State, StepOutput]:
        """The next steps from ``state``."""
        copy_into(self._state, state)
        made = self._captured()
        # The next call writes into the same memory, and the caller keeps what it got.
        after = dataclasses.replace(detached_copy(self._state), num_actions=state.num_actions + STEPS_PER_GRAPH)
        moves = None if made.moves is None else detached_copy(made.moves)
        return after, dataclasses.replace(detached_copy(made), moves=moves)

    def _run_steps(self) -> StepOutput:
        state, parts = self._state, []
        for _ in range(STEPS_PER_GRAPH):
            state, made = self._step_once(state)
            parts.append(made)
        actions = torch.cat([part.actions for part in parts], dim=-1)
        gained = torch.stack([part.log_likelihood for part in parts]).sum(0)
        recorded = [part.moves for part in parts if part.moves is not None]
        moves = Moves.join(recorded) if recorded else None  # before the state that the first one saw is written over
        copy_into(self._state, state)
        return StepOutput(actions, gained, moves)


def _generators(task: Task) -> set[torch.Generator]:
    """All that the steps of a rollout draw from."""
    return task.policy.noise_generators() | (set() if task.sampler is None else {task.sampler.generator})


def _graph_key(task: Task) -> Hashable:
    """Cache key of a captured rollout: everything that it is bound to."""
    policy, sampler, embeddings = task.policy, task.sampler, task.cache.embeddings
    return (
        id(policy),
        policy.training,
        torch.is_autocast_enabled(embeddings.device.type),
        policy.ramp if isinstance(policy.ramp, float) else id(policy.ramp),
        tuple(embeddings.shape),
        embeddings.dtype,
        task.environment.num_depots,
        task.environment.strict,
        task.num_rows,
        None if sampler is None else (id(sampler.generator), sampler.first, sampler.total),
        task.greedy_last,
        task.record,
    )
