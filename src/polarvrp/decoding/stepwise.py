"""What the levels share that walk through the environment step by step.

Shape legend: B instances, S tours per instance, N nodes, d width.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from polarvrp.decoding.rollout import Advance, Decisions, Replay, Rollout, Task, follow, no_overflow, walk
from polarvrp.decoding.sampling import Sampler
from polarvrp.decoding.steps import Moves
from polarvrp.environment.environment import Environment
from polarvrp.model.policy import Policy


class StepwiseEngine(ABC):
    """Rollouts and replays of an engine that keeps whatever its tours do, however long they are."""

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
            made = walk(environment, starts, self._advance(task), record)
        decisions = None if made.moves is None else self._decisions(environment, made.moves)
        return Rollout(made.actions, made.cost, made.log_likelihood, decisions, no_overflow(made.cost))

    def synchronize(self, environment: Environment, tours: Rollout) -> None:  # noqa: B027  # the same for all of them
        """Nothing: lists of decisions grow as needed."""

    def resize_buffers(self) -> bool:
        """Nothing: there are no buffers of fixed size."""
        return False

    def replay(self, environment: Environment, actions: Tensor, num_free: int = 0) -> Replay:
        """Follow given tours."""
        made = follow(environment, actions, num_free)
        assert made.moves is not None
        return Replay(made.cost, made.legal, self._decisions(environment, made.moves), no_overflow(made.cost))

    @abstractmethod
    def _advance(self, task: Task) -> Advance:
        """How a rollout goes on."""

    @abstractmethod
    def _decisions(self, environment: Environment, moves: Moves) -> Decisions:
        """What to keep of recorded tours for scoring."""
