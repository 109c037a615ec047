"""Base of engines that roll out and replay through the environment step by step.

Shape legend: B instances, S tours per instance, N nodes, d width.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from polarvrp.decoding.host_copy import HostCopy
from polarvrp.decoding.rollout import (
    Decisions,
    Replay,
    Rollout,
    StepFunction,
    Task,
    no_overflow,
    replay_actions,
    rollout_loop,
)
from polarvrp.decoding.sampling import Sampler
from polarvrp.decoding.steps import Moves
from polarvrp.environment.environment import Environment
from polarvrp.model.policy import Policy


class StepwiseEngine(ABC):
    """Rollouts and replays with tables that grow as needed."""

    capturable = False

    def rollout(
        self,
        policy: Policy,
        embeddings: Tensor,
        environment: Environment,
        starts: Tensor,
        sampler: Sampler | None = None,
        *,
        greedy_last: bool = False,
        record: bool = False,
    ) -> Rollout:
        """Build tours."""
        with torch.no_grad():
            cache = policy.cache(embeddings, environment.instances)
            task = Task(policy, cache, environment, len(starts), sampler, greedy_last, record)
            made = rollout_loop(environment, starts, self._step_function(task), policy if record else None)
        decisions = None if made.moves is None else self._decisions(environment, made.moves)
        return Rollout(made.actions, made.cost, made.legal, made.log_likelihood, decisions, no_overflow(made.cost))

    def usage(self, tours: Rollout) -> HostCopy:
        """All that was needed was there."""
        return HostCopy(tours.overflow)

    def synchronize(self, environment: Environment, tours: Rollout, usage: HostCopy) -> None:  # noqa: B027  # the same for all of them
        """Nothing: lists of decisions grow as needed."""

    def resize_buffers(self) -> bool:
        """Nothing: there are no buffers of fixed size."""
        return False

    def replay(
        self, environment: Environment, actions: Tensor, num_free: int = 0, scorer: Policy | None = None
    ) -> Replay:
        """Replay given tours."""
        made = replay_actions(environment, actions, num_free, scorer)
        assert made.moves is not None
        return Replay(made.cost, made.legal, self._decisions(environment, made.moves), no_overflow(made.cost))

    @abstractmethod
    def _step_function(self, task: Task) -> StepFunction:
        """Step function of a rollout."""

    @abstractmethod
    def _decisions(self, environment: Environment, moves: Moves) -> Decisions:
        """Decisions for scoring, of recorded tours."""
