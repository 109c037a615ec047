"""Segment tables for constant-time move evaluation: a route put together from segments is judged without a walk.

All tours lie in sequences of one length: a depot opens each of M routes, empty ones included, so a sequence has P = n
+ M positions. The segment ``(p, q]`` is what is served after position p up to q. Each segment, forward and reversed,
knows when it may start at the latest and when its last service starts, given its first arrival; its length; its
deliveries, pickups and largest load. These are running maxima and minima along the sequence: with A the time from the
depot to a position without any waiting, the service at q starts at ``A_q + max(e_k - A_k)`` over k up to q, and what
follows p can be served if it is reached at ``A_p + min(l_k - A_k)``. No loop, and the precision of float64 where sums
are long.

Two reductions make the rules of all variants one. Without mixed backhauls, an arc from a backhaul to a linehaul
customer is forbidden by its length; then the largest load on the way is the larger of the sums of deliveries and
pickups, the quantity that counts there. Open routes have no legs to the depot and no closing time.

Shape legend: R tours, N nodes, P positions, W widths of segments, Y rows of tables, Z positions with what is appended
so that windows may reach beyond the end.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import pad

from polarvrp.environment.state import distance_matrix
from polarvrp.problem.instances import Instances

FORBIDDEN = 1e4
"""Length of an arc that is not allowed, lateness of what is impossible; above any length or time."""

_UNBOUNDED = 5e3  # a limit or the end of a window where there is none; below the length of a forbidden arc
_SEGMENT = 1e5  # between the values of neighbouring routes, so that one running maximum serves all of them
MARGIN = 4
"""Positions beyond a segment that moves look at."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of the instances of R tours, in tensors.

    Attributes:
        arcs: Lengths, free legs and forbidden arcs included, float32, ``[R, N, N]``.
        nodes: Earliest and latest start, service time, delivery and pickup in units, float64, ``[R, 5, N]``.
        limit: Longest route, float32, ``[R]``.
        capacity: In units.
    """

    arcs: Tensor
    nodes: Tensor
    limit: Tensor
    capacity: int

    @classmethod
    def of(cls, instances: Instances[Tensor], tours: int) -> "Rules":
        """Rules of the instances for so many tours of each, tours of an instance side by side."""
        arcs = distance_matrix(instances.locs)
        arcs[:, :, 0] = arcs[:, :, 0].masked_fill(instances.open_route[:, None], 0.0)
        backhaul = instances.demand_backhaul > 0
        linehaul = ~backhaul
        linehaul[:, 0] = False
        ordered = instances.backhaul_class != 2
        arcs = arcs.masked_fill(backhaul[:, :, None] & linehaul[:, None] & ordered[:, None, None], FORBIDDEN)
        latest = instances.time_windows[..., 1].clamp(max=_UNBOUNDED)
        latest[:, 0] = latest[:, 0].masked_fill(instances.open_route, _UNBOUNDED)
        earliest = instances.time_windows[..., 0].clone()
        earliest[:, 0] = 0.0
        units = (instances.demand_linehaul, instances.demand_backhaul)
        demand = ((demand.double() * instances.capacity).round() for demand in units)
        nodes = torch.stack((earliest.double(), latest.double(), instances.service_time.double(), *demand), dim=1)
        limit = instances.distance_limit.clamp(max=_UNBOUNDED)
        arcs, nodes, limit = (table.repeat_interleave(tours, dim=0) for table in (arcs.float(), nodes, limit.float()))
        return cls(arcs, nodes, limit, instances.capacity)

    @property
    def customers(self) -> int:
        """n."""
        return self.arcs.shape[-1] - 1

    def between(self, start: Tensor, end: Tensor) -> Tensor:
        """Lengths of arcs between nodes given by equally shaped ``[R, ...]``."""
        nodes = self.arcs.shape[-1]
        return self.arcs.flatten(1).gather(1, (start * nodes + end).flatten(1)).view(start.shape)


@dataclass(frozen=True, slots=True)
class SegmentTable:
    """Segments of routes by what their concatenation needs.

    Attributes:
        latest: Latest arrival at the first node, lower than any arrival if the part breaks a rule by itself.
        duration: From the start of the first service to that of the last, if nobody waits.
        ready: Earliest start of the last service.
        length: From first to last node; forbidden where the part is not within one route.
        delivered: Units.
        picked: Units.
        peak: Largest load if the vehicle served this part alone, units.
    """

    latest: Tensor
    duration: Tensor
    ready: Tensor
    length: Tensor
    delivered: Tensor
    picked: Tensor
    peak: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> "SegmentTable":
        """The same function of each attribute."""
        return SegmentTable(*(function(getattr(self, field.name)) for field in fields(self)))


@dataclass(frozen=True, slots=True)
class TourState:
    """State of R tours: where everything lies, prefixes and suffixes of each position, and the segment tables.

    Attributes:
        nodes: At each position, int64, ``[R, Z]``.
        route: Number of the route, int64, ``[R, Z]``.
        after: Position of the depot that opens the next route, int64, ``[R, Z]``.
        locked: Whether the route must stay as it is, bool, ``[R, Z]``.
        service: Time at each node, ``[R, Z]``.
        start: Start of service, ``[R, Z]``.
        picked_before: Pickups up to the position, the position's included, ``[R, Z]``.
        peak_before: Largest load if the route ended here, ``[R, Z]``.
        latest: Latest arrival such that the rest of the route is in time, ``[R, Z]``; at a depot the closing time, for
            the route that ends there.
        delivered_after: Deliveries after the position, ``[R, Z]``.
        peak_after: Largest load if the route began after the position, ``[R, Z]``.
        length_before: Of the route up to the position, ``[R, Z]``.
        length: Of the position's route, ``[R, Z]``.
        forward: Segments ``(p, p + w]`` for w = 1 to W, ``[R, Y, W]``.
        reverse: The same, visited the other way round.
    """

    nodes: Tensor
    route: Tensor
    after: Tensor
    locked: Tensor
    service: Tensor
    start: Tensor
    picked_before: Tensor
    peak_before: Tensor
    latest: Tensor
    delivered_after: Tensor
    peak_after: Tensor
    length_before: Tensor
    length: Tensor
    forward: SegmentTable
    reverse: SegmentTable

    @classmethod
    def of(cls, rules: Rules, sequence: Tensor, width: int, locked: Tensor) -> "TourState":
        """State of tours.

        Args:
            rules: Of their instances.
            sequence: Nodes, int64, ``[R, P]``, a depot first; every tour feasible.
            width: W, the widest segment.
            locked: Number of the first route that must stay as it is, int64, ``[R]``.
        """
        rows = sequence.shape[1] + width + MARGIN
        nodes = pad(sequence, (0, 2 * width + 2 * MARGIN))  # [R, Z]
        opens = nodes == 0
        route = opens.cumsum(1) - 1
        begin, after = _ends(opens)
        values = rules.nodes.gather(2, nodes[:, None].expand(-1, 5, -1))
        earliest, latest, service, delivery, pickup = values.unbind(1)
        sums = _Sums.of(rules, nodes, service, delivery, pickup)
        at_begin, at_end = sums.at(begin), sums.at(after)

        shift = _SEGMENT * route
        before = (torch.stack((earliest - sums.clock, sums.net)) + shift).cummax(-1).values - shift
        ended = shift - _SEGMENT * opens  # a depot's closing time belongs to the route that ends there
        behind = torch.stack((latest - sums.clock + ended, shift - sums.net))
        behind = behind.flip(-1).cummin(-1).values.flip(-1)
        delivered_after = at_end.delivered - sums.delivered
        delivered_before = sums.delivered - at_begin.delivered
        forward, reverse = _tables(sums, route, earliest, latest, rows, width)
        return cls(
            nodes=nodes,
            route=route,
            after=after,
            locked=route >= locked[:, None],
            service=service.float(),
            start=(sums.clock + before[0]).float(),
            picked_before=(sums.picked - at_begin.picked).float(),
            peak_before=(delivered_before + before[1] - at_begin.net).float(),
            latest=(sums.clock + behind[0] - ended).float(),
            delivered_after=delivered_after.float(),
            peak_after=(delivered_after - (behind[1] - shift) - sums.net).float(),
            length_before=(sums.length - at_begin.length).float(),
            length=(at_end.length - at_begin.length).float(),
            forward=forward,
            reverse=reverse,
        )


@dataclass(frozen=True, slots=True)
class _Sums:
    """Running sums along the sequences, float64, ``[R, Z]``.

    Attributes:
        clock: Time from the first position to the start of service, without waiting.
        back: Minus the time from a position back to the first one, the first service left out.
        length: Of the way.
        delivered: Units.
        picked: Units.
        net: Pickups minus deliveries.
        one_way: Arcs that are forbidden the other way round.
    """

    clock: Tensor
    back: Tensor
    length: Tensor
    delivered: Tensor
    picked: Tensor
    net: Tensor
    one_way: Tensor

    @classmethod
    def of(cls, rules: Rules, nodes: Tensor, service: Tensor, delivery: Tensor, pickup: Tensor) -> "_Sums":
        leg = pad(rules.between(nodes[:, :-1], nodes[:, 1:]), (1, 0))
        leg = leg.masked_fill(leg >= FORBIDDEN, 0.0)  # none where a route counts, but sums must stay moderate
        one_way = pad(rules.between(nodes[:, 1:], nodes[:, :-1]), (1, 0)) >= FORBIDDEN
        columns = torch.stack((leg.double(), service, delivery, pickup, one_way.double()))
        length, served, delivered, picked, forbidden = columns.cumsum(-1).unbind(0)
        return cls(
            length + served - service, -(length + served), length, delivered, picked, picked - delivered, forbidden
        )

    def all(self) -> Tensor:
        """Stacked, ``[7, R, Z]``."""
        return torch.stack([getattr(self, field.name) for field in fields(self)])

    def at(self, position: Tensor) -> "_Sums":
        """The sums at other positions, int64, ``[R, Z]``."""
        return _Sums(*self.all().gather(2, position.expand(7, -1, -1)).unbind(0))


def _ends(opens: Tensor) -> tuple[Tensor, Tensor]:
    """Position of the depot that opens the route of each position, and of the next one, int64, ``[R, Z]``."""
    length = opens.shape[1]
    position = torch.arange(length, device=opens.device).expand_as(opens)
    begin = position.masked_fill(~opens, 0).cummax(1).values
    ahead = position.masked_fill(~opens, length - 1).flip(1).cummin(1).values.flip(1)
    return begin, pad(ahead[:, 1:], (0, 1), value=length - 1)


def _tables(
    sums: _Sums, route: Tensor, earliest: Tensor, latest: Tensor, rows: int, width: int
) -> tuple[SegmentTable, SegmentTable]:
    """Segments of all widths after the first Y positions, forward and reversed."""

    def windows(values: Tensor) -> Tensor:
        return values.unfold(-1, width + 1, 1)[..., :rows, 1:]

    everything = sums.all()
    relative = (windows(everything) - everything[..., :rows, None]).float()  # [7, R, Y, W]
    clock, back, length, delivered, picked, net, one_way = relative.unbind(0)
    opening, closing = windows(earliest.float()), windows(latest.float())
    early, late = opening - clock, closing - clock
    early_back, late_back = opening - back, (closing - back).cummin(-1).values
    # Reversed, the last of a segment is served before all others: what waits for it must still be in time.
    broken = (early_back - late_back).cummax(-1).values > 0
    outside = (windows(route) != route[:, :rows, None]) * FORBIDDEN
    inner = length - length[..., :1] + outside
    rise, fall = net.cummax(-1).values.clamp(min=0), net.cummin(-1).values.clamp(max=0)
    forward = SegmentTable(
        latest=clock[..., :1] + late.cummin(-1).values,
        duration=clock - clock[..., :1],
        ready=clock + early.cummax(-1).values,
        length=inner,
        delivered=delivered,
        picked=picked,
        peak=delivered + rise,
    )
    reverse = SegmentTable(
        latest=(back + late_back).masked_fill(broken, -FORBIDDEN),
        duration=back[..., :1] - back,
        ready=back[..., :1] + early_back.cummax(-1).values,
        length=inner + FORBIDDEN * (one_way - one_way[..., :1]),
        delivered=delivered,
        picked=picked,
        peak=delivered + net - fall,
    )
    return forward, reverse
