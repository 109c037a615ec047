"""``polarvrp plot``: a picture of a solution, of a library file or of a set."""

import argparse
from pathlib import Path
from typing import Any

from polarvrp.cli.arguments import add_library_arguments, library_convention, refuse_library_options
from polarvrp.errors import ConfigError, DataError, InfeasibleTourError
from polarvrp.outputs import require_output

SUFFIXES = (".png", ".pdf", ".svg")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("instance", type=Path, metavar="INSTANCE", help="a library file, or a set (.npz)")
    parser.add_argument(
        "solution", type=Path, metavar="SOLUTION", help="its .sol file, or solutions of the set (.parquet)"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help=f"ends in {', '.join(SUFFIXES)}")
    parser.add_argument("--index", type=int, metavar="K", help="of a set: which instance, from 0 (default: 0)")
    add_library_arguments(parser)


def execute(options: argparse.Namespace) -> int:
    """Draw."""
    is_set = options.instance.suffix == ".npz"
    subject = {"plot": options.instance.stem} | ({"index": options.index or 0} if is_set else {})
    require_output(options.output, SUFFIXES, subject, [options.instance, options.solution])
    from polarvrp.library.plot import save_plot, title_of

    if is_set:
        refuse_library_options(options)
        _draw_of_set(options, options.index or 0, subject)
        return 0
    if options.index is not None:
        raise ConfigError(f"--index is for sets, {options.instance} holds one instance; leave it out")
    from polarvrp.problem.library_prices import at_cheapest_depots
    from polarvrp.problem.vrplib import read_solved

    library, solution = read_solved(options.instance, options.solution, *library_convention(options))
    routes = at_cheapest_depots(library, solution.routes)
    try:
        title = title_of(library, routes)
    except InfeasibleTourError as error:
        raise DataError(f"{options.solution}: {error}") from error
    save_plot(options.output, library, routes, title, subject)
    return 0


def _draw_of_set(options: argparse.Namespace, index: int, subject: dict[str, Any]) -> None:
    """One instance of a set, which may have rules that library files do not know."""
    from polarvrp.library.plot import save_plot
    from polarvrp.problem.datasets import read_instances, variant_of
    from polarvrp.problem.library_twins import library_of
    from polarvrp.problem.tours import actions_to_routes, check_tour
    from polarvrp.solutions.solutions import read_solutions, solution_rows
    from polarvrp.tolerances import POLICY_TOLERANCE

    instances = read_instances(options.instance)
    if not 0 <= index < len(instances):
        raise ConfigError(f"--index must be from 0 to {len(instances) - 1}, got {index}")
    rows = solution_rows(read_solutions(options.solution))
    row = next((row for row in rows if row.instance == index), None)
    if row is None or row.cost is None:
        raise DataError(f"{options.solution} has no solution of instance {index}; choose another --index")
    try:
        report = check_tour(instances, index, row.actions, POLICY_TOLERANCE)
    except InfeasibleTourError as error:
        raise DataError(f"{options.solution}: instance {index}: {error}") from error
    name = f"{options.instance.name}, instance {index}"
    wrong = "" if report.first_problem is None else f"; infeasible: {report.first_problem}"
    title = (
        f"{name}: {variant_of(instances[[index]]).name}, {instances.num_customers} customers\n"
        f"{row.method}: cost {report.cost:.4f}, {report.num_routes} routes{wrong}"
    )
    routes = actions_to_routes(row.actions, instances.num_depots)
    save_plot(options.output, library_of(instances, index, name), routes, title, subject)
