"""Others' solutions checked and priced exactly: their stated costs become ours, and what breaks a rule has none."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from polarvrp.errors import DataError, InfeasibleTourError
from polarvrp.problem.datasets import read_instances, variant_of
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.known_solutions import KnownSolution, known_solution, known_solution_path
from polarvrp.problem.library_files import read_library
from polarvrp.problem.library_instances import Convention, LibraryInstance, Rounding, counted_by
from polarvrp.problem.library_prices import at_cheapest_depots, check_routes
from polarvrp.problem.tours import Route, check_tour, routes_to_actions
from polarvrp.problem.vrplib import load_set_x, set_x_names
from polarvrp.solutions.foreign import ForeignSolution, instances_beside
from polarvrp.solutions.library_rows import LibraryRow, library_row, unsolved_row
from polarvrp.solutions.rows import SolutionRow
from polarvrp.tolerances import COST_PRECISION, COST_TOLERANCE, POLICY_TOLERANCE

SET_X = Path("set-x")
"""Stands for the instances of CVRPLIB's Set-X, which the package holds."""

NO_SOLUTION = "the file holds no solution"

Row = TypeVar("Row", SolutionRow, LibraryRow)


@dataclass(frozen=True, slots=True)
class Imported(Generic[Row]):
    """What came of others' solutions.

    Attributes:
        rows: One a solution, in the order of the instances.
        problems: One line for each solution that breaks a rule.
        differences: How far each stated cost is from the exact one; without those that break a rule or state none.
    """

    rows: tuple[Row, ...]
    problems: tuple[str, ...]
    differences: tuple[float, ...]

    @property
    def summary(self) -> str:
        """Counts, mean exact cost and the largest difference to a stated one, in one line."""
        costs = [row.cost for row in self.rows if row.cost is not None]
        broken, missing = len(self.problems), len(self.rows) - len(costs) - len(self.problems)
        mean = f", mean cost {sum(costs) / len(costs):.6f}" if costs else ""
        stated = f", stated costs are off by at most {max(self.differences):.2g}" if self.differences else ""
        return f"{len(self.rows)} solutions, {len(costs)} right, {broken} break a rule, {missing} missing{mean}{stated}"


def import_set(path: Path, solutions: Sequence[ForeignSolution], solver: str) -> Imported[SolutionRow]:
    """Solutions of a set.

    Args:
        path: The set, ``.npz``.
        solutions: Those of some of its instances.
        solver: Name for the rows.

    Raises:
        DataError: If the set is unusable, or a solution is of an instance that it does not hold or that has another.
    """
    instances = read_instances(path)
    variant = variant_of(instances).name
    rows: dict[int, SolutionRow] = {}
    for solution in solutions:
        index = solution.instance
        if not isinstance(index, int) or not 0 <= index < len(instances):
            held = f"{path} holds 0 to {len(instances) - 1}"
            raise DataError(f"{solution.source} solves instance {index!r}, {held}; is it another set?")
        if index in rows:
            raise DataError(f"{solution.source} solves instance {index} of {path} a second time; drop one")
        rows[index] = _set_row(instances, index, solution, variant, solver)
    found = compared(solutions, list(rows.values()), "instance ")
    return replace(found, rows=tuple(rows[index] for index in sorted(rows)))


def import_library(
    solutions: Sequence[ForeignSolution],
    places: Sequence[Path],
    solver: str,
    rounding: Rounding | None = None,
    open_routes: bool = False,
) -> Imported[LibraryRow]:
    """Solutions of library instances.

    Args:
        solutions: Those of any instances, each by its name.
        places: Files of instances, folders of them, or ``SET_X``; none for those beside the solutions, then Set-X.
        solver: Name for the rows.
        rounding: How distances count, None for what our own files say, and else the convention of each instance's set.
        open_routes: Whether routes end at their last customer; so they do where our own files say it.

    Raises:
        DataError: If an instance is not found or unusable, or solved twice.
    """
    shelf = _Shelf.of(places)
    rows = list[LibraryRow]()
    for solution in solutions:
        library, known_cost = _find_library(solution, shelf, rounding, open_routes)
        if any(row.instance == library.name for row in rows):
            raise DataError(f"{solution.source} solves {library.name} a second time; drop one")
        row = price_library(library, solution, solver, known_cost)
        if solution.convention == Convention(library.rounding, library.open_routes):
            row = _with_right_cost(library, solution, row)
        rows.append(row)
    return compared(solutions, rows)


def compared(solutions: Sequence[ForeignSolution], rows: Sequence[Row], noun: str = "") -> Imported[Row]:
    """Priced solutions beside what was stated of each; ``noun`` stands before the numbers of instances."""
    problems = [f"{noun}{row.instance}: {row.reason}" for row in rows if row.reason not in (None, NO_SOLUTION)]
    differences = [
        abs(row.cost - solution.cost)
        for solution, row in zip(solutions, rows, strict=True)
        if row.cost is not None and solution.cost is not None
    ]
    return Imported(tuple(rows), tuple(problems), tuple(differences))


def cost_problem(
    library: LibraryInstance, stated: float, exact: float, tolerance: float = COST_TOLERANCE
) -> str | None:
    """What is wrong with a stored cost; None if nothing is."""
    if math.isclose(stated, exact, rel_tol=COST_PRECISION, abs_tol=tolerance):
        return None
    return f"its stored cost is {stated:.15g}, with {library.rounding} distances it is {exact:.15g}"


def price_library(
    library: LibraryInstance, solution: ForeignSolution, solver: str, best_known: float | None = None
) -> LibraryRow:
    """Exact price of a library instance's solution; routes that name no depot begin where they cost least."""
    if not solution.is_solved:
        return unsolved_row(library, solver, NO_SOLUTION, solution.seconds, best_known)
    try:
        routes = _library_routes(library, solution)
        report = check_routes(library, routes)
    except InfeasibleTourError as error:
        return unsolved_row(library, solver, str(error), solution.seconds, best_known)
    return library_row(library, solver, routes, report, solution.seconds, best_known)


def _with_right_cost(library: LibraryInstance, solution: ForeignSolution, row: LibraryRow) -> LibraryRow:
    """A row, without a cost where the one that our file stores is wrong."""
    if row.cost is None or solution.cost is None:
        return row
    problem = cost_problem(library, solution.cost, row.cost)
    return row if problem is None else unsolved_row(library, row.solver, problem, row.seconds, row.best_known)


def _set_row(
    instances: Instances[NodeArrays], index: int, solution: ForeignSolution, variant: str, solver: str
) -> SolutionRow:
    size = instances.num_customers
    unsolved = SolutionRow(
        variant, size, index, solver, None, (), 0, solution.seconds, None, solver_version=None, reason=NO_SOLUTION
    )
    if not solution.is_solved:
        return unsolved
    try:
        actions = routes_to_actions(solution.routes(instances.num_depots), instances.num_depots)
        report = check_tour(instances, index, actions, POLICY_TOLERANCE)
    except InfeasibleTourError as error:
        return replace(unsolved, reason=str(error))
    if report.first_problem is not None:
        return replace(unsolved, reason=report.first_problem)
    found = (report.cost, tuple(actions), report.num_routes, solution.seconds, report.max_violation)
    return SolutionRow(variant, size, index, solver, *found)


def _library_routes(library: LibraryInstance, solution: ForeignSolution) -> list[Route]:
    listed = solution.listed
    if listed is None or any(node < library.num_depots for route in listed for node in route):
        return solution.routes(library.num_depots)
    return at_cheapest_depots(library, [Route(0, route) for route in listed if route])


class _Shelf:
    """Named files of instances, by what they are called and, read only when that is not enough, by the names in them.

    Attributes:
        is_named: Whether the user named any, or Set-X.
    """

    def __init__(self, files: Sequence[Path], is_named: bool) -> None:
        self.is_named = is_named
        self._by_stem: dict[str, list[Path]] = {}
        for file in {(file.stem, file.resolve()): file for file in files}.values():
            self._by_stem.setdefault(file.stem.lower(), []).append(file)

    @classmethod
    def of(cls, places: Sequence[Path]) -> "_Shelf":
        files: list[Path] = []
        for place in places:
            if place == SET_X:
                continue
            if not place.exists():
                raise DataError(f"{place} does not exist; name a file of an instance, a folder of them, or set-x")
            if place.is_dir():
                files += sorted(file for file in place.iterdir() if file.suffix.lower() in (".vrp", ".txt"))
            else:
                files.append(place)
        return cls(files, bool(places))

    def find(self, name: str) -> Path | None:
        """The file of an instance.

        Raises:
            DataError: If several files are called so or, where none is, say that they are.
        """
        files = self._by_stem.get(name.lower(), [])
        if len(files) != 1:
            files = [file for file in files if _name_in(file) is not None] or self._by_name.get(name.lower(), [])
        if len(files) > 1:
            raise DataError(f"{' and '.join(map(str, files))} are both named {name}; name one of them by --instances")
        return next(iter(files), None)

    @cached_property
    def _by_name(self) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        for file in itertools.chain.from_iterable(self._by_stem.values()):
            name = _name_in(file)
            if name is not None:
                found.setdefault(name.lower(), []).append(file)
        return found


def _name_in(file: Path) -> str | None:
    """The name in the file of an instance; None in what cannot be read, which is not what was solved."""
    try:
        return read_library(file).name
    except DataError:
        return None


def _find_library(
    solution: ForeignSolution, shelf: _Shelf, rounding: Rounding | None, open_routes: bool
) -> tuple[LibraryInstance, float | None]:
    """The instance of a solution, and its best known cost where one is at hand."""
    name = str(solution.instance)
    beside = None if shelf.is_named else instances_beside(solution.source)
    path = (shelf if beside is None else _Shelf([beside], is_named=False)).find(name)
    if path is not None:
        library = read_library(path, rounding, open_routes)
        library = counted_by(library, solution.convention, rounding, open_routes)
        known = best_known(library, path, solution.source)
        return library, None if known is None else known.cost
    set_x = {other.lower(): other for other in set_x_names()}
    if name.lower() not in set_x:
        where = "among the named instances" if shelf.is_named else "beside it"
        raise DataError(f"{solution.source}: there is no instance {name!r} {where}; name its file by --instances")
    library, published, _ = load_set_x(set_x[name.lower()])
    library = replace(library, rounding=rounding or library.rounding, open_routes=open_routes)
    library = counted_by(library, solution.convention, rounding, open_routes)
    return library, float(published) if library.rounding is Rounding.NEAREST and not library.open_routes else None


def best_known(library: LibraryInstance, path: Path, source: Path | None = None) -> KnownSolution | None:
    """Best known solution of an instance at hand: the ``.sol`` beside its file, usable or not, else that of Set-X.

    Args:
        library: The instance.
        path: Its file.
        source: A solution that does not count, since it is the one to be compared.
    """
    beside = known_solution_path(path)
    if beside is not None and (source is None or beside.resolve() != source.resolve()):
        return known_solution(path, library)
    if library.name in set_x_names() and library.rounding is Rounding.NEAREST and not library.open_routes:
        return KnownSolution(SET_X, float(load_set_x(library.name)[1]))
    return None
