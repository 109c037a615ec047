"""Training batches drawn on the fly: variants mixed, each instance its own, or one variant a batch.

Every attribute is drawn for every instance; those that its variant lacks are then removed. Over the sixteen training
variants each attribute is so kept with probability 1/2, independently of the others. The laws are those of the test
sets; only the arithmetic is float32.

Shape legend: B instances, n customers, one depot first.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from polarvrp.problem.instances import Instances
from polarvrp.problem.numpy_generator import (
    BACKHAUL_FRACTION,
    DEMAND_BOUNDS,
    DEPOT_CLOSING,
    LIMIT_MARGIN,
    LONGEST_LIMIT,
    SERVICE_BOUNDS,
    WINDOW_LENGTH_BOUNDS,
)
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS, capacity_for


def generate_batch(
    num_customers: int,
    batch_size: int,
    generator: torch.Generator,
    device: torch.device | str,
    variants: Sequence[str] = TRAINING_VARIANTS,
    mixed: bool = True,
) -> Instances[Tensor]:
    """One batch.

    The order of draws is fixed: coordinates, linehaul and backhaul demands, who is a backhaul, service times, window
    lengths, window starts, limits, variants.

    Args:
        num_customers: n.
        batch_size: B.
        generator: Lives on ``device``; its state alone determines the batch.
        device: Where all tensors are made.
        variants: Names of training variants to draw from, each as likely as the others.
        mixed: Whether each instance draws its own variant, or the batch one for all.

    Returns:
        B instances of n + 1 nodes, floats in float32. Where backhauls are removed their customers become linehaul
        ones, so nobody is without demand.
    """
    shape = (batch_size, num_customers)

    def uniform(*size: int) -> Tensor:
        return torch.rand(size, generator=generator, device=device)

    def between(bounds: tuple[float, float], *size: int) -> Tensor:
        return bounds[0] + (bounds[1] - bounds[0]) * uniform(*size)

    def demands() -> Tensor:
        units = torch.randint(*DEMAND_BOUNDS, shape, generator=generator, device=device, dtype=torch.float32)
        return units / capacity_for(num_customers)

    locs = uniform(batch_size, num_customers + 1, 2)  # [B, n+1, 2]
    deliveries, pickups = demands(), demands()  # [B, n]
    is_backhaul = uniform(*shape) < BACKHAUL_FRACTION  # [B, n]
    service, length = between(SERVICE_BOUNDS, *shape), between(WINDOW_LENGTH_BOUNDS, *shape)  # [B, n]
    start, limit = uniform(*shape), uniform(batch_size)  # [B, n], [B]
    attributes = torch.tensor([VARIANTS[name].flags for name in variants], device=device)  # [variants, 6]
    drawn = torch.randint(len(variants), (batch_size if mixed else 1,), generator=generator, device=device)
    flags = attributes[drawn].expand(batch_size, -1)  # [B, 6]
    open_route, has_windows, has_limit, has_backhauls = flags[:, :4].unbind(dim=1)  # [B]

    distance = (locs[:, 1:] - locs[:, :1]).norm(dim=-1)  # [B, n]
    earliest, latest = _windows(distance, service, length, start)  # [B, n+1]
    unbounded = ~has_windows[:, None]
    demand = torch.where(is_backhaul, pickups, deliveries)  # [B, n]
    backhaul = demand * (is_backhaul & has_backhauls[:, None])  # [B, n]
    return Instances(
        locs=locs,
        demand_linehaul=_with_depot(demand - backhaul),
        demand_backhaul=_with_depot(backhaul),
        time_windows=torch.stack(
            (earliest.masked_fill(unbounded, 0.0), latest.masked_fill(unbounded, math.inf)), dim=-1
        ),
        service_time=_with_depot(service * has_windows[:, None]),
        distance_limit=_limits(distance, limit).masked_fill(~has_limit, math.inf),
        open_route=open_route,
        backhaul_class=torch.ones_like(open_route, dtype=torch.int64),
        flags=flags,
        num_depots=1,
        capacity=capacity_for(num_customers),
    )


def _with_depot(values: Tensor, depot: float = 0.0) -> Tensor:
    """Values of the customers ``[B, n]`` after that of the depot, ``[B, n+1]``."""
    return torch.nn.functional.pad(values, (1, 0), value=depot)


def _windows(distance: Tensor, service: Tensor, length: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Earliest and latest starts ``[B, n+1]``, depot included, such that every customer can be served alone.

    The earliest start lies between the first arrival and the last that lets the vehicle be back in time:
    ``(1 + (h - 1) u) d`` with ``h = (closing - service - length) / d - 1``, here without the division, which would
    turn a customer at the depot into NaN.
    """
    room = DEPOT_CLOSING - service - length - 2.0 * distance  # [B, n]
    earliest = distance + room * start
    return _with_depot(earliest), _with_depot(earliest + length, DEPOT_CLOSING)


def _limits(distance: Tensor, uniform: Tensor) -> Tensor:
    """Limits above the round trip to the farthest customer, ``[B]``."""
    low = 2.0 * distance.amax(dim=1) + LIMIT_MARGIN
    high = (low + LIMIT_MARGIN).clamp(min=LONGEST_LIMIT)
    return low + (high - low) * uniform
