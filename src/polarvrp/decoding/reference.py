"""Level ``reference``: the definition, step by step, gradients through a graph of all steps.

Shape legend: B instances, S tours per instance, T actions, N nodes, d width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from polarvrp.decoding.rollout import Replay, Rollout, advance_once, follow, nothing_lost, walk
from polarvrp.decoding.sampling import Sampler
from polarvrp.decoding.steps import Moves
from polarvrp.environment.environment import Environment
from polarvrp.model.policy import Policy
from polarvrp.problem.instances import Instances


@dataclass(frozen=True, slots=True)
class WalkedTours:
    """Tours to walk again.

    Attributes:
        environment: Their instances.
        moves: What they did; only the actions and which of them were decisions are read.
    """

    environment: Environment
    moves: Moves


class ReferenceEngine:
    """See :class:`polarvrp.decoding.engine.Engine`."""

    level = "reference"
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
        advance = advance_once(policy, cache, environment, sampler, greedy_last, record)
        made = walk(environment, starts, advance, record)
        decisions = None if made.moves is None else WalkedTours(environment, made.moves)
        return Rollout(made.actions, made.cost, made.log_likelihood, decisions, nothing_lost(made.cost))

    def settle(self, environment: Environment, tours: Rollout) -> None:
        """Nothing is ever lost."""

    def fit(self) -> bool:
        """There is nothing to adapt."""
        return False

    def replay(self, environment: Environment, actions: Tensor, num_free: int = 0) -> Replay:
        """Follow given tours."""
        made = follow(environment, actions, num_free)
        assert made.moves is not None
        decisions = WalkedTours(environment, made.moves)
        return Replay(made.cost, made.legal, decisions, nothing_lost(made.cost))

    @torch.no_grad()
    def score(self, policy: Policy, embeddings: Tensor, instances: Instances[Tensor], decisions: WalkedTours) -> Tensor:
        """Log-likelihood of each tour."""
        return self._walk_again(policy, embeddings, instances, decisions)[0]

    def score_gradient(
        self,
        policy: Policy,
        embeddings: Tensor,
        instances: Instances[Tensor],
        decisions: WalkedTours,
        coefficients: Tensor,
    ) -> None:
        """Add the gradient."""
        likelihood, auxiliary = self._walk_again(policy, embeddings, instances, decisions)
        torch.autograd.backward((coefficients * likelihood).sum() + auxiliary)

    def _walk_again(
        self, policy: Policy, embeddings: Tensor, instances: Instances[Tensor], decisions: WalkedTours
    ) -> tuple[Tensor, Tensor]:
        """Log-likelihoods ``[B, S]`` and auxiliary loss, one decoder call an action."""
        environment, moves = decisions.environment, decisions.moves
        cache = policy.cache(embeddings, instances)
        state = environment.reset(moves.action.shape[2])
        likelihood = auxiliary = state.time.new_zeros(())
        for index in range(moves.action.shape[1]):
            action = moves.action[:, index]
            log_probs, extra = policy.log_probs(cache, state.current, environment.features(state), state.mask)
            chosen = log_probs.gather(-1, action[..., None]).squeeze(-1)
            likelihood = likelihood + torch.where(moves.decided[:, index], chosen, torch.zeros_like(chosen))
            auxiliary = auxiliary + extra
            state = environment.step(state, action)
        return likelihood, auxiliary
