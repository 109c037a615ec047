"""``polarvrp check``: exact feasibility and cost of stored solutions, by code that no solver or network shares."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from polarvrp.errors import ConfigError, InfeasibleTourError
from polarvrp.tolerances import COST_TOLERANCE

if TYPE_CHECKING:
    from polarvrp.solutions.checking import Verdict

SHOWN_ROWS = 10

SET_X = Path("set-x")
"""Stands for the instances of CVRPLIB's Set-X, which the package holds."""

PRINTED_COST_TOLERANCE = 0.005
"""Library solutions with unrounded distances state their cost with two decimals."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "instances", type=Path, metavar="INSTANCES", help="a set (.npz), a library file (.vrp, .txt), or the word set-x"
    )
    parser.add_argument("solutions", type=Path, metavar="SOLUTIONS", help="its solutions (.parquet, or .sol)")
    parser.add_argument(
        "--distances",
        choices=("rounded", "truncated", "up", "down", "exact"),
        help="how the cost of a .sol counts distances: nearest integer, one decimal cut off, next integer above or "
        "below, not rounded (default: the convention of the instance's set)",
    )
    parser.add_argument("--open", action="store_true", help="routes of a .sol end at their last customer")


def execute(options: argparse.Namespace) -> int:
    """Check and print; 0 if all is well, 1 if a solution is infeasible or its cost wrong."""
    if options.instances.suffix == ".npz" or options.instances == SET_X:
        from polarvrp.solutions.checking import check_set, check_set_x

        if options.distances is not None or options.open:
            option = "--open" if options.distances is None else "--distances"
            raise ConfigError(f"{option} is for library files; files of solutions say what they hold")
        if options.instances == SET_X:
            return _print_verdict(options.solutions, check_set_x(options.solutions))
        return _print_verdict(options.solutions, check_set(options.instances, options.solutions))
    return _check_library(options)


def _print_verdict(path: Path, verdict: "Verdict") -> int:
    for line in verdict.problems[:SHOWN_ROWS]:
        print(line)
    if len(verdict.problems) > SHOWN_ROWS:
        print(f"... and {len(verdict.problems) - SHOWN_ROWS} more")
    print(f"{path}: {verdict.summary}")
    return 1 if verdict.problems else 0


def _check_library(options: argparse.Namespace) -> int:
    from polarvrp.problem.library_files import read_library
    from polarvrp.problem.library_instances import Rounding
    from polarvrp.problem.library_prices import at_cheapest_depots, check_routes
    from polarvrp.problem.vrplib import read_sol

    rounding = None if options.distances is None else Rounding(options.distances)
    library, solution = read_library(options.instances, rounding, options.open), read_sol(options.solutions)
    try:
        report = check_routes(library, at_cheapest_depots(library, solution.routes))
    except InfeasibleTourError as error:
        print(f"{options.solutions}: wrong, {error}")
        return 1
    tolerance = PRINTED_COST_TOLERANCE if library.rounding is Rounding.NONE else 0.0
    cost, problem = report.cost, report.first_problem
    if problem is None and solution.cost is not None and not abs(solution.cost - cost) <= tolerance + COST_TOLERANCE:
        problem = f"its stored cost is {solution.cost:.15g}, with {library.rounding} distances it is {cost:.15g}"
    stated = "" if solution.cost is not None else " (the file states none)"
    verdict = "right" if problem is None else f"wrong, {problem}"
    print(f"{options.solutions}: {library.name}, {report.num_routes} routes, cost {cost:.15g}{stated}: {verdict}")
    return 0 if problem is None else 1
