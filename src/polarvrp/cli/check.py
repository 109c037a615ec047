"""``polarvrp check``: exact feasibility and cost of stored solutions, by code that no solver or network shares."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polarvrp.errors import ConfigError, DataError, InfeasibleTourError
from polarvrp.tolerances import COST_TOLERANCE, POLICY_TOLERANCE, REFERENCE_TOLERANCE

if TYPE_CHECKING:
    from polarvrp.problem.instances import Instances, NodeArrays

SHOWN_ROWS = 10

PRINTED_COST_TOLERANCE = 0.005
"""Library solutions with unrounded distances state their cost with two decimals."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("instances", type=Path, metavar="INSTANCES", help="a set (.npz) or a library file (.vrp)")
    parser.add_argument("solutions", type=Path, metavar="SOLUTIONS", help="its solutions (.parquet, or .sol)")
    parser.add_argument(
        "--distances",
        choices=("rounded", "exact"),
        help="how the cost of a .sol counts distances (default: the convention of the instance's set)",
    )


def execute(options: argparse.Namespace) -> int:
    """Check and print; 0 if all is well, 1 if a solution is infeasible or its cost wrong."""
    if options.instances.suffix == ".npz":
        if options.distances is not None:
            raise ConfigError("--distances is for library files; costs of a set are never rounded")
        return _check_set(options.instances, options.solutions)
    return _check_library(options.instances, options.solutions, options.distances)


def _check_set(instances_path: Path, solutions_path: Path) -> int:
    from polarvrp.problem.datasets import read_instances
    from polarvrp.references.solutions import read_solutions

    instances = read_instances(instances_path)
    table = read_solutions(solutions_path)
    key = "run" if "run" in table.column_names else "solver"
    tolerance = POLICY_TOLERANCE if key == "run" else REFERENCE_TOLERANCE
    rows = table.select(["variant", "num_customers", "instance", key, "cost", "actions"]).to_pylist()
    _require_rows_of(instances, rows, key, f"{solutions_path} does not belong to {instances_path}")
    problems: list[str] = []
    solved = [row for row in rows if row["cost"] is not None]
    for row in solved:
        problem = _problem(instances, row, tolerance)
        if problem is not None:
            problems.append(f"instance {row['instance']} ({row[key]}): {problem}")
    for line in problems[:SHOWN_ROWS]:
        print(line)
    if len(problems) > SHOWN_ROWS:
        print(f"... and {len(problems) - SHOWN_ROWS} more")
    mean = f", mean cost {sum(row['cost'] for row in solved) / len(solved):.6f}" if solved else ""
    print(
        f"{solutions_path}: {len(rows)} rows, {len(solved) - len(problems)} right, {len(problems)} wrong, "
        f"{len(rows) - len(solved)} without a solution{mean}"
    )
    return 1 if problems else 0


def _require_rows_of(instances: "Instances[NodeArrays]", rows: list[dict[str, Any]], key: str, mismatch: str) -> None:
    """Every row names an instance of the set, at most once for each method.

    Raises:
        DataError: If a row does not, or there is none.
    """
    from polarvrp.problem.datasets import variant_of
    from polarvrp.problem.variants import parse_variant

    if not rows:
        raise DataError(f"{mismatch}: it holds no solutions")
    variant, count, size = variant_of(instances), len(instances), instances.num_customers
    seen = set()
    for row in rows:
        if parse_variant(row["variant"]) != variant or row["num_customers"] != size:
            stated = f"{row['variant']} with {row['num_customers']} customers"
            raise DataError(f"{mismatch}: it solves {stated}, the set is {variant.name} with {size}")
        if not 0 <= row["instance"] < count:
            raise DataError(f"{mismatch}: it solves instance {row['instance']}, the set holds 0 to {count - 1}")
        if (row[key], row["instance"]) in seen:
            raise DataError(f"{mismatch}: it solves instance {row['instance']} twice by {row[key]}")
        seen.add((row[key], row["instance"]))


def _problem(instances: "Instances[NodeArrays]", row: dict[str, Any], tolerance: float) -> str | None:
    """What is wrong with a row that has a cost; None if nothing is."""
    from polarvrp.problem.tours import check_tour

    try:
        report = check_tour(instances, row["instance"], row["actions"] or [], tolerance)
    except InfeasibleTourError as error:
        return str(error)
    if report.first_problem is not None:
        return report.first_problem
    if not abs(row["cost"] - report.cost) <= COST_TOLERANCE:
        return f"its stored cost is {row['cost']:.9g}, the exact cost {report.cost:.9g}"
    return None


def _check_library(instance_path: Path, solution_path: Path, distances: str | None) -> int:
    from polarvrp.problem.vrplib import check_routes, read_sol, read_vrp

    library, solution = read_vrp(instance_path), read_sol(solution_path)
    try:
        report = check_routes(library, solution.routes)
    except InfeasibleTourError as error:
        print(f"{solution_path}: wrong, {error}")
        return 1
    rounded = library.rounds_distances if distances is None else distances == "rounded"
    cost, tolerance = (report.cost, COST_TOLERANCE) if rounded else (report.length, PRINTED_COST_TOLERANCE)
    problem = report.first_problem
    if problem is None and solution.cost is not None and not abs(solution.cost - cost) <= tolerance + COST_TOLERANCE:
        convention = "rounded" if rounded else "exact"
        problem = f"its stored cost is {solution.cost:.15g}, with {convention} distances it is {cost:.15g}"
    stated = "" if solution.cost is not None else " (the file states none)"
    verdict = "right" if problem is None else f"wrong, {problem}"
    print(f"{solution_path}: {library.name}, {report.num_routes} routes, cost {cost:.15g}{stated}: {verdict}")
    return 0 if problem is None else 1
