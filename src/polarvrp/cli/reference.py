"""``polarvrp reference``: solve a set or a stretch of it, or library files; merge stretches, or pick the best."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from polarvrp.catalog.methods import SOLVERS
from polarvrp.cli.arguments import add_library_arguments, library_convention, refuse_library_options
from polarvrp.errors import ConfigError

if TYPE_CHECKING:
    from polarvrp.problem.instances import Instances, NodeArrays
    from polarvrp.problem.known_solutions import KnownSolution
    from polarvrp.solutions.library_rows import LibraryRow
    from polarvrp.solvers.solve import SolverSettings

SOLVING = (
    *("solver", "seconds", "first", "start", "count", "workers", "seed", "iterations", "hard_limit", "warm_start"),
)
"""Options that only solving heeds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "instances", type=Path, nargs="*", metavar="INSTANCES", help="a set (.npz), or library files (.vrp, .txt)"
    )
    parser.add_argument("--solver", choices=SOLVERS)
    parser.add_argument("--seconds", type=float, help="wall-clock limit of an instance, one thread each")
    parser.add_argument("--first", type=int, metavar="K", help="solve the first K instances of the file only")
    parser.add_argument("--start", type=int, metavar="S", help="first instance of a stretch, counted from 0")
    parser.add_argument("--count", type=int, metavar="C", help="most instances of the stretch")
    parser.add_argument("--workers", type=int, help="instances solved at a time (default: 1)")
    parser.add_argument("--seed", type=int, help="seed of the solver (default: 0)")
    parser.add_argument("--iterations", type=int, help="stop earlier, after so many iterations")
    parser.add_argument("--hard-limit", type=float, metavar="SECONDS", help="give a stuck instance up after that long")
    parser.add_argument("--warm-start", type=Path, metavar="FILE", help="solutions that PyVRP starts from")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="FILE", help="only merge solved stretches of a set")
    parser.add_argument("--best-of", type=Path, nargs="+", metavar="FILE", help="only pick the best feasible solutions")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.parquet")
    add_library_arguments(parser)


def execute(options: argparse.Namespace) -> int:
    """Run the command; instances without a solution are reported and do not make it fail."""
    from polarvrp.problem.datasets import read_instances
    from polarvrp.solutions.best_known import write_best_known
    from polarvrp.solutions.merging import merge_solutions
    from polarvrp.solutions.origin import SEVERAL
    from polarvrp.solutions.solutions import read_solutions

    _require_no_solving(options)
    if any(path.suffix != ".npz" for path in options.instances):
        return _solve_library(options)
    refuse_library_options(options)
    if len(options.instances) > 1:
        raise ConfigError(f"one set at a time, got {len(options.instances)}; library files may be several")
    options.instances = next(iter(options.instances), None)
    if options.merge:
        merge_solutions(options.merge, options.output)
    elif options.instances is None:
        raise ConfigError("which instances? name an .npz file, or merge solved stretches with --merge")
    elif options.best_of:
        instances = read_instances(options.instances)
        _require_output(options, instances, 0, SEVERAL)
        write_best_known(instances, options.best_of, options.output)
    else:
        _solve(options)
    costs = read_solutions(options.output)["cost"]
    unsolved = f", {costs.null_count} of them without a solution" if costs.null_count else ""
    print(f"{options.output}: {len(costs)} instances{unsolved}")
    return 0


def _require_no_solving(options: argparse.Namespace) -> None:
    """Refuse options of solving beside ``--merge`` and ``--best-of``, which would not heed them."""
    if options.merge and options.best_of:
        raise ConfigError("give either --merge or --best-of")
    if options.merge and options.instances:
        raise ConfigError(f"--merge takes no set of instances, got {options.instances[0]}; leave it out")
    given = [f"--{name.replace('_', '-')}" for name in SOLVING if getattr(options, name) is not None]
    if given and (options.merge or options.best_of):
        work = "--merge" if options.merge else "--best-of"
        raise ConfigError(f"{work} solves nothing; leave {' '.join(given)} out")


def _solve(options: argparse.Namespace) -> None:
    from polarvrp.problem.datasets import count_instances, read_instances
    from polarvrp.references.chunks import solve_chunk
    from polarvrp.solutions.best_known import read_warm_starts

    settings = _settings(options)
    start, stop = _stretch(options, count_instances(options.instances))
    warm_starts = None
    if options.warm_start:
        instances = read_instances(options.instances)
        warm_starts = read_warm_starts(options.warm_start, instances)
        stretch = instances[start:stop]
    else:
        stretch = read_instances(options.instances, stop - start, start)
    workers = 1 if options.workers is None else options.workers
    _require_output(options, stretch, start, settings.solver)
    solve_chunk(stretch, settings, options.output, start, workers, options.hard_limit, warm_starts)


def _settings(options: argparse.Namespace) -> "SolverSettings":
    from polarvrp.solvers.solve import SolverSettings

    if options.solver is None or options.seconds is None:
        raise ConfigError(f"solving needs --solver {' or '.join(SOLVERS)} and --seconds")
    return SolverSettings(options.solver, options.seconds, options.seed or 0, options.iterations)


def _solve_library(options: argparse.Namespace) -> int:
    """Solve library files and print a line each."""
    from polarvrp.problem.library_files import read_library
    from polarvrp.references.library import solve_library_files
    from polarvrp.solutions.importing import best_known
    from polarvrp.solutions.library_rows import require_library_output

    given = [
        name for name in ("first", "start", "count", "warm_start", "best_of") if getattr(options, name) is not None
    ]
    if given:
        raise ConfigError(f"--{given[0].replace('_', '-')} is for sets; leave it out for library files")
    settings = _settings(options)
    libraries = {path: read_library(path, *library_convention(options)) for path in options.instances}
    names = [library.name for library in libraries.values()]
    if len(set(names)) < len(names):
        raise ConfigError(f"files must be of different instances, got {', '.join(names)}")
    require_library_output(options.output, settings.solver, names, options.instances)
    known = {library.name: best_known(library, path) for path, library in libraries.items()}
    costs = {name: None if beside is None else beside.cost for name, beside in known.items()}
    workers = 1 if options.workers is None else options.workers
    instances = list(libraries.values())
    for row in solve_library_files(instances, costs, settings, options.output, workers, options.hard_limit):
        print(_line(row, known[row.instance]))
    return 0


def _line(row: "LibraryRow", known: "KnownSolution | None") -> str:
    from polarvrp.evaluation.gaps import shown_gap

    if row.cost is None:
        return f"{row.instance}: no solution, {row.reason}"
    answer = f"{row.instance}: {row.cost:.15g} ({row.rounding} distances)"
    if row.gap_percent is not None:
        return f"{answer}, gap {shown_gap(row.gap_percent)} % to {row.best_known:.15g}"
    return answer if known is None else f"{answer}; no gap: {known.why_no_gap}"


def _require_output(options: argparse.Namespace, solved: "Instances[NodeArrays]", start: int, method: str) -> None:
    """Refuse an output that is an input or holds something else; see ``outputs.require_output``."""
    from polarvrp.problem.datasets import variant_of
    from polarvrp.problem.instances import instance_digests
    from polarvrp.solutions.origin import Origin, require_solutions_output

    origin = Origin(variant_of(solved).name, solved.num_customers, "solver", method)
    inputs = [options.instances, *(options.best_of or ()), *([options.warm_start] if options.warm_start else ())]
    require_solutions_output(options.output, origin, dict(enumerate(instance_digests(solved), start)), inputs)


def _stretch(options: argparse.Namespace, available: int) -> tuple[int, int]:
    """First and one past the last instance to be solved."""
    if options.first is not None and (options.start is not None or options.count is not None):
        raise ConfigError("give either --first, or --start and --count")
    start = options.start or 0
    if options.first is not None:
        stop = options.first
    else:
        stop = available if options.count is None else min(available, start + options.count)
    if not 0 <= start < stop <= available:
        raise ConfigError(f"{options.instances} holds {available} instances, asked for {start} up to {stop}")
    return start, stop
