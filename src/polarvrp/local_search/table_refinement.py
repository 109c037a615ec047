"""Refinement of the tours of a shared table, the work of a process; free of torch."""

from functools import cache
from multiprocessing.shared_memory import SharedMemory

from polarvrp.local_search.pyvrp_search import refine_tours
from polarvrp.local_search.shared_memory import Rows, Table
from polarvrp.problem.tours import flat_actions


def refine_table(table: Table, first: int, end: int) -> None:
    """Refine the tours of some instances and write the results beside them.

    Args:
        table: Holds instances and tours.
        first: First instance.
        end: The one after the last.

    Raises:
        InfeasibleTourError: If a tour visits a customer twice or not at all.
    """
    instances, depots = table.instances, table.shape.num_depots
    for index in range(first, end):
        tours = [flat_actions(actions, depots) for actions in table.arrays["actions"][index].tolist()]
        for number, tour in enumerate(refine_tours(instances, index, tours, table.arrays["seeds"][index].tolist())):
            table.write(index, number, tour)


def refine_rows(rows: Rows) -> None:
    """Refine the tours of some instances of a shared table.

    Raises:
        InfeasibleTourError: If a tour visits a customer twice or not at all.
    """
    name, first, end = rows
    refine_table(_attached(name)[1], first, end)


@cache
def _attached(name: str) -> tuple[SharedMemory, Table]:
    """A shared table, mapped once in the life of a process."""
    segment = SharedMemory(name)
    return segment, Table(segment.buf)
