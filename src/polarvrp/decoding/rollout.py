"""Tours built by a policy, without gradients, and given tours replayed through the environment.

Shape legend: B instances, S tours per instance, F forced first actions, T actions, N = K + n nodes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from polarvrp.decoding.steps import ScoredSteps, StepRecorder, is_decision
from polarvrp.environment.environment import Environment
from polarvrp.environment.state import State, entries_of
from polarvrp.errors import InfeasibleTourError
from polarvrp.model.policy import DecoderCache, Policy


@dataclass(frozen=True, slots=True)
class Rollout:
    """Tours of a batch.

    Attributes:
        actions: Nodes in order, padded with depots, int64, ``[B, S, T]``.
        cost: Length, infinite where a forced first action was illegal, float, ``[B, S]``.
        log_likelihood: Sum over decisions, forced first actions count 0, float, ``[B, S]``.
    """

    actions: Tensor
    cost: Tensor
    log_likelihood: Tensor


@dataclass(frozen=True, slots=True)
class Replay:
    """Given tours as the environment sees them.

    Attributes:
        cost: Length, float, ``[B, S]``.
        legal: Whether every action was legal and every customer served, bool, ``[B, S]``.
        steps: The decisions.
    """

    cost: Tensor
    legal: Tensor
    steps: ScoredSteps


def multi_start(environment: Environment, max_starts: int | None = None) -> Tensor:
    """First actions of all starts (POMO): every customer, or every pair of depot and customer.

    Args:
        environment: Where the tours will be built.
        max_starts: Take only that many customers, evenly spread over the numbering.

    Returns:
        int64 ``[S, 1]`` with one depot, ``[S, 2]`` with several (depot slowest).
    """
    depots, customers = environment.num_depots, environment.num_customers
    count = min(max_starts or customers, customers)
    device = environment.instances.locs.device
    chosen = depots + torch.arange(count, device=device) * customers // count
    if depots == 1:
        return chosen[:, None]
    return torch.cartesian_prod(torch.arange(depots, device=device), chosen)


def with_greedy_row(starts: Tensor) -> Tensor:
    """The same first actions and one more row that only names the depot, so that it chooses its first customer."""
    return torch.cat((starts, starts.new_zeros(1, starts.shape[1])))


@torch.no_grad()
def rollout(
    policy: Policy,
    cache: DecoderCache,
    environment: Environment,
    starts: Tensor,
    *,
    generator: torch.Generator | None = None,
    greedy_last: bool = False,
    recorder: StepRecorder | None = None,
) -> Rollout:
    """Build S tours per instance.

    Args:
        policy: Gives the probabilities.
        cache: Its cache of these instances.
        environment: The instances.
        starts: Forced first actions, int64, ``[S, F]``.
        generator: Source of the samples; without one every row takes the most probable action.
        greedy_last: Let the last row take the most probable actions while the others sample.
        recorder: Collects the decisions for scoring.

    Raises:
        InfeasibleTourError: If some customer cannot be served.
    """
    state = environment.reset(len(starts))
    likelihood = torch.zeros_like(state.time)
    legal = torch.ones_like(state.mask[..., 0])
    actions = []
    while not bool(environment.done(state).all()):
        if state.num_actions < starts.shape[1]:
            action = starts[:, state.num_actions].expand_as(state.current)
            # The depot as first action of one-depot tours is a row that chooses its first customer, not a move.
            unasked = (action == 0) & (environment.num_depots == 1)
            legal = legal & (unasked | entries_of(state.mask, action))
            decided = torch.zeros_like(legal)
        else:
            log_probs, _ = policy.log_probs(cache, state.current, environment.features(state), state.mask)
            action = _choose(log_probs, generator, greedy_last)
            served = environment.all_served(state)
            action = torch.where(served, state.depot, action)
            decided = is_decision(environment, state)
            likelihood = likelihood + entries_of(log_probs, action).masked_fill(~decided, 0.0)
        if recorder is not None:
            recorder.add(state, action, decided)
        actions.append(action)
        state = environment.step(state, action)
        _require_progress(environment, state)
    return Rollout(
        actions=torch.stack(actions, dim=-1),
        cost=environment.cost(state).masked_fill(~legal, torch.inf),
        log_likelihood=likelihood,
    )


@torch.no_grad()
def replay(environment: Environment, actions: Tensor, num_free: int = 0) -> Replay:
    """Follow given tours.

    Args:
        environment: The instances.
        actions: Nodes in order, padded with depots, int64, ``[B, S, T]``.
        num_free: First actions that are not decisions, as the forced ones of a rollout.
    """
    state = environment.reset(actions.shape[1])
    legal = torch.ones_like(state.mask[..., 0])
    recorder = StepRecorder(environment)
    for index in range(actions.shape[2]):
        served = environment.all_served(state)
        action = torch.where(served, state.depot, actions[..., index])
        decided = is_decision(environment, state) & (index >= num_free)
        unasked = (action == 0) & (environment.num_depots == 1) & (index == 0)
        legal = legal & (served | unasked | entries_of(state.mask, action))
        recorder.add(state, action, decided & legal)
        state = environment.step(state, action)
    legal = legal & environment.all_served(state)
    return Replay(cost=environment.cost(state), legal=legal, steps=recorder.pack())


def pad_actions(tours: list[list[list[int]]], device: torch.device) -> Tensor:
    """The same number of tours for each instance as a tensor padded with depot 0, int64, ``[B, S, T]``."""
    length = max(len(tour) for row in tours for tour in row)
    padded = [[tour + [0] * (length - len(tour)) for tour in row] for row in tours]
    return torch.tensor(padded, dtype=torch.int64, device=device)


def _choose(log_probs: Tensor, generator: torch.Generator | None, greedy_last: bool) -> Tensor:
    """Most probable or sampled node of each row, int64, ``[B, S]``."""
    if generator is None:
        return log_probs.argmax(-1)
    cumulative = log_probs.exp().cumsum(-1)
    total = cumulative[..., -1:]
    uniform = torch.rand(total.shape, generator=generator, device=total.device, dtype=total.dtype)
    # Staying below the total keeps nodes of probability 0 at the end of the row out of reach.
    threshold = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    sampled = (cumulative <= threshold).sum(-1)
    if greedy_last:
        sampled[:, -1] = log_probs[:, -1].argmax(-1)
    return sampled


def _require_progress(environment: Environment, state: State) -> None:
    if state.num_actions <= environment.max_actions:
        return
    stuck = ~environment.all_served(state)
    instance, row = (int(index) for index in stuck.nonzero()[0])
    customers = (~state.visited[instance, row, environment.num_depots :]).nonzero()
    node = environment.num_depots + int(customers[0, 0])
    raise InfeasibleTourError(
        f"instance {instance} of the batch: node {node} cannot be served from any depot; "
        "check its demand, window and distance against capacity, closing time and limit"
    )
