"""A trained policy on a set of instances: greedy multi-start under the symmetries, every tour priced exactly.

Protocol: paper, experimental settings. Time is the wall time of augmenting, encoding and decoding the whole set,
files and networks loaded, divided evenly over its instances.
"""

import time
from collections.abc import Sequence

import numpy as np
import torch

from polarvrp.decoding.greedy import GreedySolver, rollouts_by_protocol
from polarvrp.environment.obstacles import obstacles
from polarvrp.model.precision import compile_parts
from polarvrp.problem.datasets import variant_of
from polarvrp.problem.instances import Instances, NodeArrays, to_tensors
from polarvrp.problem.tours import check_tour
from polarvrp.solutions.rows import SolutionRow
from polarvrp.tolerances import POLICY_TOLERANCE


def evaluate_set(solver: GreedySolver, run: str, instances: Instances[NodeArrays]) -> list[SolutionRow]:
    """Solve every instance of a set by the solver's first protocol; arguments and rows as of ``evaluate_protocols``."""
    return evaluate_protocols(solver, run, instances)[0]


def evaluate_protocols(solver: GreedySolver, run: str, instances: Instances[NodeArrays]) -> list[list[SolutionRow]]:
    """Solve every instance of a set by each of the solver's protocols, in one pass.

    Args:
        solver: Of the policy.
        run: Name for the rows.
        instances: One variant, one size.

    Returns:
        For each protocol one row an instance, in order. An instance with a customer whom no vehicle can serve gets no
        cost, only the reason. Protocols that share their rollouts have the same seconds, others an equal part.
    """
    variant = variant_of(instances).name
    impossible = obstacles(instances, solver.device)
    servable = [index for index, reason in enumerate(impossible) if reason is None]
    protocols = solver.decoding.protocols
    start_s = time.perf_counter()
    tours = _decode(solver, instances[np.array(servable)]) if servable else [[] for _ in protocols]
    rollouts = len(rollouts_by_protocol(instances, protocols))
    seconds = (time.perf_counter() - start_s) / max(len(servable), 1) / rollouts
    rows = []
    for solved in tours:
        found = dict(zip(servable, solved, strict=True))
        rows.append(
            [
                _row(variant, run, instances, index, found.get(index), seconds, impossible[index])
                for index in range(len(instances))
            ]
        )
    return rows


def search_locally(instances: Instances[NodeArrays], rows: Sequence[SolutionRow]) -> list[SolutionRow]:
    """One local search from each tour, by PyVRP on the processor; its time is added to the row's.

    Args:
        instances: Of the rows.
        rows: By the rules of the problem.

    Returns:
        Rows of tours that are as good or better.
    """
    return [row if row.cost is None else _searched(instances, row) for row in rows]


def _searched(instances: Instances[NodeArrays], row: SolutionRow) -> SolutionRow:
    from polarvrp.local_search.pyvrp_search import refine_tours  # machines that only decode may lack PyVRP

    start_s = time.perf_counter()
    (tour,) = refine_tours(instances, row.instance, [row.actions], [0])
    seconds = (row.seconds or 0.0) + time.perf_counter() - start_s
    return _row(row.variant, row.method, instances, row.instance, tour.actions, seconds, None)


def warm_up(solver: GreedySolver, sets: Sequence[Instances[NodeArrays]]) -> None:
    """On a GPU: compile the encoder's layers, and solve sets untimed.

    The first call compiles and allocates, the second captures the steps of level ``parallel``.

    Args:
        solver: Of the policy.
        sets: Those to come; one of each shape and of each form of the rules is solved.
    """
    if solver.device.type != "cuda":
        return
    compile_parts(solver.policy)
    alike: dict[tuple[int, int, int, bool], Instances[NodeArrays]] = {}
    for instances in sets:
        kind = (len(instances), instances.num_nodes, instances.num_depots, instances.has_mixed_backhauls)
        alike.setdefault(kind, instances)
    for instances in alike.values():
        for _ in range(2):
            evaluate_protocols(solver, "warm-up", instances)


def _decode(solver: GreedySolver, instances: Instances[NodeArrays]) -> list[list[list[int]]]:
    """Tours of each instance by each protocol."""
    solved = solver.solve_each(to_tensors(instances, solver.device))
    if solver.device.type == "cuda":
        torch.cuda.synchronize(solver.device)
    return [tours for _, tours in solved]


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
