"""Move evaluation of a local search, all moves at once: what each would gain, and whether all rules would hold.

A move is two positions p and q, where ``(p, p + a]`` and ``(q, q + b]`` change places, each reversed or not; a = 0 or
b = 0 is a relocation. Two more kinds exchange what follows p and q in two routes (2-opt*) or reverse ``(p, q]``
(2-opt). A kind is coded in bits, so it can be taken apart without a table.

Between routes the two routes are judged apart: what p's route costs with the other's segment does not depend on what
the other gets, so a table of one side and its transpose make the table of the move.

Shape legend: R tours, P positions, W widths, Y rows of the tables of segments.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from polarvrp.local_search.route_segments import FORBIDDEN, MARGIN, Rules, SegmentTable, TourState

IMPOSSIBLE = 2 * FORBIDDEN
TAILS, TURN = 64, 128
RELOCATED = ((1, False), (2, False), (2, True), (3, False), (3, True))
"""Lengths and directions of segments that change places with nothing."""


def kind(first: int = 0, second: int = 0, turn_first: bool = False, turn_second: bool = False) -> int:
    """Code of an exchange of ``(p, p + first]`` and ``(q, q + second]``."""
    return first + 4 * second + 16 * turn_first + 32 * turn_second


@dataclass(frozen=True, slots=True)
class RoutePrefix:
    """Prefix of a new route, in shapes that broadcast.

    Attributes:
        start: Start of the last service so far.
        excess: How far the worst rule on time is broken.
        picked: Pickups, less the capacity.
        peak: Largest load, less the capacity.
    """

    start: Tensor
    excess: Tensor | None
    picked: Tensor
    peak: Tensor

    @classmethod
    def of(cls, state: TourState, positions: int, capacity: int) -> "RoutePrefix":
        """Up to each of the first positions, ``[R, P, 1]``."""
        start, picked, peak = (v[:, :positions, None] for v in (state.start, state.picked_before, state.peak_before))
        return cls(start, None, picked - capacity, peak - capacity)

    def then(self, arc: Tensor, segment: SegmentTable) -> "RoutePrefix":
        """Append an arc, which includes the service before it, and a segment."""
        arrival = self.start + arc
        late = arrival - segment.latest
        return RoutePrefix(
            start=torch.maximum(arrival + segment.duration, segment.ready),
            excess=late if self.excess is None else torch.maximum(self.excess, late),
            picked=self.picked + segment.picked,
            peak=torch.maximum(self.peak + segment.delivered, self.picked + segment.peak),
        )

    def end(self, arc: Tensor, latest: Tensor, delivered: Tensor, peak: Tensor) -> Tensor:
        """Append an arc and the rest of a route; how far the worst rule is broken, positive if any is."""
        late = self.start + arc - latest
        load = torch.maximum(self.peak + delivered, self.picked + peak)
        excess = torch.maximum(late, load)
        return excess if self.excess is None else torch.maximum(self.excess, excess)


class BetweenRoutes:
    """Moves between two routes.

    Args:
        rules: Of the instances.
        state: Of the tours.
        positions: P.
    """

    def __init__(self, rules: Rules, state: TourState, positions: int) -> None:
        self._state, self._positions = state, positions
        nodes = state.nodes[:, : positions + MARGIN]
        size = nodes.shape[1]
        self._length = rules.between(
            nodes[:, :, None].expand(-1, -1, size), nodes[:, None].expand(-1, size, -1)
        )  # [R, P + 4, P + 4]
        self._time = self._length + state.service[:, :size, None]
        self._back_time = self._time.mT
        self._spare = (rules.limit[:, None] - state.length)[:, :positions, None]
        self._before = RoutePrefix.of(state, positions, rules.capacity)

    def best(self) -> tuple[Tensor, Tensor]:
        """Least change of length by any move of positions p and q, and its kind, ``[R, P, P]`` each.

        Not symmetric: relocations move what follows q behind p.
        """
        best, kinds = self._tails()
        single, pair = self._replaced(1, 1, False), self._replaced(2, 1, False)
        candidates = [(single + single.mT, kind(1, 1))]
        for turn in (False, True):
            candidates.append((pair + self._replaced(1, 2, turn).mT, kind(2, 1, turn_first=turn)))
        straight, turned = self._replaced(2, 2, False), self._replaced(2, 2, True)
        for first in (False, True):
            for second in (False, True):
                received, given = turned if second else straight, turned if first else straight
                candidates.append((received + given.mT, kind(2, 2, first, second)))
        for length, turn in RELOCATED:
            removal = self._removal(length)[:, None]
            candidates.append((self._replaced(0, length, turn) + removal, kind(0, length, turn_second=turn)))
        for change, code in candidates:
            kinds = torch.where(change < best, code, kinds)
            best = torch.minimum(change, best)
        route = self._state.route[:, : self._positions]
        return torch.where(route[:, :, None] == route[:, None], IMPOSSIBLE, best), kinds

    def _column(self, values: Tensor, ahead: int = 0) -> Tensor:
        return values[:, ahead : ahead + self._positions, None]

    def _arcs(self, table: Tensor, row: int, column: int) -> Tensor:
        """Arcs from p + row to q + column, ``[R, P, P]``."""
        return table[:, row : row + self._positions, column : column + self._positions]

    def _old(self, length: int) -> Tensor:
        """Length from p to p + length + 1, forbidden if that leaves the route or changes a locked one, ``[R, P]``."""
        state, end = self._state, self._positions
        legs = self._length.diagonal(1, 1, 2)[:, : end + MARGIN - 1]
        old = legs[:, :end]
        for ahead in range(1, length + 1):
            old = old + legs[:, ahead : ahead + end]
        leaves = state.route[:, length : length + end] != state.route[:, :end]
        return old.masked_fill(leaves | state.locked[:, :end], -FORBIDDEN)

    def _replaced(self, outgoing: int, incoming: int, turn: bool) -> Tensor:
        """Change of length of p's route if ``(q, q + incoming]`` replaces ``(p, p + outgoing]``, ``[R, P, P]``."""
        state, end = self._state, self._positions
        first, last = (incoming, 1) if turn else (1, incoming)
        table = state.reverse if turn else state.forward
        segment = table.map(lambda values: values[:, None, :end, incoming - 1])
        arrive = self._arcs(self._length, 0, first)
        leave = self._arcs(self._length.mT, outgoing + 1, last)
        change = arrive + leave + segment.length - self._old(outgoing)[..., None]
        prefix = self._before.then(self._arcs(self._time, 0, first), segment)
        excess = prefix.end(
            self._arcs(self._back_time, outgoing + 1, last),
            self._column(state.latest, outgoing + 1),
            self._column(state.delivered_after, outgoing),
            self._column(state.peak_after, outgoing),
        )
        return change.masked_fill(torch.maximum(excess, change - self._spare) > 0, FORBIDDEN)

    def _removal(self, length: int) -> Tensor:
        """Change of length of the route if ``(p, p + length]`` leaves it, ``[R, P]``."""
        shortcut = self._length.diagonal(length + 1, 1, 2)[:, : self._positions]
        return shortcut - self._old(length)

    def _tails(self) -> tuple[Tensor, Tensor]:
        """Exchanges of all that follows p and q, and their kind, ``[R, P, P]``."""
        state, end = self._state, self._positions
        arc = self._arcs(self._length, 0, 1)
        excess = self._before.end(
            self._arcs(self._time, 0, 1),
            state.latest[:, None, 1 : end + 1],
            state.delivered_after[:, None, :end],
            state.peak_after[:, None, :end],
        )
        rest = (state.length - state.length_before)[:, None, :end] - self._old(0)[:, None]
        length = self._column(state.length_before) + arc + rest
        excess = torch.maximum(excess, length - (self._spare + self._column(state.length)))
        change = (arc - self._old(0)[..., None]).masked_fill(excess > 0, FORBIDDEN)
        return change + change.mT, torch.full_like(change, TAILS, dtype=torch.int16)


class WithinRoutes:
    """Relocations and reversals within a route.

    No length can break the limit, for only shorter ones are taken. Exchanges of segments within a route are left out:
    after relocations, reversals and the moves between routes they found nothing in some hundred searches.

    Args:
        rules: Of the instances.
        state: Of the tours.
        positions: P.
    """

    def __init__(self, rules: Rules, state: TourState, positions: int) -> None:
        self._state, self._positions = state, positions
        self._width = state.forward.length.shape[2]
        rows, span = positions + self._width + MARGIN, self._width + MARGIN + 1
        ahead = state.nodes.unfold(1, span, 1)[:, :rows]  # [R, Y, W + 5]
        here = state.nodes[:, :rows, None].expand_as(ahead)
        self._out, self._back = rules.between(here, ahead), rules.between(ahead, here)
        self._legs = self._out[:, :, 1]
        self._service = state.service
        self._before = RoutePrefix.of(state, positions, rules.capacity)

    def best(self) -> tuple[Tensor, Tensor, Tensor]:
        """Least change of length by any move with p as first position, its second position and kind, ``[R, P]``."""
        found = [self._turned()]
        for length, turn in RELOCATED:
            found += [self._later(length, turn), self._earlier(length, turn)]
        least = torch.stack([change for change, _, _ in found], dim=-1)  # [R, P, kinds]
        where = torch.stack([position for _, position, _ in found], dim=-1)
        codes = [torch.full_like(position, code) for _, position, code in found]
        best, index = least.min(-1, keepdim=True)
        return best[..., 0], where.gather(-1, index)[..., 0], torch.stack(codes, -1).gather(-1, index)[..., 0]

    def _vector(self, values: Tensor, ahead: int) -> Tensor:
        """Values at p + ahead, ``[R, P, 1]``."""
        return values[:, ahead : ahead + self._positions, None]

    def _second(self, values: Tensor, ahead: int, first: int) -> Tensor:
        """Values at q + ahead for q = p + first to p + W, ``[R, P, W - first + 1]``."""
        stop = self._width + ahead + 1
        return values.unfold(1, stop, 1)[:, : self._positions, first + ahead :]

    def _arc(self, row: int, column: int, first: int) -> tuple[Tensor, Tensor]:
        """From p + row to q + column: length, and time from the start of service."""
        start = first + column - row
        length = self._out[:, row : row + self._positions, start : start + self._width + 1 - first]
        return length, length + self._vector(self._service, row)

    def _arc_back(self, row: int, column: int, first: int) -> tuple[Tensor, Tensor]:
        """From q + row to p + column: length, and time from the start of service."""
        start = first + row - column
        length = self._back[:, column : column + self._positions, start : start + self._width + 1 - first]
        return length, length + self._second(self._service, row, first)

    def _segment(self, table: SegmentTable, skipped: int, first: int) -> SegmentTable:
        """``(p + skipped, q]``."""
        positions, width = self._positions, self._width
        return table.map(lambda values: values[:, skipped : skipped + positions, first - skipped - 1 : width - skipped])

    def _short(self, length: int, turn: bool) -> SegmentTable:
        """``(p, p + length]``."""
        table = self._state.reverse if turn else self._state.forward
        return table.map(lambda values: values[:, : self._positions, length - 1, None])

    def _short_second(self, length: int, turn: bool, first: int) -> SegmentTable:
        """``(q, q + length]``."""
        table = self._state.reverse if turn else self._state.forward
        return table.map(lambda values: self._second(values[..., length - 1], 0, first))

    def _finish(
        self, prefix: RoutePrefix, arc: Tensor, taken: int, change: Tensor, first: int, code: int
    ) -> tuple[Tensor, Tensor, int]:
        """Go on along an arc to what follows q + taken; the best q of each p."""
        state = self._state
        excess = prefix.end(
            arc,
            self._second(state.latest, taken + 1, first),
            self._second(state.delivered_after, taken, first),
            self._second(state.peak_after, taken, first),
        )
        outside = self._second(state.route, taken, first) != self._vector(state.route, 0)
        outside = outside | self._vector(state.locked, 0)
        best, index = change.masked_fill((excess > 0) | outside, IMPOSSIBLE).min(-1)
        return best, index + first + torch.arange(self._positions, device=index.device), code

    def _turned(self) -> tuple[Tensor, Tensor, int]:
        """2-opt: p, then q back to p + 1, then q + 1."""
        segment = self._segment(self._state.reverse, 0, first := 2)
        straight = self._segment(self._state.forward, 0, first)
        arrive, leave = self._arc(0, 0, first), self._arc(1, 1, first)
        change = arrive[0] + leave[0] + (segment.length - straight.length)
        change = change - self._vector(self._legs, 0) - self._second(self._legs, 0, first)
        return self._finish(self._before.then(arrive[1], segment), leave[1], 0, change, first, TURN)

    def _later(self, length: int, turn: bool) -> tuple[Tensor, Tensor, int]:
        """``(p, p + length]`` moves behind q."""
        first = length + 1
        head, tail = (length, 1) if turn else (1, length)
        moved, straight = self._short(length, turn), self._short(length, False)
        skip = self._out[:, : self._positions, length + 1, None]
        arrive, leave = self._arc_back(0, head, first), self._arc(tail, 1, first)
        prefix = self._before.then(
            skip + self._vector(self._service, 0), self._segment(self._state.forward, length, first)
        )
        change = skip + arrive[0] + leave[0] + (moved.length - straight.length)
        change = change - self._vector(self._legs, 0) - self._vector(self._legs, length)
        change = change - self._second(self._legs, 0, first)
        return self._finish(prefix.then(arrive[1], moved), leave[1], 0, change, first, kind(length, 0, turn_first=turn))

    def _earlier(self, length: int, turn: bool) -> tuple[Tensor, Tensor, int]:
        """``(q, q + length]`` moves behind p."""
        first = 1
        head, tail = (length, 1) if turn else (1, length)
        moved, straight = self._short_second(length, turn, first), self._short_second(length, False, first)
        arrive, leave = self._arc(0, head, first), self._arc_back(tail, 1, first)
        skip = self._second(self._out[:, :, length + 1], 0, first)
        prefix = self._before.then(arrive[1], moved).then(leave[1], self._segment(self._state.forward, 0, first))
        change = arrive[0] + leave[0] + skip + (moved.length - straight.length)
        change = change - self._vector(self._legs, 0) - self._second(self._legs, 0, first)
        change = change - self._second(self._legs, length, first)
        time = skip + self._second(self._service, 0, first)
        return self._finish(prefix, time, length, change, first, kind(0, length, turn_second=turn))
