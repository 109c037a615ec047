"""Level ``reference``: the definition, step by step, gradients through a graph of all steps.

Shape legend: B instances, S tours per instance, T actions, N nodes, d width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from polarvrp.decoding.rollout import StepFunction, Task, policy_step
from polarvrp.decoding.steps import Moves
from polarvrp.decoding.stepwise import StepwiseEngine
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


class ReferenceEngine(StepwiseEngine):
    """See :class:`polarvrp.decoding.engine.Engine`."""

    level = "reference"

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
            features, noise = environment.features(state), moves.noise[:, index]
            log_probs, extra = policy.log_probs(cache, state.current, features, state.mask, noise=noise)
            chosen = log_probs.gather(-1, action[..., None]).squeeze(-1)
            likelihood = likelihood + torch.where(moves.decided[:, index], chosen, torch.zeros_like(chosen))
            auxiliary = auxiliary + extra
            state = environment.step(state, action)
        return likelihood, auxiliary

    def _step_function(self, task: Task) -> StepFunction:
        return policy_step(task)

    def _decisions(self, environment: Environment, moves: Moves) -> WalkedTours:
        return WalkedTours(environment, moves)
