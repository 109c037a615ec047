"""Selection of moves that do not disturb each other, and their execution.

Each route takes part in one move at most. The selection is a greedy matching of routes, the best move of all first: a
pair of routes whose best move is the best for both goes ahead, then the same among the routes left.

Shape legend: R tours, P positions, M routes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from polarvrp.local_search.moves import IMPOSSIBLE, TAILS, TURN

LEAST_GAIN = 1e-5
"""Smaller ones are rounding: moves are judged in float32."""
MATCHINGS = 4


@dataclass(frozen=True, slots=True)
class SelectedMoves:
    """Selected move of each route, int64, ``[R, M]``; both routes of a move name the same.

    Attributes:
        first: Position p.
        second: Position q.
        kind: As coded by ``moves.kind``, 0 for no move.
    """

    first: Tensor
    second: Tensor
    kind: Tensor

    @classmethod
    def of(
        cls,
        route: Tensor,
        routes: int,
        between: tuple[Tensor, Tensor],
        within: tuple[Tensor, Tensor, Tensor] | None,
    ) -> "SelectedMoves":
        """Select the moves.

        Args:
            route: Number of the route of each position, int64, ``[R, P]``.
            routes: M.
            between: Least changes and their kinds, as ``BetweenRoutes.best`` gives them.
            within: Least changes, second positions and kinds, as ``WithinRoutes.best`` gives them; or none.
        """
        change, kinds = between
        rows, positions = route.shape
        if within is None:
            within = torch.full_like(change[..., 0], IMPOSSIBLE), route, route
        toward = change.new_full((rows, positions, routes), IMPOSSIBLE).scatter_reduce(
            2, route[:, None].expand(-1, positions, -1), change, "amin"
        )  # [R, P, M]
        pairs = change.new_full((rows, routes, routes), IMPOSSIBLE).scatter_reduce(
            1, route[..., None].expand(-1, -1, routes), toward, "amin"
        )  # [R, M, M]
        alone = change.new_full((rows, routes), IMPOSSIBLE).scatter_reduce(1, route, within[0], "amin")
        number = torch.arange(routes, device=route.device)
        same = number[:, None] == number
        partner, matched = _matching(torch.where(same, alone[..., None], torch.minimum(pairs, pairs.mT)))

        low, high = torch.minimum(partner, number), torch.maximum(partner, number)
        table = pairs.flatten(1)
        ahead = table.gather(1, low * routes + high) <= table.gather(1, high * routes + low)
        leader = torch.where(ahead, low, high)
        follower = low + high - leader
        single = partner == number
        # The position that leads, of every route that leads.
        value = toward.gather(2, follower.gather(1, route)[..., None])[..., 0]
        value = torch.where(single.gather(1, route), within[0], value)
        here = route[:, None] == number[:, None]  # [R, M, P]
        best = torch.where(here, value[:, None], 2 * IMPOSSIBLE).argmin(-1).gather(1, leader)
        row = change.gather(1, best[..., None].expand(-1, -1, positions))  # [R, M, P]
        second = row.masked_fill(route[:, None] != follower[..., None], 2 * IMPOSSIBLE).argmin(-1)
        kind = kinds.flatten(1).gather(1, best * positions + second).long()
        second = torch.where(single, within[1].gather(1, best), second)
        kind = torch.where(single, within[2].gather(1, best), kind)
        idle = ~matched
        return cls(best, second.masked_fill(idle, 0), kind.masked_fill(idle, 0))

    def order(self, route: Tensor, after: Tensor) -> Tensor:
        """Where each position of the new sequences takes its node from.

        Args:
            route: Number of the route of each position, int64, ``[R, P]``.
            after: Position at which the next route begins, int64, ``[R, P]``.

        Returns:
            Positions, int64, ``[R, P]``.
        """
        tails, turn = (self.kind & TAILS) > 0, (self.kind & TURN) > 0
        first, second = self.kind & 3, (self.kind >> 2) & 3
        first = torch.where(tails, after.gather(1, self.first) - 1 - self.first, first)
        second = torch.where(tails, after.gather(1, self.second) - 1 - self.second, second)
        first = torch.where(turn, self.second - self.first, first)
        target = torch.where(turn, self.first, self.second)
        turn_first, turn_second = turn.long() | (self.kind >> 4) & 1, (self.kind >> 5) & 1
        columns = torch.stack((self.first, first, turn_first, target, self.second, second, turn_second))
        columns = columns.gather(2, route.expand(7, -1, -1))  # [7, R, P]
        p, first, turn_first, target, q, second, turn_second = columns.unbind(0)
        position = torch.arange(route.shape[1], device=route.device).expand_as(route)
        step = 2 * route.shape[1]  # leaves room for a route's nodes behind any position
        from_first, from_second = position - p, position - q
        rank = torch.where(turn_first > 0, first + 1 - from_first, from_first)
        rank_second = torch.where(turn_second > 0, second + 1 - from_second, from_second)
        key = torch.where((from_first > 0) & (from_first <= first), target * step + rank, position * step)
        key = torch.where((from_second > 0) & (from_second <= second), p * step + rank_second, key)
        return key.argsort(1)


def _matching(table: Tensor) -> tuple[Tensor, Tensor]:
    """Partner of each route, itself for a move of its own or none, int64, and whether it has a move, ``[R, M]``.

    Args:
        table: Symmetric: least change of length by a move of two routes, of one on the diagonal, ``[R, M, M]``.
    """
    number = torch.arange(table.shape[1], device=table.device).expand(table.shape[:2])
    partner, matched = number, torch.zeros_like(number, dtype=torch.bool)
    for _ in range(MATCHINGS):
        least, choice = table.min(-1)
        mutual = (choice.gather(1, choice) == number) & (least < -LEAST_GAIN)
        partner, matched = torch.where(mutual, choice, partner), matched | mutual
        table = table.masked_fill(matched[..., None] | matched[:, None], IMPOSSIBLE)
    return partner, matched
