"""Exact verification of files of solutions, by code that no solver or network shares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from polarvrp.errors import DataError, InfeasibleTourError
from polarvrp.files import provenance, read_parquet
from polarvrp.problem.datasets import read_instances, variant_of
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.library_instances import LibraryInstance, Rounding, counted_by
from polarvrp.problem.library_prices import check_routes
from polarvrp.problem.tours import actions_to_routes, check_tour
from polarvrp.problem.variants import parse_variant
from polarvrp.problem.vrplib import load_set_x
from polarvrp.solutions.foreign import read_foreign
from polarvrp.solutions.importing import Imported, compared, cost_problem, import_set, price_library
from polarvrp.solutions.library_rows import LibraryRow, is_library_table, read_library_rows
from polarvrp.solutions.rows import SolutionRow
from polarvrp.solutions.solutions import key_of, plain_rows, read_solutions
from polarvrp.tolerances import COST_TOLERANCE, POLICY_TOLERANCE, REFERENCE_TOLERANCE

SET_X_COLUMNS = ("instance", "best_known", "cost", "actions")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found.

    Attributes:
        rows: Rows of the file.
        problems: One line for each row that is infeasible or whose stored cost is wrong.
        costs: Stored costs of the rows that have one.
    """

    rows: int
    problems: tuple[str, ...]
    costs: tuple[float, ...]

    @property
    def summary(self) -> str:
        """Counts and mean cost in one line."""
        mean = f", mean cost {sum(self.costs) / len(self.costs):.6f}" if self.costs else ""
        return (
            f"{self.rows} rows, {len(self.costs) - len(self.problems)} right, {len(self.problems)} wrong, "
            f"{self.rows - len(self.costs)} without a solution{mean}"
        )


def check_set(instances_path: Path, solutions_path: Path) -> Verdict:
    """Check every solution of a set, of whatever the file holds now.

    Args:
        instances_path: The set, ``.npz``.
        solutions_path: References or evaluations of it, ``.parquet``.

    Raises:
        DataError: If a file is unusable, they do not belong together, or the solutions were changed since they were
            written and are right all the same.
    """
    instances = read_instances(instances_path)
    table = read_solutions(solutions_path, as_it_is=True)
    key = key_of(table)
    ours = key == "solver" and "imported" not in provenance(table)
    tolerance = REFERENCE_TOLERANCE if ours else POLICY_TOLERANCE
    _require_rows_of(instances, table, key, f"{solutions_path} does not belong to {instances_path}")
    costs, problems = [], []
    for row in plain_rows(table.select(["instance", key, "cost", "actions"])):
        if row["cost"] is None:
            continue
        costs.append(row["cost"])
        problem = _problem(instances, row, tolerance)
        if problem is not None:
            problems.append(f"instance {row['instance']} ({row[key]}): {problem}")
    if not problems:
        read_parquet(solutions_path)  # refuses a file that was changed elsewhere
    return Verdict(len(table), tuple(problems), tuple(costs))


def check_set_x(path: Path) -> Verdict:
    """Check every solution of a file of costs on CVRPLIB's Set-X, of whatever it holds now.

    Raises:
        DataError: If the file is unusable, names an instance that Set-X does not have or names it twice, or was changed
            since it was written and is right all the same.
    """
    rows = read_set_x(path, changed=True)
    names = [row["instance"] for row in rows]
    if len(set(names)) < len(names):
        raise DataError(f"{path} solves an instance twice; make it again with polarvrp evaluate-set-x")
    solved = [row for row in rows if row["cost"] is not None]
    found = [(row["instance"], _set_x_problem(row)) for row in solved]
    problems = tuple(f"{name}: {problem}" for name, problem in found if problem is not None)
    if not problems:
        read_parquet(path)  # refuses a file that was changed elsewhere
    return Verdict(len(rows), problems, tuple(float(row["cost"]) for row in solved))


def is_foreign(path: Path) -> bool:
    """Whether solutions of a set are in others' form: an archive, or a Parquet that names no variants.

    Raises:
        DataError: If the file is missing or damaged.
    """
    return path.suffix.lower() == ".npz" or {"variant", "num_customers"}.isdisjoint(
        read_parquet(path, changed=True).column_names
    )


def check_foreign(instances_path: Path, path: Path) -> Imported[SolutionRow]:
    """Check others' solutions of a set, whose stated costs are compared and not judged.

    Raises:
        DataError: If a file is unusable or they do not belong together.
    """
    return import_set(instances_path, read_foreign(path), path.stem)


def check_library(
    library: LibraryInstance, stem: str, path: Path, rounding: Rounding | None = None, open_routes: bool = False
) -> Verdict | Imported[LibraryRow]:
    """Check the solutions of an instance in a Parquet file, ours or a plain one, of whatever it holds now.

    Args:
        library: The instance.
        stem: What its file is called; solutions may call it so or by the name in the file.
        path: The file; solutions of other instances in it are left out.
        rounding: How distances count, None for what our file says.
        open_routes: Whether routes end at their last customer; so they do where our file says it.

    Raises:
        DataError: If the file is unusable, holds no solution of the instance, or was changed since it was written and
            what it holds of the instance is right all the same.
    """
    names = {library.name.lower(), stem.lower()}
    verdict: Verdict | Imported[LibraryRow]
    if is_library_table(read_parquet(path, changed=True)):
        ours = [row for row in read_library_rows(path, changed=True) if row.instance.lower() in names]
        verdict = _library_verdict(library, ours, rounding, open_routes)
    else:
        theirs = [one for one in read_foreign(path, changed=True) if str(one.instance).lower() in names]
        verdict = compared(theirs, [price_library(library, solution, path.stem) for solution in theirs])
    if not verdict.rows:
        raise DataError(f"{path} holds no solution of {library.name}")
    if not verdict.problems:
        read_parquet(path)  # refuses a file that was changed elsewhere
    return verdict


def _library_verdict(
    library: LibraryInstance, rows: Sequence[LibraryRow], rounding: Rounding | None, open_routes: bool
) -> Verdict:
    """On rows of ours of one instance, each as it says that its cost counts."""
    solved = [row for row in rows if row.cost is not None]
    found = [(row, _row_problem(counted_by(library, row.convention, rounding, open_routes), row)) for row in solved]
    problems = tuple(f"{row.instance} ({row.solver}): {problem}" for row, problem in found if problem is not None)
    return Verdict(len(rows), problems, tuple(row.cost for row in solved if row.cost is not None))


def read_set_x(path: Path, *, changed: bool = False) -> list[dict[str, Any]]:
    """Rows of a file of costs on Set-X, which may have been ``changed`` since it was written for those who judge it.

    Raises:
        DataError: If the file is missing, truncated or holds something else.
    """
    table = read_parquet(path, "make it with polarvrp evaluate-set-x", changed=changed)
    lacking = [name for name in SET_X_COLUMNS if name not in table.column_names]
    if lacking:
        raise DataError(f"{path} holds no costs on Set-X: it lacks the columns {', '.join(lacking)}")
    rows: list[dict[str, Any]] = table.to_pylist()
    if not rows:
        raise DataError(f"{path} holds no costs on Set-X: it has no rows; make it again")
    for row in rows:
        if None in (row["actions"] or ()):
            raise DataError(f"{path}: {row['instance']} has a tour with a missing node; make it again")
    return rows


def _row_problem(library: LibraryInstance, row: LibraryRow) -> str | None:
    try:
        report = check_routes(library, actions_to_routes(row.actions, library.num_depots))
    except InfeasibleTourError as error:
        return str(error)
    if report.first_problem is not None:
        return report.first_problem
    return None if row.cost is None else cost_problem(library, row.cost, report.cost)


def _set_x_problem(row: Mapping[str, Any]) -> str | None:
    library, best_known, _ = load_set_x(row["instance"])
    try:
        report = check_routes(library, actions_to_routes(row["actions"] or [], num_depots=1))
    except InfeasibleTourError as error:
        return str(error)
    if report.first_problem is not None:
        return report.first_problem
    if row["cost"] != report.cost:
        return f"its stored cost is {row['cost']}, with rounded distances it is {report.cost}"
    return None if row["best_known"] == best_known else f"its best known cost is {best_known}, not {row['best_known']}"


def _require_rows_of(instances: Instances[NodeArrays], table: pa.Table, key: str, mismatch: str) -> None:
    """Every row names an instance of the set, at most once for each method.

    Raises:
        DataError: If a row does not, or there is none.
    """
    if not len(table):
        raise DataError(f"{mismatch}: it holds no solutions")
    variant, count, size = variant_of(instances), len(instances), instances.num_customers
    seen = set()
    for row in plain_rows(table.select(["variant", "num_customers", "instance", key])):
        if parse_variant(row["variant"]) != variant or row["num_customers"] != size:
            stated = f"{row['variant']} with {row['num_customers']} customers"
            raise DataError(f"{mismatch}: it solves {stated}, the set is {variant.name} with {size}")
        if not 0 <= row["instance"] < count:
            raise DataError(f"{mismatch}: it solves instance {row['instance']}, the set holds 0 to {count - 1}")
        if (row[key], row["instance"]) in seen:
            raise DataError(f"{mismatch}: it solves instance {row['instance']} twice by {row[key]}")
        seen.add((row[key], row["instance"]))


def _problem(instances: Instances[NodeArrays], row: dict[str, Any], tolerance: float) -> str | None:
    """What is wrong with a row that has a cost; None if nothing is."""
    try:
        report = check_tour(instances, row["instance"], row["actions"] or [], tolerance)
    except InfeasibleTourError as error:
        return str(error)
    if report.first_problem is not None:
        return report.first_problem
    if not abs(row["cost"] - report.cost) <= COST_TOLERANCE:
        return f"its stored cost is {row['cost']:.9g}, the exact cost {report.cost:.9g}"
    return None
