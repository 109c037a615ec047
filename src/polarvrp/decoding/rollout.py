"""Rollouts of a policy without gradients, and replays of given tours through the environment.

Shape legend: B instances, S tours per instance, F forced first actions, T actions, N = K + n nodes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from polarvrp.decoding.sampling import Sampler
from polarvrp.decoding.steps import Moves, is_decision
from polarvrp.environment.environment import Environment
from polarvrp.environment.state import State, entries_of
from polarvrp.errors import DivergenceError, InfeasibleTourError, PolarvrpError
from polarvrp.model.policy import DecoderCache, Policy


class BufferOverflowError(RuntimeError):
    """Decisions found no room in a buffer; it is larger now, and the same rollout succeeds now or soon."""


Decisions: TypeAlias = Any
"""Recorded decisions of a batch of tours; only an engine of the same level can score them."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """Tours of a batch.

    Attributes:
        actions: Nodes in order, padded with depots, int64, ``[B, S, T]``.
        cost: Length, infinite where a forced first action was illegal and the protocol minds, float, ``[B, S]``.
        legal: Whether forced first actions were legal, bool, ``[B, S]``.
        log_likelihood: Sum over decisions, forced first actions count 0, float, ``[B, S]``.
        decisions: The decisions, ``None`` unless they were asked for.
        overflow: Tours without an end, and decisions that found no room: 0, or the results must not be used, int64,
            ``[2]``.
    """

    actions: Tensor
    cost: Tensor
    legal: Tensor
    log_likelihood: Tensor
    decisions: Decisions
    overflow: Tensor


@dataclass(frozen=True, slots=True)
class Replay:
    """Given tours as the environment sees them.

    Attributes:
        cost: Length, float, ``[B, S]``.
        legal: Whether every action was legal and every customer served, bool, ``[B, S]``.
        decisions: The decisions of the legal part.
        overflow: As of :class:`Rollout`.
    """

    cost: Tensor
    legal: Tensor
    decisions: Decisions
    overflow: Tensor


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Trajectories of a batch: tours, their cost and, if recorded, everything that was seen and done.

    Attributes:
        actions: As of :class:`Rollout`.
        moves: Everything that was seen and done, in order; ``None`` unless it was asked for.
        cost: As of :class:`Rollout`.
        legal: Whether forced or given actions were legal, and for given tours complete, bool, ``[B, S]``.
        log_likelihood: As of :class:`Rollout`.
    """

    actions: Tensor
    moves: Moves | None
    cost: Tensor
    legal: Tensor
    log_likelihood: Tensor


@dataclass(frozen=True, slots=True)
class Task:
    """Arguments of a rollout.

    Attributes:
        policy: Gives the probabilities.
        cache: Its cache of the instances.
        environment: The instances.
        num_rows: S.
        sampler: Source of the samples; without one every row takes the most probable action.
        greedy_last: Let the last row take the most probable actions while the others sample.
        record: Keep all moves, not only the actions.
    """

    policy: Policy
    cache: DecoderCache
    environment: Environment
    num_rows: int
    sampler: Sampler | None
    greedy_last: bool
    record: bool


@dataclass(frozen=True, slots=True)
class StepOutput:
    """Output of one or a few rollout steps.

    Attributes:
        actions: Nodes chosen, int64, ``[B, S, t]``.
        log_likelihood: What they add to it, float, ``[B, S]``.
        moves: All that was seen and done, ``None`` unless it was asked for.
    """

    actions: Tensor
    log_likelihood: Tensor
    moves: Moves | None


StepFunction: TypeAlias = Callable[[State], tuple[State, StepOutput]]
"""Transition of a rollout: from a state to the state some steps later."""


def multi_start(environment: Environment, max_starts: int | None = None) -> Tensor:
    """Forced first actions of a multi-start rollout (POMO): every customer, or every pair of depot and customer.

    Args:
        environment: Where the tours will be built.
        max_starts: Take only that many customers, evenly spread over the numbering.

    Returns:
        int64 ``[S, 1]`` with one depot, ``[S, 2]`` with several (depot slowest).
    """
    customers = environment.num_customers
    count = min(max_starts or customers, customers)
    device = environment.instances.locs.device
    return starts_at(environment, torch.arange(count, device=device) * customers // count)


def starts_at(environment: Environment, customers: Tensor) -> Tensor:
    """First actions of starts at some customers, with several depots from each of them.

    Args:
        environment: Where the tours will be built.
        customers: Numbers from 0 among the customers, int64, ``[C]``.

    Returns:
        As of :func:`multi_start`.
    """
    depots = environment.num_depots
    nodes = depots + customers
    if depots == 1:
        return nodes[:, None]
    return torch.cartesian_prod(torch.arange(depots, device=nodes.device), nodes)


def with_greedy_row(starts: Tensor) -> Tensor:
    """Starts and one more row that only names the depot, so that it chooses its first customer, ``[S + 1, F]``."""
    return torch.cat((starts, starts.new_zeros(1, starts.shape[1])))


def policy_step(task: Task) -> StepFunction:
    """Step function of a policy: decide, record, move."""
    environment = task.environment

    def step(state: State) -> tuple[State, StepOutput]:
        features = environment.features(state)
        decided = is_decision(environment, state)
        # Half of all steps are no decisions; a GPU, which may capture this, computes them rather than counting them.
        asked = decided if state.mask.device.type == "cpu" else None
        noise = task.policy.routing_noise(state.current)
        log_probs, _ = task.policy.log_probs(task.cache, state.current, features, state.mask, asked, noise)
        action = _choose(log_probs, task.sampler, task.greedy_last)
        action = torch.where(environment.all_served(state), state.depot, action)
        gained = entries_of(log_probs, action).masked_fill(~decided, 0.0)
        moves = Moves.of(state.current, features, state.mask, action, decided, noise) if task.record else None
        return environment.step(state, action), StepOutput(action[..., None], gained, moves)

    return step


@torch.no_grad()
def rollout_loop(
    environment: Environment, starts: Tensor, step: StepFunction, scorer: Policy | None = None
) -> Trajectory:
    """Rollout of S tours per instance.

    Args:
        environment: The instances.
        starts: Forced first actions, int64, ``[S, F]``.
        step: What follows them.
        scorer: Keep all moves, as ``step`` does, for this policy to score.

    Raises:
        InfeasibleTourError: If some customer cannot be served.
        DivergenceError: If probabilities are not finite.
    """
    state = environment.reset(len(starts))
    legal = torch.ones_like(state.mask[..., 0])
    actions, moves = [], []
    for forced in starts.unbind(1):
        action = forced.expand_as(state.current)
        legal = legal & (_is_free_choice(environment, action) | entries_of(state.mask, action))
        undecided = torch.zeros_like(legal)
        actions.append(action[..., None])
        if scorer is not None:
            noise = scorer.routing_noise(state.current)
            moves.append(Moves.of(state.current, environment.features(state), state.mask, action, undecided, noise))
        state = environment.step(state, action)
    likelihood = torch.zeros_like(state.time)
    while not bool(environment.done(state).all()):
        state, made = step(state)
        actions.append(made.actions)
        if made.moves is not None:
            moves.append(made.moves)
        likelihood = likelihood + made.log_likelihood
        _require_progress(environment, state, likelihood)
    cost = environment.cost(state).masked_fill(~environment.admitted(legal), torch.inf)
    return Trajectory(torch.cat(actions, dim=-1), Moves.join(moves) if moves else None, cost, legal, likelihood)


@torch.no_grad()
def replay_actions(
    environment: Environment, actions: Tensor, num_free: int = 0, scorer: Policy | None = None
) -> Trajectory:
    """Replay of given tours; without probabilities, so their log-likelihoods are 0.

    Args:
        environment: The instances.
        actions: Nodes in order, padded with depots, int64, ``[B, S, T]``.
        num_free: First actions that are not decisions, as the forced ones of a rollout.
        scorer: Draw what this policy will route the decisions by; needed where it does in training.
    """
    state = environment.reset(actions.shape[1])
    legal = torch.ones_like(state.mask[..., 0])
    moves = []
    for index in range(actions.shape[2]):
        served = environment.all_served(state)
        action = torch.where(served, state.depot, actions[..., index])
        unasked = _is_free_choice(environment, action) & (index == 0)
        legal = legal & (served | unasked | entries_of(state.mask, action))
        decided = is_decision(environment, state) & (index >= num_free) & legal
        noise = state.time.new_empty(*decided.shape, 0) if scorer is None else scorer.routing_noise(state.current)
        moves.append(Moves.of(state.current, environment.features(state), state.mask, action, decided, noise))
        state = environment.step(state, action)
    legal = legal & environment.all_served(state)
    zero = torch.zeros_like(state.time)
    return Trajectory(actions, Moves.join(moves), environment.cost(state), legal, zero)


def _is_free_choice(environment: Environment, action: Tensor) -> Tensor:
    """The depot as first action of one-depot tours: a row that chooses its first customer, not a move."""
    return (action == 0) & (environment.num_depots == 1)


def no_overflow(like: Tensor) -> Tensor:
    """The ``overflow`` of engines whose tables grow as needed."""
    return torch.zeros(2, dtype=torch.int64, device=like.device)


def _choose(log_probs: Tensor, sampler: Sampler | None, greedy_last: bool) -> Tensor:
    """Most probable or sampled node of each row, int64, ``[B, S]``."""
    if sampler is None:
        return log_probs.argmax(-1)
    cumulative = log_probs.softmax(-1).cumsum(-1)  # on a CPU a fourth of the time of the exponential alone
    total = cumulative[..., -1:]
    uniform = sampler.uniform(total)
    # Staying below the total keeps nodes of probability 0 at the end of the row out of reach.
    threshold = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    sampled = (cumulative <= threshold).sum(-1)
    if greedy_last:
        sampled[:, -1] = log_probs[:, -1].argmax(-1)
    return sampled


def stuck_tours(log_likelihood: Tensor, message: str) -> PolarvrpError:
    """What to raise for tours that do not end: the network is to blame where its numbers are not finite.

    Args:
        log_likelihood: Of the tours so far.
        message: If the instances are to blame.
    """
    if bool(log_likelihood.isfinite().all()):
        return InfeasibleTourError(message)
    return DivergenceError("the network computes probabilities that are not finite; train it again")


def _require_progress(environment: Environment, state: State, likelihood: Tensor) -> None:
    if state.num_actions <= environment.max_actions:
        return
    stuck = ~environment.all_served(state)
    if not bool(stuck.any()):
        return
    instance, row = (int(index) for index in stuck.nonzero()[0])
    customers = (~state.visited[instance, row, environment.num_depots :]).nonzero()
    node = environment.num_depots + int(customers[0, 0])
    raise stuck_tours(
        likelihood,
        f"instance {instance} of the batch: node {node} cannot be served from any depot; "
        "check its demand, window and distance against capacity, closing time and limit",
    )
