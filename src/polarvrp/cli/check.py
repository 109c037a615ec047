"""``polarvrp check``: exact feasibility and cost of stored solutions, by code that no solver or network shares."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polarvrp.cli.arguments import add_library_arguments, library_convention, refuse_library_options
from polarvrp.errors import InfeasibleTourError
from polarvrp.tolerances import COST_TOLERANCE, PRINTED_COST_TOLERANCE

if TYPE_CHECKING:
    from polarvrp.solutions.checking import Verdict
    from polarvrp.solutions.importing import Imported

SHOWN_ROWS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "instances", type=Path, metavar="INSTANCES", help="a set (.npz), a library file (.vrp, .txt), or the word set-x"
    )
    parser.add_argument(
        "solutions",
        type=Path,
        metavar="SOLUTIONS",
        help="its solutions: ours or a plain Parquet of routes (.parquet), RouteFinder's (.npz), or a .sol",
    )
    add_library_arguments(parser)


def execute(options: argparse.Namespace) -> int:
    """Check and print; 0 if all is well, 1 if a solution is infeasible or its cost wrong."""
    from polarvrp.solutions.checking import check_foreign, check_library, check_set, check_set_x, is_foreign
    from polarvrp.solutions.importing import SET_X

    if options.instances.suffix == ".npz" or options.instances == SET_X:
        refuse_library_options(options)
        if options.instances == SET_X:
            return print_verdict(options.solutions, check_set_x(options.solutions))
        check = check_foreign if is_foreign(options.solutions) else check_set
        return print_verdict(options.solutions, check(options.instances, options.solutions))
    if options.solutions.suffix == ".parquet":
        from polarvrp.problem.library_files import read_library

        counted = library_convention(options)
        library = read_library(options.instances, *counted)
        verdict = check_library(library, options.instances.stem, options.solutions, *counted)
        return print_verdict(options.solutions, verdict)
    return _check_sol(options)


def print_verdict(path: Path, verdict: "Verdict | Imported[Any]") -> int:
    """Print what is wrong with solutions, and the counts; the exit code."""
    for line in verdict.problems[:SHOWN_ROWS]:
        print(line)
    if len(verdict.problems) > SHOWN_ROWS:
        print(f"... and {len(verdict.problems) - SHOWN_ROWS} more")
    print(f"{path}: {verdict.summary}")
    return 1 if verdict.problems else 0


def _check_sol(options: argparse.Namespace) -> int:
    from polarvrp.problem.library_instances import Rounding
    from polarvrp.problem.library_prices import at_cheapest_depots, check_routes
    from polarvrp.problem.vrplib import read_solved
    from polarvrp.solutions.importing import cost_problem

    library, solution = read_solved(options.instances, options.solutions, *library_convention(options))
    try:
        report = check_routes(library, at_cheapest_depots(library, solution.routes))
    except InfeasibleTourError as error:
        print(f"{options.solutions}: wrong, {error}")
        return 1
    is_printed = solution.convention is None and library.rounding is Rounding.NONE
    cost, problem = report.cost, report.first_problem
    if problem is None and solution.cost is not None:
        tolerance = COST_TOLERANCE + (PRINTED_COST_TOLERANCE if is_printed else 0.0)
        problem = cost_problem(library, solution.cost, cost, tolerance)
    stated = "" if solution.cost is not None else " (the file states none)"
    verdict = "right" if problem is None else f"wrong, {problem}"
    print(f"{options.solutions}: {library.name}, {report.num_routes} routes, cost {cost:.15g}{stated}: {verdict}")
    return 0 if problem is None else 1
