"""Level ``parallel``: every network, on CPU and GPU, at any size.

A rollout advances all tours of a batch at once; on a GPU a few steps at a time are one CUDA graph. All decisions are
then scored in one pass (``decoding.scoring``).

Shape legend: B instances, S tours per instance, N nodes, d width.
"""

import copy
import dataclasses
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from polarvrp.decoding.graphs import CapturedCall, copy_into, detached_copy
from polarvrp.decoding.rollout import Advance, Advanced, Replay, Rollout, advance_once, follow, nothing_lost, walk
from polarvrp.decoding.sampling import Sampler
from polarvrp.decoding.scoring import score, score_gradient
from polarvrp.decoding.steps import Moves, ScoredSteps
from polarvrp.environment.environment import Environment
from polarvrp.environment.state import State
from polarvrp.model.policy import DecoderCache, Policy
from polarvrp.problem.instances import Instances

STEPS_PER_GRAPH = 8
"""Steps between two looks at whether all tours are done; the last look comes up to 7 steps late."""

KEPT_GRAPHS = 4


class ParallelEngine:
    """See :class:`polarvrp.decoding.engine.Engine`.

    Args:
        graphed: Capture the steps of a rollout; ``None``: on a GPU.
    """

    level = "parallel"
    capturable = False

    def __init__(self, graphed: bool | None = None) -> None:
        self._graphed = graphed
        self._seen: set[Hashable] = set()
        self._graphs: OrderedDict[Hashable, _GraphedSteps] = OrderedDict()

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
            advance = self._advance(policy, cache, environment, len(starts), sampler, greedy_last, record)
            made = walk(environment, starts, advance, record)
        decisions = None if made.moves is None else made.moves.pack()
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
        return Replay(made.cost, made.legal, made.moves.pack(), nothing_lost(made.cost))

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

    def _advance(
        self,
        policy: Policy,
        cache: DecoderCache,
        environment: Environment,
        num_rows: int,
        sampler: Sampler | None,
        greedy_last: bool,
        record: bool,
    ) -> Advance:
        """Step by step the first time that a shape occurs, which serves as a graph's warm-up; graphed from then on."""
        device = cache.embeddings.device
        if not (device.type == "cuda" if self._graphed is None else self._graphed):
            return advance_once(policy, cache, environment, sampler, greedy_last, record)
        key = (*_graph_key(policy, cache, environment, num_rows, sampler, greedy_last), record)
        if key not in self._seen:
            self._seen.add(key)
            return advance_once(policy, cache, environment, sampler, greedy_last, record)
        if key not in self._graphs:
            if len(self._graphs) == KEPT_GRAPHS:
                self._graphs.popitem(last=False)
            self._graphs[key] = _GraphedSteps(policy, cache, environment, num_rows, sampler, greedy_last, record)
        steps = self._graphs[key]
        self._graphs.move_to_end(key)
        steps.load(cache, environment, sampler)
        return steps.advance


class _GraphedSteps:
    """A few steps of a rollout on fixed buffers, as one CUDA graph.

    Args:
        policy: Its parameters are read where they are, so an update needs no new graph.
        cache: An example, for its shapes; and so on.
        environment: An example.
        num_rows: S.
        sampler: Its generator is captured.
        greedy_last: As of ``advance_once``; and so on.
    """

    def __init__(
        self,
        policy: Policy,
        cache: DecoderCache,
        environment: Environment,
        num_rows: int,
        sampler: Sampler | None,
        greedy_last: bool,
        record: bool,
    ) -> None:
        self._cache = detached_copy(cache)
        self._environment = copy.copy(environment)
        self._environment.constants = detached_copy(environment.constants)
        self._state = detached_copy(self._environment.reset(num_rows))
        self._sampler = sampler
        self._advance_once = advance_once(policy, self._cache, self._environment, sampler, greedy_last, record)
        generators = policy.noise_generators() | ({sampler.generator} if sampler is not None else set())
        self._captured: CapturedCall[Advanced] = CapturedCall(self._steps, cache.embeddings.device, generators)

    def load(self, cache: DecoderCache, environment: Environment, sampler: Sampler | None) -> None:
        """Take other instances of the same shapes."""
        copy_into(self._cache, cache)
        copy_into(self._environment.constants, environment.constants)
        if sampler is not None and self._sampler is not None:
            assert (sampler.first, sampler.total) == (self._sampler.first, self._sampler.total)

    def advance(self, state: State) -> tuple[State, Advanced]:
        """Go on from ``state``."""
        copy_into(self._state, state)
        made = self._captured()
        # The next call writes into the same memory, and the caller keeps what it got.
        after = dataclasses.replace(detached_copy(self._state), num_actions=state.num_actions + STEPS_PER_GRAPH)
        moves = None if made.moves is None else detached_copy(made.moves)
        return after, dataclasses.replace(detached_copy(made), moves=moves)

    def _steps(self) -> Advanced:
        state, parts = self._state, []
        for _ in range(STEPS_PER_GRAPH):
            state, made = self._advance_once(state)
            parts.append(made)
        actions = torch.cat([part.actions for part in parts], dim=-1)
        gained = torch.stack([part.log_likelihood for part in parts]).sum(0)
        recorded = [part.moves for part in parts if part.moves is not None]
        moves = Moves.join(recorded) if recorded else None  # before the state that the first one saw is written over
        copy_into(self._state, state)
        return Advanced(actions, gained, moves)


def _graph_key(
    policy: Policy,
    cache: DecoderCache,
    environment: Environment,
    num_rows: int,
    sampler: Sampler | None,
    greedy_last: bool,
) -> tuple[Hashable, ...]:
    """Everything that a captured rollout is bound to."""
    drawn: Any = None if sampler is None else (id(sampler.generator), sampler.first, sampler.total)
    return (
        id(policy),
        policy.training,
        torch.is_autocast_enabled(cache.embeddings.device.type),
        policy.ramp if isinstance(policy.ramp, float) else id(policy.ramp),
        tuple(cache.embeddings.shape),
        cache.embeddings.dtype,
        environment.num_depots,
        environment.strict,
        num_rows,
        drawn,
        greedy_last,
    )
