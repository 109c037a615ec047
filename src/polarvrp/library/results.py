"""What became of a user's file: as a row of Parquet, as JSON, and as the lines that a person reads."""

from __future__ import annotations

import dataclasses
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Before anything is solved: what Ctrl-C breaks off while these load could not be written.
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from polarvrp.evaluation.gaps import shown_gap
from polarvrp.files import exists, provenance, read_parquet, resolved, try_lock, write_rows, writing
from polarvrp.library.inputs import InputFile
from polarvrp.library.solving import SolvedInstance
from polarvrp.problem.gaps import gap_percent
from polarvrp.problem.known_solutions import KnownSolution
from polarvrp.problem.library_instances import LibraryInstance, Rounding
from polarvrp.problem.tours import routes_to_actions
from polarvrp.problem.variants import MULTI_DEPOT_COUNT
from polarvrp.problem.vrplib import variant_of_library

if TYPE_CHECKING:
    from polarvrp.evaluation.models import Model

SOLUTIONS = "solutions.parquet"

COMMAND = {"command": "solve"}
"""What the file says that it is of; see ``outputs.require_output``."""

SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("instance", pa.string()),
        ("variant", pa.string()),
        ("num_customers", pa.int64()),
        ("num_depots", pa.int64()),
        ("distances", pa.string()),
        ("method", pa.string()),
        ("cost", pa.float64()),
        ("routes", pa.int64()),
        ("actions", pa.list_(pa.uint32())),
        ("known_cost", pa.float64()),
        ("gap_percent", pa.float64()),
        ("seconds", pa.float64()),
        ("limit_seconds", pa.float64()),
        ("seed", pa.int64()),
        ("network_cost", pa.float64()),
        ("network_seconds", pa.float64()),
        ("starts", pa.int64()),
        ("symmetries", pa.int64()),
        ("network_note", pa.string()),
        ("network_start", pa.float64()),
        ("pyvrp_start", pa.float64()),
        ("pyvrp_cost", pa.float64()),
        ("pyvrp_seconds", pa.float64()),
        ("iterations", pa.int64()),
        ("not_trained_on", pa.list_(pa.string())),
        ("reason", pa.string()),
    ]
)
"""Columns of the table."""

DISTANCES = {
    Rounding.NEAREST: "distances rounded to whole numbers",
    Rounding.UP: "distances rounded up",
    Rounding.DOWN: "distances rounded down",
    Rounding.ONE_DECIMAL: "distances cut off after one decimal",
    Rounding.NONE: "exact distances",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A file and what became of it.

    Attributes:
        file: The file.
        library: What it holds; None if it could not be read.
        solved: None if it was not solved.
        known: The solution beside it, if any.
        untrained: What of it the model was not trained on, a phrase each.
        problem: Why there is no feasible solution; None if there is one.
    """

    file: InputFile
    library: LibraryInstance | None = None
    solved: SolvedInstance | None = None
    known: KnownSolution | None = None
    untrained: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def gap_percent(self) -> float | None:
        """To the known solution; None if there is none, or its cost is 0."""
        if self.solved is None or self.known is None or not self.known.cost:
            return None
        return gap_percent(self.solved.cost, self.known.cost)


def untrained_features(library: LibraryInstance, model: Model) -> tuple[str, ...]:
    """What an instance has that a model was not trained on, a phrase each."""
    name, found = variant_of_library(library).name, []
    if not model.variants:
        found.append(f"{name} (its file does not say what it was trained on)")
    elif name not in model.variants:
        found.append(f"{name} (trained on {_listed(model.variants)})")
    if library.num_customers != model.num_customers:
        found.append(f"{_count(library.num_customers, 'customer')} (trained on {model.num_customers})")
    if library.num_depots not in (1, MULTI_DEPOT_COUNT):
        found.append(f"{library.num_depots} depots (models know 1 or {MULTI_DEPOT_COUNT})")
    if library.matrix is not None:
        asymmetric = bool((library.matrix != library.matrix.T).any())
        way = "an asymmetric matrix, whose ways there and back differ" if asymmetric else "a matrix of distances"
        found.append(f"{way} (it sees points in a plane that resemble it)")
    if library.service_times is not None and library.service_times.any() and variant_of_library(library).distance_limit:
        found.append("a limit that counts service (it sees a closing time)")
    return tuple(found)


def describe_instance(library: LibraryInstance) -> str:
    """Variant, size and convention in one line."""
    depots = f", {library.num_depots} depots" if library.num_depots > 1 else ""
    return (
        f"{variant_of_library(library).name}, {_count(library.num_customers, 'customer')}{depots}, "
        f"capacity {library.capacity}, {DISTANCES[library.rounding]}"
    )


def describe_steps(outcome: Outcome, model_name: str | None) -> list[str]:
    """What each step did and gained, a line each."""
    solved = outcome.solved
    if solved is None:
        return []
    lines, built, improved = [], solved.construction, solved.improvement
    if outcome.untrained:
        lines.append(f"{model_name} was not trained on {'; '.join(outcome.untrained)}")
    if built is not None and built.cost is None:
        lines.append(f"network: no tour after {built.seconds:.2f} s, {built.note}; PyVRP alone")
    elif built is not None and built.cost is not None:
        effort = f"{_count(built.starts, 'start')} under {_count(built.symmetries, 'symmetry', 'symmetries')}"
        note = "" if built.note is None else f" ({built.note})"
        lines.append(f"network: {shown_cost(built.cost)} in {built.seconds:.2f} s, {effort}{note}")
    if improved is not None:
        lines += _improvement_lines(outcome, solved)
    return lines


def describe_answer(outcome: Outcome) -> str:
    """The answer and its gap in one line."""
    solved, known, library = outcome.solved, outcome.known, outcome.library
    if solved is None or library is None or outcome.problem is not None:
        return f"no feasible solution: {outcome.problem}"
    fleet = ""
    if library.vehicles and len(solved.routes) > library.vehicles:  # 0 states no fleet
        fleet = f" (the file states {library.vehicles} vehicles, which is no bound here)"
    routes = f"{_count(len(solved.routes), 'route')}{fleet}"
    answer = f"cost {shown_cost(solved.cost)}, {routes}, feasible, {solved.seconds:.2f} s"
    if known is None:
        return answer
    if outcome.gap_percent is None or known.cost is None:
        return f"{answer}; no gap: {known.why_no_gap}"
    note = "" if known.note is None else f", {known.note}"
    return f"{answer}; gap {shown_gap(outcome.gap_percent)} % to {known.path} ({shown_cost(known.cost)}{note})"


def shown_cost(cost: float) -> str:
    """A cost as published ones are printed: whole, with one decimal, or with two."""
    return f"{cost:.15g}" if round(cost, 1) == cost else f"{cost:.2f}"


def write_outcomes(folder: Path, outcomes: Sequence[Outcome], settings: dict[str, Any]) -> int:
    """Write ``solutions.parquet``, a row a file; rows of other files that it holds already stay before the new ones.

    Rows name files by their whole paths, since the next call may be made from another folder.

    Args:
        folder: Of the results.
        outcomes: In any order.
        settings: Time limit and seed, columns of each row, and the provenance of each model by its name.

    Returns:
        Number of rows.

    Raises:
        DataError: If what is there is damaged, or nothing can be written.
    """
    path, solved = folder / SOLUTIONS, {resolved(outcome.file.path) for outcome in outcomes}
    rows: list[dict[str, Any]] = []
    with _locked(folder):  # what another call adds in between would be lost
        if exists(path):
            table = read_parquet(path)
            rows = [row for row in table.to_pylist() if resolved(row["file"]) not in solved]
            settings = settings | {"models": provenance(table).get("models", {}) | settings["models"]}
        rows += [facts(outcome, settings) | {"file": str(outcome.file.whole_path)} for outcome in outcomes]
        write_rows(path, rows, SCHEMA, settings | COMMAND)
    return len(rows)


def facts(outcome: Outcome, settings: dict[str, Any]) -> dict[str, Any]:
    """An outcome as a row, the file as it was named; what does not apply is None."""
    library, solved, known = outcome.library, outcome.solved, outcome.known
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    row |= {"file": str(outcome.file.path), "reason": outcome.problem}
    row |= {"not_trained_on": list(outcome.untrained), "known_cost": known.cost if known else None}
    row |= {key: settings[key] for key in ("limit_seconds", "seed")}
    if library is not None:
        row |= {"instance": library.name, "variant": variant_of_library(library).name}
        row |= {"num_customers": library.num_customers, "num_depots": library.num_depots}
        row |= {"distances": str(library.rounding)}
    if solved is None or library is None:
        return row
    row |= {"method": solved.method, "seconds": solved.seconds, "gap_percent": outcome.gap_percent}
    if outcome.problem is None:
        actions = routes_to_actions(solved.routes, library.num_depots)
        row |= {"cost": float(solved.cost), "routes": len(solved.routes), "actions": actions}
    built, improved = solved.construction, solved.improvement
    if built is not None:
        row |= {"network_cost": built.cost, "network_seconds": built.seconds, "network_note": built.note}
        row |= {"starts": built.starts, "symmetries": built.symmetries}
    if improved is not None:
        row |= {"network_start": improved.given_start, "pyvrp_start": improved.own_start, "pyvrp_cost": improved.cost}
        row |= {"pyvrp_seconds": improved.seconds, "iterations": improved.iterations}
    return row


def json_object(outcome: Outcome, settings: dict[str, Any]) -> dict[str, Any]:
    """An outcome as JSON holds it: a row, the file as it was named, routes spelled out instead of a list of actions."""
    row = facts(outcome, settings)
    del row["actions"]
    routes = outcome.solved.routes if outcome.solved is not None and outcome.problem is None else ()
    return row | {"routes": [dataclasses.asdict(route) for route in routes]}


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, made if missing; another process of this machine that wants it waits.

    Raises:
        DataError: If the folder cannot be made or opened.
    """
    with writing(folder, "choose another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    try:
        if not try_lock(handle, folder):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _improvement_lines(outcome: Outcome, solved: SolvedInstance) -> list[str]:
    improved, built = solved.improvement, solved.construction
    assert improved is not None
    lines = []
    if improved.given_start is not None:
        own, given = (shown_cost(cost) for cost in (improved.own_start, improved.given_start))
        if improved.from_network:
            lines.append(f"local search makes {given} of it, {own} of PyVRP's own first tour: from the network's")
        else:
            lines.append(
                f"local search makes {given} of it, {own} of PyVRP's own first tour: the network does not help, "
                "PyVRP alone"
            )
    start = built.cost if improved.from_network and built is not None and built.cost is not None else improved.own_start
    gain = 100 * (improved.cost - start) / start if start else 0.0
    since = "the network's tour" if improved.from_network else f"its own first tour, {shown_cost(improved.own_start)}"
    iterations = _count(improved.iterations, "iteration")
    lines.append(
        f"PyVRP: {shown_cost(improved.cost)} in {improved.seconds:.2f} s, {iterations}, {gain:+z.2f} % from {since}"
    )
    return lines


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{len(names)} other variants"


def _count(number: int, one: str, several: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
