"""Batched local search in tensor operations: descent to a local optimum, on whatever device the tours are.

Each round judges every move of every tour (``local_search.moves``) and makes the best that do not disturb each other
(``local_search.move_selection``). Rounds have static shapes and no step depends on data, so all of them can be
captured in one graph.

Never does a tour break a rule on the way: unlike PyVRP's search, this one knows no penalties.

Shape legend: R tours, T actions, n customers, P positions.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from polarvrp.errors import ConfigError
from polarvrp.local_search.move_selection import SelectedMoves
from polarvrp.local_search.moves import BetweenRoutes, WithinRoutes
from polarvrp.local_search.route_segments import FORBIDDEN, Rules, TourState
from polarvrp.problem.instances import Instances
from polarvrp.problem.tours import most_actions
from polarvrp.tolerances import POLICY_TOLERANCE

ROUNDS_A_BLOCK = 6
"""The last round of a block looks within routes as well: as good as in every round, or better, at half the price. Then
routes that had no place in the sequence may take that of others that have vanished."""
WIDEST_SEGMENT = 32
"""Moves within a route reach that far."""


def improve(instances: Instances[Tensor], actions: Tensor, rounds: int | None = None) -> Tensor:
    """Descend from tours until no move shortens them, or for so many rounds.

    Args:
        instances: B instances with one depot, in any precision.
        actions: Tours, k of each instance, padded with depots, int64, ``[B, k, T]``, or ``[B * k, T]`` with those of an
            instance side by side.
        rounds: The most rounds; by default ``usual_rounds``. On the CPU they end when nothing moves; elsewhere that
            would mean waiting.

    Returns:
        Tours in the same form with T = 2n + 2. None is longer than it was, none breaks a rule. Tours that break one to
        begin with, by more than ``POLICY_TOLERANCE``, come back as they are.

    Raises:
        ConfigError: If there are several depots.
        ValueError: If the tours do not fit the instances.
    """
    if instances.num_depots != 1:
        raise ConfigError(
            f"local search in tensors serves one depot, got {instances.num_depots}; use the refiner pyvrp instead"
        )
    batch, customers = len(instances), instances.num_customers
    width = most_actions(customers, num_depots=1)
    tours = actions.reshape(-1, actions.shape[-1])
    if len(tours) % batch or actions.shape[-1] > width:
        raise ValueError(f"{batch} instances of {customers} customers cannot have tours of {list(actions.shape)}")
    rules = Rules.of(instances, len(tours) // batch)
    tours = pad(tours, (0, width - tours.shape[1]))
    sound = _complete(tours, customers)
    stand_in = torch.arange(1, width + 1, device=tours.device)  # for what is no tour, to have one of the usual form
    before = after = torch.where(sound[:, None], tours, stand_in * (stand_in <= customers))
    most = usual_rounds(customers) if rounds is None else rounds
    for start in range(0, most, ROUNDS_A_BLOCK):
        latest, after = after, _descend(rules, after, min(ROUNDS_A_BLOCK, most - start))
        if after.device.type == "cpu" and torch.equal(latest, after):
            break
    better = sound & (_length(rules, after) < _length(rules, before))
    better &= _feasible(rules, before) & _feasible(rules, after)
    return torch.where(better[:, None], after, tours).view(*actions.shape[:-1], width)


def usual_rounds(customers: int) -> int:
    """Rounds after which more find next to nothing, even from poor tours."""
    return ROUNDS_A_BLOCK * (1 + math.ceil(customers / 50))


def routes_searched(customers: int) -> int:
    """M, empty ones included; of tours that have more, the last ones wait until others vanish."""
    return min(customers + 1, customers // 4 + 12)


def _descend(rules: Rules, tours: Tensor, rounds: int) -> Tensor:
    """Tours ``[R, T]`` after some rounds."""
    sequence, waiting = _sequence(tours, rules.customers, routes_searched(rules.customers))
    for number in range(rounds):
        sequence = _round(rules, sequence, waiting.any(1), look_within=number == rounds - 1)
    return _actions(sequence, waiting, tours.shape[1])


def _complete(tours: Tensor, customers: int) -> Tensor:
    """Whether tours serve each customer once, bool, ``[R]``."""
    visits = tours.new_zeros(len(tours), customers + 1).scatter_add(1, tours, torch.ones_like(tours))
    return (visits[:, 1:] == 1).all(1)


def _sequence(tours: Tensor, customers: int, routes: int) -> tuple[Tensor, Tensor]:
    """Sequences of tours ``[R, T]``.

    Returns:
        Nodes, int64, ``[R, P]``; and the first customers of routes beyond the last one that has a depot, whose
        customers they follow, bool, ``[R, n + 1]``.
    """
    rows, positions = len(tours), customers + routes
    customer, first = tours > 0, (tours > 0) & pad(tours[:, :-1] == 0, (1, 0), value=True)
    number = first.cumsum(1)
    place = customer.cumsum(1) - 1 + number.clamp(max=routes)
    place = torch.where(customer, place, positions)
    sequence = tours.new_zeros(rows, positions + 1).scatter(1, place, tours)[:, :positions]
    waiting = torch.where(first & (number > routes), tours, 0)
    marks = torch.zeros(rows, customers + 1, dtype=torch.bool, device=tours.device).scatter(1, waiting, True)
    return sequence, marks & (torch.arange(customers + 1, device=tours.device) > 0)


def _actions(sequence: Tensor, waiting: Tensor, width: int) -> Tensor:
    """Tours ``[R, T]`` of sequences, without empty routes."""
    customer = sequence > 0
    first = customer & (pad(sequence[:, :-1] == 0, (1, 0), value=True) | waiting.gather(1, sequence))
    place = torch.where(customer, customer.cumsum(1) + first.cumsum(1) - 2, width)
    return sequence.new_zeros(len(sequence), width + 1).scatter(1, place, sequence)[:, :width]


def _length(rules: Rules, tours: Tensor) -> Tensor:
    """Length of tours, float64, ``[R]``."""
    closed = pad(tours, (1, 1))
    return rules.between(closed[:, :-1], closed[:, 1:]).double().sum(1)


def _round(rules: Rules, sequence: Tensor, crowded: Tensor, look_within: bool) -> Tensor:
    """Sequences after some moves.

    Args:
        rules: Of the instances.
        sequence: Nodes, int64, ``[R, P]``.
        crowded: Whether the last route holds others and must stay, bool, ``[R]``.
        look_within: Consider moves within routes, too.
    """
    positions = sequence.shape[1]
    routes = positions - rules.customers
    state = TourState.of(rules, sequence, min(WIDEST_SEGMENT, positions - 1), torch.where(crowded, routes - 1, routes))
    between = BetweenRoutes(rules, state, positions).best()
    within = WithinRoutes(rules, state, positions).best() if look_within else None
    route, after = state.route[:, :positions], state.after[:, :positions]
    return sequence.gather(1, SelectedMoves.of(route, routes, between, within).order(route, after))


def _feasible(rules: Rules, tours: Tensor) -> Tensor:
    """Tours ``[R, T]`` that break no rule by more than the tolerance of policies, bool, ``[R]``."""
    routes = rules.customers + 1
    sequence, _ = _sequence(tours, rules.customers, routes)
    state = TourState.of(rules, sequence, 1, torch.full_like(sequence[:, 0], routes))
    legs = rules.between(state.nodes[:, :-1], state.nodes[:, 1:])
    arrival = (state.start + state.service)[:, :-1] + legs
    latest = rules.nodes[:, 1].gather(1, state.nodes[:, 1:])
    on_time = ((arrival <= latest + POLICY_TOLERANCE) & (legs < FORBIDDEN)).all(1)
    short = (state.length <= rules.limit[:, None] + POLICY_TOLERANCE).all(1)
    return on_time & short & (state.peak_before <= rules.capacity).all(1)
