"""Order of a refined tour's routes and their directions, after the tour that it came from.

A solution has as many sequences of actions as its routes have orders and free directions, and a policy gives each its
own probability. Local search returns one of them by chance. Here its routes are put in the order in which the policy
served their customers, so that the likelihood of the refined tour differs from the original's by what was improved.

Shape legend: B instances, k tours per instance, T actions of an original tour, R actions of a refined one, N nodes.
"""

import torch
from torch import Tensor

from polarvrp.problem.instances import Instances


def order_routes(instances: Instances[Tensor], refined: Tensor, original: Tensor) -> Tensor:
    """The refined tours with their routes by the mean place of their customers in the original tours.

    A route whose direction is free is reversed where the original serves its customers rather in that order. Nothing
    waits for the device, no shape depends on values.

    Args:
        instances: B instances of one size.
        refined: Actions as local search returns them, padded with depots, int64, ``[B, k, R]``.
        original: The tours they came from, each customer once, int64, ``[B, k, T]``.

    Returns:
        int64, ``[B, k, R]``, without empty routes; with several depots each route begins with its own.
    """
    depots = instances.num_depots
    is_customer = refined >= depots
    place = _places(original, instances.num_nodes).gather(2, refined) * is_customer  # [B, k, R]
    route = (~is_customer).cumsum(2)  # 0 for customers before any depot, else the number of the depot's visit
    size = _total(route, is_customer.long())
    position = torch.arange(refined.shape[2], device=refined.device).expand_as(refined)
    begin = _first(route, is_customer)  # [B, k, R + 1] by route
    offset = position - begin.gather(2, route)  # among the customers of the route

    falling = size * _total(route, offset * place) < _total(route, offset * is_customer) * _total(route, place)
    turned = (falling & _free_directions(instances, refined, route)).gather(2, route)
    offset = torch.where(turned, size.gather(2, route) - 1 - offset, offset)

    mean = torch.where(size > 0, _total(route, place).double() / size.clamp(min=1), torch.inf)
    order = mean.argsort(stable=True, dim=2)
    room = size + (size > 0)  # its depot as well
    start = torch.zeros_like(room).scatter(2, order, room.gather(2, order).cumsum(2) - room.gather(2, order))

    # The depot of a route stands before its customers; with one depot the first route's is left out.
    target = start.gather(2, route) + torch.where(is_customer, offset + 1, 0) - int(depots == 1)
    kept = is_customer | (size.gather(2, route) > 0)
    target = torch.where(kept & (target >= 0), target, refined.shape[2])
    ordered = refined.new_zeros(*refined.shape[:2], refined.shape[2] + 1).scatter(2, target, refined)
    return ordered[..., :-1]


def _places(tours: Tensor, num_nodes: int) -> Tensor:
    """Position of each node's last visit, int64, ``[B, k, N]``."""
    position = torch.arange(tours.shape[2], device=tours.device).expand_as(tours)
    return tours.new_zeros(*tours.shape[:2], num_nodes).scatter_reduce(2, tours, position, "amax")


def _total(route: Tensor, values: Tensor) -> Tensor:
    """Sums of each route's values (int64, ``[B, k, R]``), by number of the route, ``[B, k, R + 1]``."""
    return values.new_zeros(*route.shape[:2], route.shape[2] + 1).scatter_add(2, route, values)


def _first(route: Tensor, is_customer: Tensor) -> Tensor:
    """Position of each route's first customer, by number of the route, int64, ``[B, k, R + 1]``."""
    length = route.shape[2]
    position = torch.arange(length, device=route.device).expand_as(route)
    found = route.new_full((*route.shape[:2], length + 1), length)
    return found.scatter_reduce(2, route, torch.where(is_customer, position, length), "amin")


def _free_directions(instances: Instances[Tensor], refined: Tensor, route: Tensor) -> Tensor:
    """Routes that may be driven either way at the same length, by number of the route, bool, ``[B, k, R + 1]``.

    Closed routes without time windows whose customers all deliver or all pick up.
    """
    windowed = instances.time_windows[:, instances.num_depots :, 1].isfinite().any(1)
    symmetric = ~(instances.open_route | windowed)

    def holds(demand: Tensor) -> Tensor:
        visits = (demand > 0)[:, None].expand(-1, refined.shape[1], -1).gather(2, refined)
        return _total(route, visits.long()) > 0

    both = holds(instances.demand_linehaul) & holds(instances.demand_backhaul)
    return symmetric[:, None, None] & ~both
