"""Local search on batches of tours in tensor operations: descent to a local optimum, on whatever device the tours are.

Each round judges every move of every tour (``training.moves``) and makes the best that do not disturb each other
(``training.independent_moves``). Rounds have static shapes and no step depends on data, so all of them can be captured in
one graph.

Never does a tour break a rule on the way: unlike PyVRP's search, this one knows no penalties.

Shape legend: R tours, T actions, n customers, P positions.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from polarvrp.errors import ConfigError
from polarvrp.problem.instances import Instances
from polarvrp.tolerances import POLICY_TOLERANCE
from polarvrp.training.independent_moves import Choice
from polarvrp.training.moves import BetweenRoutes, WithinRoutes
from polarvrp.training.segments import Layout, Rules

ROUNDS = 40
"""More find next to nothing."""
WIDEST_BLOCK = 32
"""Moves within a route reach that far."""


def improve(instances: Instances[Tensor], actions: Tensor, rounds: int = ROUNDS) -> Tensor:
    """Descend from tours until no move shortens them, or for so many rounds.

    Args:
        instances: B instances with one depot, in any precision.
        actions: Tours, k of each instance, padded with depots, int64, ``[B, k, T]``, or ``[B * k, T]`` with those of an
            instance side by side.
        rounds: The most rounds. On the CPU they end when nothing moves; elsewhere that would mean waiting.

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
    batch, customers, width = len(instances), instances.num_customers, 2 * instances.num_customers + 2
    tours = actions.reshape(-1, actions.shape[-1])
    if len(tours) % batch or actions.shape[-1] > width:
        raise ValueError(f"{batch} instances of {customers} customers cannot have tours of {list(actions.shape)}")
    rules = Rules.of(instances, len(tours) // batch)
    sequence, sound = _sequence(tours, customers)
    before = sequence
    for _ in range(rounds):
        sequence, moved = _round(rules, sequence)
        if sequence.device.type == "cpu" and not bool(moved.any()):
            break
    shorter = _length(rules, sequence) < _length(rules, before)
    good = sound & shorter & _feasible(rules, before) & _feasible(rules, sequence)
    unchanged = pad(tours, (0, width - tours.shape[1]))
    return torch.where(good[:, None], _actions(sequence, width), unchanged).view(*actions.shape[:-1], width)


def routes_searched(customers: int) -> int:
    """Routes that a sequence holds, empty ones included; tours of more stay as they are."""
    return min(customers + 1, customers // 3 + 16)


def _sequence(tours: Tensor, customers: int) -> tuple[Tensor, Tensor]:
    """Sequences ``[R, P]`` of tours ``[R, T]``, and whether they hold each customer once and all routes, ``[R]``."""
    rows, routes = len(tours), routes_searched(customers)
    positions = customers + routes
    place, number = _places(tours)
    place = torch.where(tours > 0, place + 1, positions).clamp(max=positions)
    sequence = tours.new_zeros(rows, positions + 1).scatter(1, place, tours)[:, :positions]
    visits = tours.new_zeros(rows, customers + 1).scatter_add(1, tours, torch.ones_like(tours))
    return sequence, (visits[:, 1:] == 1).all(1) & (number[:, -1] <= routes)


def _actions(sequence: Tensor, width: int) -> Tensor:
    """Tours ``[R, T]`` of sequences, without empty routes."""
    place, _ = _places(sequence)
    place = torch.where(sequence > 0, place, width)
    return sequence.new_zeros(len(sequence), width + 1).scatter(1, place, sequence)[:, :width]


def _places(nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Place of each customer if one depot separates routes, and number of its route from 1, int64, ``[R, T]``."""
    customer = nodes > 0
    number = (customer & pad(nodes[:, :-1] == 0, (1, 0), value=True)).cumsum(1)
    return customer.cumsum(1) + number - 2, number


def _length(rules: Rules, sequence: Tensor) -> Tensor:
    """Length of tours, float64, ``[R]``."""
    return rules.between(sequence, sequence.roll(-1, 1)).double().sum(1)


def _round(rules: Rules, sequence: Tensor) -> tuple[Tensor, Tensor]:
    """Sequences after some moves, and which tours have moved."""
    positions = sequence.shape[1]
    width = min(WIDEST_BLOCK, positions - 1)
    layout = Layout.of(rules, sequence, width)
    between, kinds = BetweenRoutes(rules, layout, positions).best()
    within = WithinRoutes(rules, layout, positions).best()
    route, after = layout.route[:, :positions], layout.after[:, :positions]
    choice = Choice.of(route, positions - rules.customers, (between, kinds), within)
    return sequence.gather(1, choice.order(route, after)), (choice.kind > 0).any(1)


def _feasible(rules: Rules, sequence: Tensor) -> Tensor:
    """Tours that break no rule by more than the tolerance of policies, bool, ``[R]``."""
    layout = Layout.of(rules, sequence, width=1)
    legs = rules.between(layout.nodes[:, :-1], layout.nodes[:, 1:])
    arrival = (layout.start + layout.service)[:, :-1] + legs
    windows_end = rules.nodes[:, 1].gather(1, layout.nodes[:, 1:])
    on_time = (arrival <= windows_end + POLICY_TOLERANCE).all(1)
    short = (layout.length <= rules.limit[:, None] + POLICY_TOLERANCE).all(1)
    return on_time & short & (layout.peak_before <= rules.capacity).all(1)
