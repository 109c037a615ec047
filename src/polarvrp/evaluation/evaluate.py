"""A trained policy on a set of instances: greedy multi-start under the symmetries, every tour priced exactly.

Protocol: paper, experimental settings. Time is the wall time of augmenting, encoding and decoding the whole set,
files and networks loaded, divided evenly over its instances.
"""

import time
from collections.abc import Sequence

import numpy as np
import torch

from polarvrp.decoding.greedy import Decoding, solve_greedily
from polarvrp.environment.environment import Environment
from polarvrp.model.policy import Policy
from polarvrp.model.precision import bfloat16_products, compile_parts
from polarvrp.problem.datasets import variant_of
from polarvrp.problem.instances import Instances, NodeArrays, to_tensors
from polarvrp.problem.tours import check_tour, first_impossible_customer
from polarvrp.solutions.solutions import SolutionRow
from polarvrp.tolerances import POLICY_TOLERANCE

INSTANCES_AT_ONCE = 128
"""Whose distances are in memory together before they are decoded."""


def evaluate_set(
    policy: Policy, run: str, instances: Instances[NodeArrays], decoding: Decoding, bfloat16: bool
) -> list[SolutionRow]:
    """Solve every instance of a set.

    Args:
        policy: On the device to compute on.
        run: Name for the rows.
        instances: One variant, one size.
        decoding: Effort and rules.
        bfloat16: Whether matrix products run in bfloat16.

    Returns:
        One row an instance, in order. An instance with a customer whom no vehicle can serve gets no cost, only the
        reason.
    """
    impossible = _obstacles(instances, next(policy.parameters()).device)
    servable = [index for index, reason in enumerate(impossible) if reason is None]
    start_s = time.perf_counter()
    tours = _decode(policy, instances[np.array(servable)], decoding, bfloat16) if servable else []
    seconds = (time.perf_counter() - start_s) / max(len(servable), 1)
    found = dict(zip(servable, tours, strict=True))
    variant = variant_of(instances).name
    return [
        _row(variant, run, instances, index, found.get(index), seconds, impossible[index])
        for index in range(len(instances))
    ]


def warm_up(policy: Policy, instances: Instances[NodeArrays], decoding: Decoding, bfloat16: bool) -> None:
    """On a GPU: compile the encoder's layers, and solve a set untimed, since the first call compiles and allocates.

    Args:
        policy: On its device.
        instances: A set like those to come.
        decoding: As for those to come.
        bfloat16: As for those to come.
    """
    if next(policy.parameters()).device.type == "cuda":
        compile_parts(policy)
        evaluate_set(policy, "warm-up", instances, decoding, bfloat16)


def _obstacles(instances: Instances[NodeArrays], device: torch.device) -> list[str | None]:
    """Why each instance has no solution; None where its rollouts come to an end, which the mask alone decides."""
    obstacles: list[str | None] = []
    for first in range(0, len(instances), INSTANCES_AT_ONCE):
        some = instances[first : first + INSTANCES_AT_ONCE]
        servable = Environment(to_tensors(some, device)).servable().cpu()
        obstacles += [None if all(row) else _obstacle(some, index, row) for index, row in enumerate(servable.tolist())]
    return obstacles


def _obstacle(instances: Instances[NodeArrays], index: int, servable: list[bool]) -> str:
    exact = first_impossible_customer(instances, index)
    if exact is not None:
        return exact
    customer = instances.num_depots + servable.index(False)
    return f"customer {customer}: its window, closing time or limit leaves less room than float32 can tell"


def _decode(
    policy: Policy, instances: Instances[NodeArrays], decoding: Decoding, bfloat16: bool
) -> Sequence[list[int]]:
    device = next(policy.parameters()).device
    with bfloat16_products(device, bfloat16):
        _, tours = solve_greedily(policy, to_tensors(instances, device), decoding)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return tours


def _row(
    variant: str,
    run: str,
    instances: Instances[NodeArrays],
    index: int,
    tour: list[int] | None,
    seconds: float,
    reason: str | None,
) -> SolutionRow:
    """Exact cost and feasibility of one tour, or why there is none."""
    size = instances.num_customers
    if tour is None:
        return SolutionRow(variant, size, index, run, None, (), 0, 0.0, None, reason=reason)
    report = check_tour(instances, index, tour, time_tolerance=POLICY_TOLERANCE)
    return SolutionRow(
        variant, size, index, run, report.cost, tuple(tour), report.num_routes, seconds, report.max_violation
    )
