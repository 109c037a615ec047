"""Tours taken from files of solutions: the best known of each instance, and starting points for a solver."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from polarvrp.errors import DataError, InfeasibleTourError
from polarvrp.problem.datasets import variant_of
from polarvrp.problem.instances import Instances, NodeArrays, instance_digests
from polarvrp.problem.tours import check_tour
from polarvrp.solutions.origin import DIGESTS, require_instances_kept, require_same_instances
from polarvrp.solutions.rows import SolutionRow
from polarvrp.solutions.solutions import read_solutions, solution_rows, write_solutions


@dataclass(frozen=True, slots=True)
class BestKnown:
    """Best tour of an instance.

    Attributes:
        row: As its source has it, cost and violation recomputed.
        source: File that it comes from.
    """

    row: SolutionRow
    source: Path


def best_known(instances: Instances[NodeArrays], sources: Sequence[str | Path]) -> dict[int, BestKnown]:
    """Best tours, whatever solver or network found them.

    Args:
        instances: The whole set, one variant; rows name instances by their position in it.
        sources: Files of solutions of the set or of parts of it. Ties go to the first.

    Returns:
        By instance, in order; instances for which no source has a tour that keeps every rule are left out.

    Raises:
        DataError: If a file is unusable or belongs to another set.
    """
    best: dict[int, BestKnown] = {}
    for source in map(Path, sources):
        for row in _rows_of(source, instances):
            checked = _checked(row, instances)
            if checked is None or checked.cost is None:
                continue
            known = best.get(row.instance)
            if known is None or known.row.cost is None or checked.cost < known.row.cost:
                best[row.instance] = BestKnown(checked, source)
    return dict(sorted(best.items()))


def write_best_known(instances: Instances[NodeArrays], sources: Sequence[str | Path], output: str | Path) -> None:
    """Write the best tours as a file of solutions whose provenance names the source of each; see ``best_known``.

    Raises:
        DataError: As ``best_known``, or if the output is there and holds an instance that no source solves.
    """
    best = best_known(instances, sources)
    require_instances_kept(Path(output), best)
    origin = {str(number): str(known.source) for number, known in best.items()}
    digests = dict(enumerate(instance_digests(instances)))
    metadata = {"sources": origin, DIGESTS: {number: digests[number] for number in best}}
    write_solutions(output, [known.row for known in best.values()], "solver", metadata)


def read_warm_starts(path: str | Path, instances: Instances[NodeArrays]) -> dict[int, tuple[int, ...]]:
    """Tours to start a solver from.

    Args:
        path: File of solutions: references, or the evaluation of a policy.
        instances: The whole set; rows name instances by their position in it.

    Returns:
        By instance; rows without a solution are left out.

    Raises:
        DataError: If the file is unusable or belongs to another set.
    """
    tours: dict[int, tuple[int, ...]] = {}
    for row in _rows_of(Path(path), instances):
        if row.cost is None:
            continue
        try:
            check_tour(instances, row.instance, row.actions)
        except InfeasibleTourError as error:
            raise DataError(f"{path}, instance {row.instance}: {error}") from error
        tours[row.instance] = row.actions
    return tours


def _rows_of(source: Path, instances: Instances[NodeArrays]) -> list[SolutionRow]:
    """Rows of a file of solutions, unless it is of another variant or size or of other instances."""
    table = read_solutions(source)
    rows, variant = solution_rows(table), variant_of(instances).name
    for row in rows:
        if (row.variant, row.num_customers) != (variant, instances.num_customers):
            raise DataError(
                f"{source} holds {row.variant} with {row.num_customers} customers, the instances are {variant} with "
                f"{instances.num_customers}; give solutions of the same set"
            )
        if not 0 <= row.instance < len(instances):
            raise DataError(f"{source} holds instance {row.instance}, the set has {len(instances)}; is it another set?")
    require_same_instances(source, table, dict(enumerate(instance_digests(instances))), "the set")
    return rows


def _checked(row: SolutionRow, instances: Instances[NodeArrays]) -> SolutionRow | None:
    """The row with recomputed numbers; None unless its tour keeps every rule."""
    if row.cost is None:
        return None
    try:
        report = check_tour(instances, row.instance, row.actions)
    except InfeasibleTourError:
        return None
    if report.first_problem is not None:
        return None
    return replace(row, cost=report.cost, routes=report.num_routes, max_violation=report.max_violation)
