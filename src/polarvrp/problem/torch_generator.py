"""Training batches drawn on the fly: variants mixed, each instance its own, or one variant a batch.

Every attribute is drawn for every instance; those that its variant lacks are then removed. Over the sixteen training
variants each attribute is so kept with probability 1/2, independently of the others. The laws are those of the test
sets, in float32, but for several depots, where published trainings and test sets differ: here vehicles of every depot
are back in time from each customer, and those of one reach all within the limit; in test sets both hold for the first
depot. All instances of a batch have the same number of depots.

Shape legend: B instances, K depots first, n customers, N = K + n nodes.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

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

    The order of draws is fixed: which variants if they differ in depots (see ``draw_variants``), coordinates, linehaul
    and backhaul demands, who is a backhaul, service times, window lengths, window starts, limits, variants.

    Args:
        num_customers: n.
        batch_size: B.
        generator: Lives on ``device``; its state alone determines the batch.
        device: Where all tensors are made.
        variants: Names of variants to draw from, each as likely as the others over many batches. Drawing between those
            that differ in depots needs a number in main memory: where that must not happen, as in a captured graph,
            give those of one number of depots.
        mixed: Whether each instance draws its own variant, or the batch one for all.

    Returns:
        B instances of K + n nodes, floats in float32. Where backhauls are removed their customers become linehaul
        ones, so nobody is without demand.
    """
    variants = draw_variants(variants, generator)
    num_depots = VARIANTS[variants[0]].num_depots
    shape = (batch_size, num_customers)

    def uniform(*size: int) -> Tensor:
        return torch.rand(size, generator=generator, device=device)

    def between(bounds: tuple[float, float], *size: int) -> Tensor:
        return bounds[0] + (bounds[1] - bounds[0]) * uniform(*size)

    def demands() -> Tensor:
        units = torch.randint(*DEMAND_BOUNDS, shape, generator=generator, device=device, dtype=torch.float32)
        return units / capacity_for(num_customers)

    locs = uniform(batch_size, num_depots + num_customers, 2)  # [B, N, 2]
    deliveries, pickups = demands(), demands()  # [B, n]
    is_backhaul = uniform(*shape) < BACKHAUL_FRACTION  # [B, n]
    service, length = between(SERVICE_BOUNDS, *shape), between(WINDOW_LENGTH_BOUNDS, *shape)  # [B, n]
    start, limit = uniform(*shape), uniform(batch_size)  # [B, n], [B]
    flags = _draw_flags(variants, batch_size if mixed else 1, generator, device).expand(batch_size, -1)  # [B, 6]
    open_route, has_windows, has_limit, has_backhauls, has_mixed = flags[:, :5].unbind(dim=1)  # [B]

    distance = (locs[:, None, num_depots:] - locs[:, :num_depots, None]).norm(dim=-1)  # [B, K, n]
    earliest, latest = _windows(distance.amax(dim=1), service, length, start, num_depots)  # [B, N]
    unbounded = ~has_windows[:, None]
    demand = torch.where(is_backhaul, pickups, deliveries)  # [B, n]
    backhaul = demand * (is_backhaul & has_backhauls[:, None])  # [B, n]
    return Instances(
        locs=locs,
        demand_linehaul=_with_depots(demand - backhaul, num_depots),
        demand_backhaul=_with_depots(backhaul, num_depots),
        time_windows=torch.stack(
            (earliest.masked_fill(unbounded, 0.0), latest.masked_fill(unbounded, math.inf)), dim=-1
        ),
        service_time=_with_depots(service * has_windows[:, None], num_depots),
        distance_limit=_limits(distance, limit).masked_fill(~has_limit, math.inf),
        open_route=open_route,
        backhaul_class=1 + has_mixed.long(),
        flags=flags,
        num_depots=num_depots,
        capacity=capacity_for(num_customers),
    )


def draw_variants(variants: Sequence[str], generator: torch.Generator) -> tuple[str, ...]:
    """Variants of one batch: those with one depot, or those with several, as likely as their share of all.

    Args:
        variants: Names of variants.
        generator: Draws one number where they differ in depots, none where they do not.

    Returns:
        Names with the same number of depots.
    """
    several = tuple(name for name in variants if VARIANTS[name].multi_depot)
    if not 0 < len(several) < len(variants):
        return tuple(variants)
    number = torch.rand((), generator=generator, device=generator.device)
    if float(number) * len(variants) < len(several):
        return several
    return tuple(name for name in variants if not VARIANTS[name].multi_depot)


def _draw_flags(variants: Sequence[str], count: int, generator: torch.Generator, device: torch.device | str) -> Tensor:
    """Constraint vectors of so many variants, each drawn by itself, ``[count, 6]``."""
    drawn = torch.randint(len(variants), (count,), generator=generator, device=device)
    return _flags(tuple(variants), torch.device(device))[drawn]


@lru_cache(maxsize=16)
def _flags(variants: tuple[str, ...], device: torch.device) -> Tensor:
    """Constraint vectors of variants, ``[variants, 6]``; kept, because a captured graph cannot copy them anew."""
    return torch.tensor([VARIANTS[name].flags for name in variants], device=device)


def _with_depots(values: Tensor, num_depots: int, depot: float = 0.0) -> Tensor:
    """Values of the customers ``[B, n]`` after those of the depots, ``[B, N]``."""
    return torch.nn.functional.pad(values, (num_depots, 0), value=depot)


def _windows(
    distance: Tensor, service: Tensor, length: Tensor, start: Tensor, num_depots: int
) -> tuple[Tensor, Tensor]:
    """Earliest and latest starts ``[B, N]``, depots included, such that every depot can serve each customer alone.

    Distances are those from the farthest depot. The earliest start lies between the first arrival from there and the
    last that lets the vehicle be back in time: ``(1 + (h - 1) u) d`` with ``h = (closing - service - length) / d - 1``,
    here without the division, which would turn a customer at the depot into NaN.
    """
    room = DEPOT_CLOSING - service - length - 2.0 * distance  # [B, n]
    earliest = distance + room * start
    return _with_depots(earliest, num_depots), _with_depots(earliest + length, num_depots, DEPOT_CLOSING)


def _limits(distance: Tensor, uniform: Tensor) -> Tensor:
    """Limits above the round trip to the farthest customer of the depot for which that is nearest, ``[B]``."""
    low = 2.0 * distance.amax(dim=2).amin(dim=1) + LIMIT_MARGIN
    high = (low + LIMIT_MARGIN).clamp(min=LONGEST_LIMIT)
    return low + (high - low) * uniform
