"""``polarvrp import``: others' solutions as files of solutions, checked and priced exactly."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polarvrp.cli.arguments import add_library_arguments, library_convention, refuse_library_options
from polarvrp.cli.check import print_verdict
from polarvrp.errors import ConfigError, DataError
from polarvrp.files import file_digest

if TYPE_CHECKING:
    from polarvrp.solutions.foreign import ForeignSolution
    from polarvrp.solutions.importing import Imported
    from polarvrp.solutions.library_rows import LibraryRow
    from polarvrp.solutions.rows import SolutionRow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="RouteFinder's *_sol_*.npz, .sol files, or a plain Parquet with columns instance and routes or actions",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.parquet")
    parser.add_argument(
        "--instances",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="what was solved: a set (.npz), library files, folders of them, or set-x (default: the file beside each)",
    )
    parser.add_argument(
        "--method", metavar="NAME", help="who solved (default: as the archive's name says, else the output's name)"
    )
    add_library_arguments(parser)


def execute(options: argparse.Namespace) -> int:
    """Write the file; 0 if every solution is right, 1 if one breaks a rule and so has no cost in it."""
    from polarvrp.solutions.foreign import read_foreign, stated_solver

    solutions = [solution for path in options.files for solution in read_foreign(path)]
    if not solutions:
        raise DataError(f"{options.files[0]} holds no solutions")
    named = {stated_solver(path) for path in options.files}
    method = options.method or (named.pop() if len(named) == 1 else None) or options.output.stem
    found: Imported[SolutionRow] | Imported[LibraryRow]
    if all(isinstance(solution.instance, int) for solution in solutions):
        found = _import_set(solutions, method, options)
    elif any(isinstance(solution.instance, int) for solution in solutions):
        raise ConfigError("solutions of a set and of library instances do not mix; import them one after the other")
    else:
        found = _import_library(solutions, method, options)
    return print_verdict(options.output, found)


def _import_set(solutions: list[ForeignSolution], method: str, options: argparse.Namespace) -> Imported[SolutionRow]:
    from polarvrp.problem.datasets import read_instances, variant_of
    from polarvrp.solutions.foreign import instances_beside
    from polarvrp.solutions.importing import import_set
    from polarvrp.solutions.origin import DIGESTS, Origin, require_solutions_output, set_digests
    from polarvrp.solutions.solutions import write_solutions

    refuse_library_options(options)
    if len(options.instances) > 1:
        raise ConfigError(f"--instances must name one set, got {len(options.instances)}; import set by set")
    sets = options.instances or list(dict.fromkeys(instances_beside(path) for path in options.files))
    if len(sets) > 1 or sets[0] is None:
        raise ConfigError(f"which set do {', '.join(map(str, options.files))} solve? name it by --instances SET.npz")
    first, solved = read_instances(sets[0], 1), {solution.instance for solution in solutions}
    digests = {index: digest for index, digest in set_digests(sets[0]).items() if index in solved}
    origin = Origin(variant_of(first).name, first.num_customers, "solver", method)
    require_solutions_output(options.output, origin, digests, [*options.files, *sets])
    found = import_set(sets[0], solutions, method)
    write_solutions(options.output, found.rows, "solver", _provenance(options, sets) | {DIGESTS: digests})
    return found


def _import_library(solutions: list[ForeignSolution], method: str, options: argparse.Namespace) -> Imported[LibraryRow]:
    from polarvrp.outputs import require_output
    from polarvrp.solutions.importing import import_library
    from polarvrp.solutions.library_rows import require_library_kept, write_library_rows

    require_output(options.output, ".parquet", {"method": method}, [*options.files, *options.instances])
    found = import_library(solutions, options.instances, method, *library_convention(options))
    require_library_kept(options.output, [row.instance for row in found.rows])  # which are known only now
    write_library_rows(options.output, found.rows, _provenance(options, []) | {"method": method})
    return found


def _provenance(options: argparse.Namespace, sets: list[Path]) -> dict[str, Any]:
    """What was imported, each file with the SHA-256 of its content."""
    from polarvrp import __version__

    files = {str(path): file_digest(path) for path in (*options.files, *sets)}
    return {"imported": files, "polarvrp": __version__}
