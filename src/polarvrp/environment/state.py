"""State of a batch of partial solutions and the constants of their instances.

Shape legend: B instances, S solutions under construction per instance, N = K + n nodes (K depots first).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from polarvrp.problem.instances import Instances


@dataclass(frozen=True, slots=True)
class State:
    """Where S partial solutions of each of B instances stand.

    Attributes:
        current: Node where the vehicle is, int64, ``[B, S]``.
        depot: Depot of the running route, int64, ``[B, S]``.
        time: Moment at which ``current`` is left, service included, float, ``[B, S]``.
        length: Length of the running route so far, float, ``[B, S]``.
        used_linehaul: Deliveries of the running route, float, ``[B, S]``.
        used_backhaul: Pickups of the running route, float, ``[B, S]``.
        peak_load: Largest load anywhere on the running route given what it serves so far (mixed backhauls),
            float, ``[B, S]``.
        visited: Nodes seen so far; a depot counts once it was an action, bool, ``[B, S, N]``.
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
    tried: Tensor
    travelled: Tensor
    mask: Tensor
    num_actions: int


@dataclass(frozen=True, slots=True)
class Constants:
    """What the rules need of each instance, shaped to broadcast against ``[B, S, N]``."""

    distances: Tensor  # [B, N, N]
    linehaul: Tensor  # [B, 1, N]
    backhaul: Tensor  # [B, 1, N]
    is_backhaul: Tensor  # [B, 1, N]
    earliest: Tensor  # [B, 1, N]
    latest: Tensor  # [B, 1, N]
    service: Tensor  # [B, 1, N]
    closing: Tensor  # [B, 1, 1]
    limit: Tensor  # [B, 1, 1]
    open_route: Tensor  # [B, 1, 1]
    mixed: Tensor  # [B, 1, 1]

    @classmethod
    def of(cls, instances: Instances[Tensor]) -> "Constants":
        """Constants of ``instances``, on their device and in their precision."""
        locs = instances.locs
        backhaul = instances.demand_backhaul[:, None]
        return cls(
            distances=(locs[:, :, None] - locs[:, None]).norm(dim=-1),
            linehaul=instances.demand_linehaul[:, None],
            backhaul=backhaul,
            is_backhaul=backhaul > 0,
            earliest=instances.time_windows[:, None, :, 0],
            latest=instances.time_windows[:, None, :, 1],
            service=instances.service_time[:, None],
            closing=instances.time_windows[:, :1, None, 1],
            limit=instances.distance_limit[:, None, None],
            open_route=instances.open_route[:, None, None],
            mixed=(instances.backhaul_class == 2)[:, None, None],
        )


def rows_of(table: Tensor, index: Tensor) -> Tensor:
    """Rows ``index`` of a table per instance: ``[B, N, N]``, ``[B, S]`` -> ``[B, S, N]``."""
    return table.gather(1, index[..., None].expand(-1, -1, table.shape[-1]))


def entries_of(values: Tensor, index: Tensor) -> Tensor:
    """Entry ``index`` of each last axis: ``[B, S or 1, N]``, ``[B, S]`` -> ``[B, S]``."""
    return values.expand(-1, index.shape[1], -1).gather(2, index[..., None]).squeeze(2)


def fresh_state(constants: Constants, num_rows: int, num_depots: int, mask: Tensor) -> State:
    """State before the first action, with the given mask."""
    batch, nodes = constants.distances.shape[:2]
    zero = constants.distances.new_zeros(batch, num_rows)
    node = torch.zeros(batch, num_rows, dtype=torch.int64, device=zero.device)
    return State(
        current=node,
        depot=node,
        time=zero,
        length=zero,
        used_linehaul=zero,
        used_backhaul=zero,
        peak_load=zero,
        visited=torch.zeros(batch, num_rows, nodes, dtype=torch.bool, device=zero.device),
        tried=torch.zeros(batch, num_rows, num_depots, dtype=torch.bool, device=zero.device),
        travelled=zero,
        mask=mask,
        num_actions=0,
    )
