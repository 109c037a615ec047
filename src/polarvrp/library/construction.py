"""Tours built by a network under a time limit: as many starts and symmetries as it allows.

Greedy decoding as in ``decoding.greedy``, in rounds of which each is begun only if the rates measured so far let it end
in time, and given up as soon as they show that it will not. Starts under the first symmetry come first, then the other
symmetries, which must be encoded anew, then further starts under all of them.

Shape legend: A symmetries, S starts, N nodes.
"""

import copy
import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from polarvrp.decoding.rollout import StepFunction, StepOutput, Task, policy_step, rollout_loop, starts_at
from polarvrp.environment.environment import Environment
from polarvrp.environment.state import State
from polarvrp.errors import InfeasibleTourError
from polarvrp.model.policy import DecoderCache, Policy
from polarvrp.problem.instances import Instances
from polarvrp.problem.symmetries import NUM_SYMMETRIES, augment
from polarvrp.problem.tours import flat_tours

STARTS_AT_ONCE = {"cpu": (64, 8), "cuda": (1024, 64)}
"""Starts of a round, and fewer where so many take too long."""

STEPS_TO_MEASURE = 10
"""After which a rollout's rate is known well enough to give it up early."""

PROBE_CUSTOMERS = 50
"""A part of a larger instance that is encoded first, to know how long the whole would take."""

ENCODING_GROWTH = 1.1
"""Exponent of the encoder's time in the number of customers, up to a thousand."""

SYMMETRIES_AT_ONCE = (NUM_SYMMETRIES - 1, 3, 1)
"""Further symmetries that are tried, as many of them as fit."""

PAIRS_AT_ONCE = 8 << 20
"""Pairs of nodes encoded at once: bounds the memory of attention."""

CANDIDATES = 16
"""Best tours in the unit square; which of them is best in the file's numbers, the caller finds out."""


@dataclass(frozen=True, slots=True)
class BuiltTours:
    """Tours that a network built.

    Attributes:
        tours: The best tours in flat form, by length in the unit square; empty if none was finished in time.
        starts: First customers tried under each symmetry.
        symmetries: How many.
    """

    tours: tuple[tuple[int, ...], ...]
    starts: int
    symmetries: int


class _OutOfTimeError(Exception):
    """The deadline comes before the end of a round."""


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Instances under some symmetries and what the decoder needs of them."""

    environment: Environment
    cache: DecoderCache


@torch.inference_mode()
def construct(policy: Policy, instance: Instances[Tensor], deadline_s: float) -> BuiltTours:
    """Build tours of one instance until all starts under all symmetries are done, or the deadline comes.

    Args:
        policy: On the instance's device.
        instance: A batch of one.
        deadline_s: On the clock of ``time.monotonic``.

    Raises:
        InfeasibleTourError: If a customer cannot be served in the numbers of the network.
    """
    environment = Environment(instance)
    if not bool(environment.servable().all()):
        raise InfeasibleTourError("a customer cannot be served alone in the network's rounding of the file's numbers")
    construction = _Construction(policy, environment, deadline_s)
    construction.run()
    best = construction.best
    return BuiltTours(tuple(sorted(best, key=best.__getitem__)), construction.starts, construction.symmetries)


@dataclass(slots=True)
class _Construction:
    """State of ``construct``."""

    policy: Policy
    environment: Environment
    deadline_s: float
    encoded: list[_Encoded] = field(default_factory=list)
    best: dict[tuple[int, ...], float] = field(default_factory=dict)
    starts: int = 0
    symmetries: int = 0
    round_s: float = 0.0
    """Seconds of the first round, its encoding included."""

    def run(self) -> None:
        """All rounds that end in time."""
        if self._encoding_takes_too_long():
            return
        began_s = time.monotonic()
        self.encoded.append(self._encode(0, 1))
        chunks = self._first_round()
        self.round_s = time.monotonic() - began_s
        if not chunks:
            return
        self.starts, self.symmetries = len(chunks[0]), 1
        self._further_symmetries(chunks[0])
        try:
            for chunk in chunks[1:]:
                found = [self._decode(part, chunk) for part in self.encoded]
                for tours in found:
                    self._keep(tours)
                self.starts += len(chunk)
        except _OutOfTimeError:
            pass

    def _encoding_takes_too_long(self) -> bool:
        """Whether the encoder alone would pass the deadline, by the time that it takes for a part."""
        customers, depots = self.environment.num_customers, self.environment.num_depots
        if customers <= 2 * PROBE_CUSTOMERS:
            return False
        began_s = time.monotonic()
        self.policy.encode(_first_nodes(self.environment.instances, depots + PROBE_CUSTOMERS))
        now_s, times_larger = time.monotonic(), customers / PROBE_CUSTOMERS
        return bool(now_s + (now_s - began_s) * times_larger**ENCODING_GROWTH > self.deadline_s)

    def _first_round(self) -> list[Tensor]:
        """Starts under the first symmetry; all starts in chunks of the size that worked, none if no size did."""
        device = self.environment.instances.locs.device
        customers = torch.arange(self.environment.num_customers, device=device)
        for size in STARTS_AT_ONCE[device.type]:
            count = -(-len(customers) // size)
            chunks = [customers[first::count] for first in range(count)]
            try:
                self._keep(self._decode(self.encoded[0], chunks[0]))
            except _OutOfTimeError:
                continue
            return chunks
        return []

    def _further_symmetries(self, chunk: Tensor) -> None:
        """The first chunk under as many further symmetries as fit."""
        nodes = self.environment.instances.num_nodes
        for count in SYMMETRIES_AT_ONCE:
            at_once = max(1, min(count, PAIRS_AT_ONCE // nodes**2))
            # Several at once take less than as many rounds, by a half or more.
            if time.monotonic() + self.round_s * max(1.0, 0.5 * count) > self.deadline_s:
                continue
            try:
                for first in range(1, count + 1, at_once):
                    part = self._encode(first, min(at_once, count + 1 - first))
                    tours = self._decode(part, chunk)
                    self.encoded.append(part)
                    self._keep(tours)
                    self.symmetries += len(part.environment.instances)
            except _OutOfTimeError:
                pass
            return

    def _encode(self, first: int, count: int) -> _Encoded:
        """The instance under some symmetries, at the very same distances: turned coordinates are rounded."""
        turned = copy.copy(self.environment)
        turned.instances = augment(self.environment.instances, first + count)[first:]
        turned.constants = self.environment.constants.repeated(count)
        cache = self.policy.cache(self.policy.encode(turned.instances).embeddings, turned.instances)
        return _Encoded(turned, cache)

    def _decode(self, part: _Encoded, chunk: Tensor) -> dict[tuple[int, ...], float]:
        """The best tours from some starts and their lengths; those of illegal starts are left out."""
        forced = starts_at(part.environment, chunk)
        step = self._until_deadline(part, len(forced))
        trajectory = rollout_loop(part.environment, forced, step)
        costs, order = trajectory.cost.flatten().sort()
        kept = order[: min(CANDIDATES, int(costs.isfinite().sum()))]
        tours = flat_tours(trajectory.actions.flatten(0, 1)[kept].cpu().numpy(), part.environment.num_depots)
        return {tuple(tour): float(cost) for tour, cost in zip(tours, costs.tolist(), strict=False)}

    def _until_deadline(self, part: _Encoded, rows: int) -> StepFunction:
        """Greedy steps, given up as soon as the rate so far shows that the deadline comes first."""
        task = Task(self.policy, part.cache, part.environment, rows, sampler=None, greedy_last=False, record=False)
        greedy, least_steps = policy_step(task), self.environment.num_customers
        began_s, taken = time.monotonic(), 0

        def step(state: State) -> tuple[State, StepOutput]:
            nonlocal taken
            now_s = time.monotonic()
            left_s = (now_s - began_s) * (least_steps - taken) / taken if taken >= STEPS_TO_MEASURE else 0.0
            if now_s + left_s > self.deadline_s:
                raise _OutOfTimeError
            taken += 1
            return greedy(state)

        return step

    def _keep(self, tours: dict[tuple[int, ...], float]) -> None:
        together = self.best | tours
        self.best = {tour: together[tour] for tour in sorted(together, key=together.__getitem__)[:CANDIDATES]}


def _first_nodes(instances: Instances[Tensor], count: int) -> Instances[Tensor]:
    """The instances with their first nodes only."""
    return Instances(
        locs=instances.locs[:, :count],
        demand_linehaul=instances.demand_linehaul[:, :count],
        demand_backhaul=instances.demand_backhaul[:, :count],
        time_windows=instances.time_windows[:, :count],
        service_time=instances.service_time[:, :count],
        distance_limit=instances.distance_limit,
        open_route=instances.open_route,
        backhaul_class=instances.backhaul_class,
        flags=instances.flags,
        num_depots=instances.num_depots,
        capacity=instances.capacity,
    )
