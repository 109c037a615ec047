"""References of library files: a stopped call goes on, and keeps nothing that was made otherwise."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.library_texts import vrp
from polarvrp.problem.library_files import parse_library
from polarvrp.problem.library_instances import Rounding
from polarvrp.references import library
from polarvrp.references.library import solve_library_files
from polarvrp.solutions.library_rows import LibraryRow, read_library_rows
from polarvrp.solvers.library_solve import LibraryTask, solve_library_task
from polarvrp.solvers.solve import SolverSettings

SETTINGS = SolverSettings("pyvrp", 20.0, seed=1, max_iterations=10)
INSTANCES = {
    "a": parse_library(vrp("a"), "a.vrp"),
    "far": parse_library(vrp("far", "DISTANCE : 9\n"), "far.vrp"),
    "b": parse_library(vrp("b"), "b.vrp"),
    "c": parse_library(vrp("c"), "c.vrp"),
}
BEST_KNOWN: dict[str, float | None] = {"a": 15, "far": None, "b": None, "c": 16.0}
COSTS = [16, None, 16, 16]


class Solver:
    """``solve_library_tasks`` in this process: notes whom it solves, and is stopped after so many."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.stops_after: int | None = None

    def __call__(self, tasks: Sequence[LibraryTask], workers: int, hard_limit_s: float) -> Iterator[LibraryRow]:
        assert workers == 1 and hard_limit_s == pytest.approx(2 * 20 + 10, abs=1)
        self.names = []
        for task in tasks:
            if len(self.names) == self.stops_after:
                raise KeyboardInterrupt
            self.names.append(task.library.name)
            yield solve_library_task(task)


@pytest.fixture
def solver(monkeypatch: pytest.MonkeyPatch) -> Solver:
    monkeypatch.setattr(library, "solve_library_tasks", found := Solver())
    return found


def solve(output: Path, settings: SolverSettings = SETTINGS, **others: Any) -> list[LibraryRow]:
    """Rows without their times; ``others`` replace instances."""
    solve_library_files(list((INSTANCES | others).values()), BEST_KNOWN, settings, output)
    return [replace(row, seconds=None) for row in read_library_rows(output)]


def stop(solver: Solver, output: Path) -> None:
    """Stop a call after three files."""
    solver.stops_after = 3
    with pytest.raises(KeyboardInterrupt):
        solve(output)
    solver.stops_after = None
    assert not output.exists() and len(solver.names) == 3


def test_a_stopped_call_goes_on_after_the_last_solved_file(solver: Solver, tmp_path: Path) -> None:
    """Files without a solution are tried again; the end is that of a call that nobody stopped."""
    undisturbed = solve(tmp_path / "whole.parquet")
    assert [row.cost for row in undisturbed] == COSTS and solver.names == list(INSTANCES)
    stop(solver, output := tmp_path / "out.parquet")
    assert solve(output) == undisturbed
    assert solver.names == ["far", "c"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.parquet", "whole.parquet"]


@pytest.mark.parametrize("changed", [{"seconds": 19.9}, {"seed": 2}, {"max_iterations": 11}, {"solver": "ortools"}])
def test_nothing_is_kept_of_another_effort(solver: Solver, tmp_path: Path, changed: dict[str, Any]) -> None:
    stop(solver, output := tmp_path / "out.parquet")
    assert [row.cost for row in solve(output, replace(SETTINGS, **changed))] == COSTS
    assert solver.names == list(INSTANCES)


def test_changed_files_are_solved_again(solver: Solver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be it a number, how distances count, or what is best known; the others are kept."""
    stop(solver, output := tmp_path / "out.parquet")
    larger = parse_library(vrp("a").replace("CAPACITY : 10", "CAPACITY : 20"), "a.vrp")
    exact = replace(INSTANCES["b"], rounding=Rounding.NONE)
    assert [row.rounding for row in solve(output, a=larger, b=exact)] == ["rounded", "rounded", "exact", "rounded"]
    assert solver.names == ["a", "far", "b", "c"]
    stop(solver, output := tmp_path / "again.parquet")
    monkeypatch.setitem(BEST_KNOWN, "b", 8.0)
    assert solve(output)[2].gap_percent == 100
    assert solver.names == ["far", "b", "c"]
