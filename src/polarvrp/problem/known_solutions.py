"""The known solution that lies beside a file of an instance, priced anew."""

from dataclasses import dataclass
from pathlib import Path

from polarvrp.errors import DataError, InfeasibleTourError
from polarvrp.problem.library_instances import LibraryInstance
from polarvrp.problem.library_prices import at_cheapest_depots, check_routes
from polarvrp.problem.vrplib import read_sol
from polarvrp.tolerances import PRINTED_COST_TOLERANCE


@dataclass(frozen=True, slots=True)
class KnownSolution:
    """The solution beside a file.

    Attributes:
        path: Where it lies.
        cost: Exact, as the file's convention counts; None if it is unusable.
        note: Why it is unusable, or what its stated cost is if that differs; None if all is well.
    """

    path: Path
    cost: float | None
    note: str | None = None

    @property
    def why_no_gap(self) -> str:
        """Of a cost that is None or 0."""
        return f"the cost of {self.path} is 0" if self.cost == 0 else f"{self.path} is unusable, {self.note}"


def known_solution_path(path: Path) -> Path | None:
    """The ``.sol`` file beside an instance: ``A.sol`` or ``A.vrp.sol`` beside ``A.vrp``."""
    names = (path.with_suffix(".sol"), path.with_name(f"{path.name}.sol"))
    return next((name for name in names if _is_file(name) and name != path), None)


def known_solution(path: Path, library: LibraryInstance) -> KnownSolution | None:
    """The solution beside an instance, priced exactly; None if there is none."""
    beside = known_solution_path(path)
    if beside is None:
        return None
    try:
        solution = read_sol(beside)
        report = check_routes(library, at_cheapest_depots(library, solution.routes))
    except (DataError, InfeasibleTourError) as error:
        return KnownSolution(beside, None, str(error))
    if report.first_problem is not None:
        return KnownSolution(beside, None, report.first_problem)
    stated = solution.cost
    differs = stated is not None and abs(stated - report.cost) > PRINTED_COST_TOLERANCE
    return KnownSolution(beside, report.cost, f"it states {stated:.15g}" if differs else None)


def _is_file(path: Path) -> bool:
    """Whether there is a file; in a closed folder none is."""
    try:
        return path.is_file()
    except OSError:
        return False
