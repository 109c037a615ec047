"""Instances whose rollouts would not come to an end, and why."""

import torch

from polarvrp.environment.environment import Environment
from polarvrp.problem.instances import Instances, NodeArrays, to_tensors
from polarvrp.problem.tours import first_impossible_customer

DISTANCES_AT_ONCE = 1 << 22
"""Of instances that are looked through together, so that this takes little memory beside theirs."""


def obstacles(instances: Instances[NodeArrays], device: torch.device) -> list[str | None]:
    """Why each instance has no solution; None where its rollouts come to an end, which the mask alone decides.

    Args:
        instances: B instances of one size.
        device: Where their masks are computed.

    Returns:
        B reasons, in order.
    """
    found: list[str | None] = []
    count = max(DISTANCES_AT_ONCE // instances.num_nodes**2, 1)
    for first in range(0, len(instances), count):
        some = instances[first : first + count]
        servable = Environment(to_tensors(some, device)).servable().cpu()
        found += [None if all(row) else _obstacle(some, index, row) for index, row in enumerate(servable.tolist())]
    return found


def _obstacle(instances: Instances[NodeArrays], index: int, servable: list[bool]) -> str:
    exact = first_impossible_customer(instances, index)
    if exact is not None:
        return exact
    customer = instances.num_depots + servable.index(False)
    return f"customer {customer}: its window, closing time or limit leaves less room than float32 can tell"
