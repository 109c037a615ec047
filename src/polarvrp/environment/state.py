"""State of a batch of partial solutions and the constants of their instances.

Shape legend: B instances, S solutions under construction per instance, K depots, N = K + n nodes (depots first).
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from polarvrp.problem.instances import Instances
from polarvrp.tolerances import LARGEST_UNIT_BOUND, MASK_EPSILON

NO_NEED = -2
"""Units that fit into any vehicle, even one that may take nothing (-1)."""


@dataclass(frozen=True, slots=True)
class State:
    """Where S partial solutions of each of B instances stand.

    Attributes:
        current: Node where the vehicle is, int64, ``[B, S]``.
        depot: Depot of the running route, int64, ``[B, S]``.
        time: Moment at which ``current`` is left, service included, float, ``[B, S]``.
        length: Length of the running route so far, float, ``[B, S]``.
        used_linehaul: Deliveries of the running route in units, int32, ``[B, S]``.
        used_backhaul: Pickups of the running route, likewise.
        peak_load: Largest load anywhere on the running route given what it serves so far (mixed backhauls), likewise.
        visited: Nodes seen so far; a depot counts once it was an action, bool, ``[B, S, N]``.
        unserved: Customers not visited yet, int32, ``[B, S]``.
        tried: Depots already tried in the present deadlock, bool, ``[B, S, K]``.
        travelled: Length of all legs so far, float, ``[B, S]``.
        mask: Legal next actions, bool, ``[B, S, N]``.
        num_actions: Actions taken so far, the same for all rows.
    """

    current: Tensor
    depot: Tensor
    time: Tensor
    length: Tensor
    used_linehaul: Tensor
    used_backhaul: Tensor
    peak_load: Tensor
    visited: Tensor
    unserved: Tensor
    tried: Tensor
    travelled: Tensor
    mask: Tensor
    num_actions: int


@dataclass(frozen=True, slots=True)
class Constants:
    """What the rules need of each instance, shaped to broadcast against ``[B, S, N]``.

    Loads are whole units, so that sums are exact at any capacity. Distances and bounds are computed in float64 and
    rounded once.

    Attributes:
        distances: Float, ``[B, N, N]``.
        linehaul: Int32, ``[B, 1, N]``.
        backhaul: Int32, ``[B, 1, N]``.
        is_backhaul: Bool, ``[B, 1, N]``.
        delivery_need: ``linehaul``, at backhaul customers less than any free capacity, int32, ``[B, 1, N]``.
        pickup_need: ``backhaul``, likewise at linehaul customers, int32, ``[B, 1, N]``.
        earliest: Float, ``[B, 1, N]``.
        service: Float, ``[B, 1, N]``.
        last_arrival: Customers must be reached before it by a route of that depot, to be in time there and, unless
            routes are open, back; minus infinity at depots, float, ``[B, K, N]``.
        longest_way: Length up to which such a route may have grown on arrival, float, ``[B, K, N]``.
        capacity: Int32, ``[B, 1]``.
        open_route: Bool, ``[B, 1]``.
        mixed: Bool, ``[B, 1]``.
    """

    distances: Tensor
    linehaul: Tensor
    backhaul: Tensor
    is_backhaul: Tensor
    delivery_need: Tensor
    pickup_need: Tensor
    earliest: Tensor
    service: Tensor
    last_arrival: Tensor
    longest_way: Tensor
    capacity: Tensor
    open_route: Tensor
    mixed: Tensor

    @classmethod
    def of(cls, instances: Instances[Tensor]) -> "Constants":
        """Constants of ``instances``, on their device and in their precision."""
        num_depots, dtype = instances.num_depots, instances.locs.dtype
        distances = distance_matrix(instances.locs)
        open_route = instances.open_route[:, None, None]
        back = distances[:, :num_depots].masked_fill(open_route, 0.0)  # [B, K, N]
        earliest, latest = instances.time_windows.double()[:, None].unbind(-1)  # [B, 1, N]
        service = instances.service_time.double()[:, None]
        home = with_tolerance(latest[..., :num_depots]).transpose(1, 2) - back - service  # [B, K, N]
        home = home.masked_fill(home <= earliest, -torch.inf).masked_fill(open_route, torch.inf)
        last_arrival = torch.minimum(with_tolerance(latest), home)
        last_arrival[..., :num_depots].fill_(-torch.inf)
        limit = with_tolerance(instances.distance_limit.double())
        linehaul, backhaul = (
            units_of(demand, instances.capacity)[:, None]
            for demand in (instances.demand_linehaul, instances.demand_backhaul)
        )
        is_backhaul = backhaul > 0
        return cls(
            distances=distances.to(dtype),
            linehaul=linehaul,
            backhaul=backhaul,
            is_backhaul=is_backhaul,
            delivery_need=linehaul.masked_fill(is_backhaul, NO_NEED),
            pickup_need=backhaul.masked_fill(~is_backhaul, NO_NEED),
            earliest=earliest.to(dtype),
            service=service.to(dtype),
            last_arrival=last_arrival.to(dtype),
            longest_way=(limit[:, None, None] - back).to(dtype),
            capacity=torch.full_like(backhaul[:, 0, :1], instances.capacity),
            open_route=open_route[..., 0],
            mixed=(instances.backhaul_class == 2)[:, None],
        )

    def repeated(self, count: int) -> "Constants":
        """Those of ``count`` copies of the instances, one copy of all after the other."""
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        return Constants(**{name: torch.cat([tensor] * count) for name, tensor in tensors.items()})


def distance_matrix(locs: Tensor) -> Tensor:
    """Distances between the nodes of each instance, ``[B, N, 2]`` to float64 ``[B, N, N]``."""
    wide = locs.double()
    distances: Tensor = (wide[:, :, None] - wide[:, None]).norm(dim=-1)
    return distances


def units_of(demand: Tensor, capacity: int) -> Tensor:
    """Demands in whole units, int32; more than the capacity counts as one unit more.

    Args:
        demand: Fractions of the capacity, float.
        capacity: Below 2^30, so that sums of two loads stay in range.
    """
    return (demand.double() * capacity).round().clamp(max=capacity + 1).to(torch.int32)


def with_tolerance(bound: Tensor) -> Tensor:
    """Bounds that rounding cannot turn against those who keep the given ones (``tolerances.tolerance_at``)."""
    return bound + MASK_EPSILON * (bound / LARGEST_UNIT_BOUND).clamp(min=1.0)


def entries_of(values: Tensor, index: Tensor) -> Tensor:
    """Entry ``index`` of each last axis: ``[B, S or 1, N]``, ``[B, S]`` -> ``[B, S]``."""
    return values.expand(-1, index.shape[1], -1).gather(2, index[..., None]).squeeze(2)


def fresh_state(constants: Constants, num_rows: int, num_depots: int, mask: Tensor) -> State:
    """State before the first action, with the given mask."""
    batch, nodes = constants.distances.shape[:2]
    zero = constants.distances.new_zeros(batch, num_rows)
    empty = constants.capacity.new_zeros(batch, num_rows)
    node = torch.zeros(batch, num_rows, dtype=torch.int64, device=zero.device)
    return State(
        current=node,
        depot=node,
        time=zero,
        length=zero,
        used_linehaul=empty,
        used_backhaul=empty,
        peak_load=empty,
        visited=torch.zeros(batch, num_rows, nodes, dtype=torch.bool, device=zero.device),
        unserved=torch.full_like(empty, nodes - num_depots),
        tried=torch.zeros(batch, num_rows, num_depots, dtype=torch.bool, device=zero.device),
        travelled=zero,
        mask=mask,
        num_actions=0,
    )
