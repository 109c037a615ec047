"""Engine level ``fused``: one kernel rolls out all tours to their end, kernels score the packed decisions.

Shapes are fixed beforehand, so the table of decisions has a capacity. It starts generous, follows what trainings
need, and what finds no room is noticed and computed again with more.

Shape legend: B instances, S tours per instance, N nodes, n customers, d width.
"""

import math

import torch
from torch import Tensor

from polarvrp.decoding.fused.packing import TILE, PackedDecisions, pack
from polarvrp.decoding.fused.rollout import fused_replay, fused_rollout
from polarvrp.decoding.fused.scoring import fused_score, fused_score_gradient
from polarvrp.decoding.host_copy import HostCopy
from polarvrp.decoding.rollout import BufferOverflowError, Replay, Rollout, stuck_tours
from polarvrp.decoding.sampling import Sampler
from polarvrp.environment.environment import Environment
from polarvrp.model.policy import Policy
from polarvrp.problem.instances import Instances

INITIAL_ROOM = 1.6
"""Decisions per customer of a tour that the table has room for; trained policies need 0.9, untrained ones more."""

EMPTY_SHARE = 0.5
"""Of an instance's last tile, on average."""

SPARE_ROOM = 1.03
UNEVENNESS = 1.5
"""How much more than the mean the tours of one kernel program may decide."""


class FusedEngine:
    """See :class:`polarvrp.decoding.engine.Engine`."""

    level = "fused"
    capturable = True

    def __init__(self) -> None:
        self._room = INITIAL_ROOM
        self._most_used = 0.0

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
        length = self._segment_length(environment) if record else None
        with torch.no_grad():
            made = fused_rollout(
                policy, embeddings, environment, starts, sampler, greedy_last=greedy_last, record_length=length
            )
            if made.segments is None:
                overflow = torch.stack((made.unserved, torch.zeros_like(made.unserved)))
                return Rollout(made.actions, made.cost, made.legal, made.log_likelihood, None, overflow)
            capacity = self._capacity(environment, len(starts))
            decisions = pack(made.segments, len(starts), environment.max_actions, capacity)
        overflow = torch.stack((made.unserved, decisions.dropped))
        return Rollout(made.actions, made.cost, made.legal, made.log_likelihood, decisions, overflow)

    def replay(
        self, environment: Environment, actions: Tensor, num_free: int = 0, scorer: Policy | None = None
    ) -> Replay:
        """Replay given tours; of the networks that this level serves none routes decisions by noise."""
        # Few tours: room for all their decisions costs little.
        num_rows, num_actions = actions.shape[1:]
        length = max(TILE, num_rows) * num_actions
        cost, legal, segments = fused_replay(environment, actions, num_free, length)
        batch = len(environment.instances)
        capacity = TILE * batch * math.ceil(num_rows * num_actions / TILE)
        decisions = pack(segments, num_rows, num_actions, capacity)
        return Replay(cost, legal, decisions, torch.stack((torch.zeros_like(decisions.dropped), decisions.dropped)))

    def score(
        self, policy: Policy, embeddings: Tensor, instances: Instances[Tensor], decisions: PackedDecisions
    ) -> Tensor:
        """Log-likelihood of each tour."""
        return fused_score(policy, embeddings, instances, decisions)

    def score_gradient(
        self,
        policy: Policy,
        embeddings: Tensor,
        instances: Instances[Tensor],
        decisions: PackedDecisions,
        coefficients: Tensor,
    ) -> None:
        """Add the gradient."""
        fused_score_gradient(policy, embeddings, instances, decisions, coefficients)

    def usage(self, tours: Rollout) -> HostCopy:
        """Overflow of the tours and tiles that they used."""
        return HostCopy(torch.cat((tours.overflow, tours.decisions.first_tile[-1:])))

    def synchronize(self, environment: Environment, tours: Rollout, usage: HostCopy) -> None:
        """Check the tours' overflow and note how much room they used."""
        unserved, dropped, tiles = usage.read()
        if unserved:
            message = f"{unserved} tours cannot serve all customers; engine parallel names the first"
            raise stuck_tours(tours.log_likelihood, message)
        batch, rows = tours.cost.shape
        decisions = TILE * (tiles - batch * EMPTY_SHARE)
        self._most_used = max(self._most_used, decisions / (batch * rows * environment.num_customers))
        if dropped:
            self._room *= UNEVENNESS
            raise BufferOverflowError(f"{dropped} decisions found no room; making {UNEVENNESS} times as much")

    def resize_buffers(self) -> bool:
        """Shrink buffers to what the rollouts since the last call needed; whether shapes change by that."""
        wanted, self._most_used = SPARE_ROOM * self._most_used, 0.0
        if not 0 < wanted < self._room / SPARE_ROOM:
            return False
        self._room = wanted
        return True

    def _capacity(self, environment: Environment, num_rows: int) -> int:
        """Slots of the table: the mean over a batch is far steadier than a single tour."""
        batch = len(environment.instances)
        slots = batch * (num_rows * environment.num_customers * self._room + TILE * EMPTY_SHARE)
        return TILE * math.ceil(slots / TILE)

    def _segment_length(self, environment: Environment) -> int:
        """Slots for the tours of one kernel program, never more than they can fill."""
        mean = TILE * environment.num_customers * self._room
        return TILE * min(math.ceil(mean * UNEVENNESS / TILE), environment.max_actions)
