"""``polarvrp check``: right, wrong and unusable files of solutions."""

import dataclasses
import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from polarvrp.cli.main import main
from polarvrp.problem.archives import write_arrays
from polarvrp.problem.datasets import instances_from_arrays
from polarvrp.problem.nearest_neighbour import nearest_neighbour
from polarvrp.problem.numpy_generator import generate_arrays
from polarvrp.problem.tours import Route, actions_to_routes, check_tour, routes_to_actions
from polarvrp.problem.variants import VARIANTS
from polarvrp.problem.vrplib import load_set_x, write_sol
from polarvrp.solutions import solutions
from polarvrp.solutions.rows import SolutionRow
from polarvrp.solutions.solutions import read_solutions, write_solutions

Library = tuple[Path, Path, list[Route], int]


class Case:
    """A set on disk with a feasible solution of each instance."""

    def __init__(self, folder: Path, variant: str, count: int = 3) -> None:
        self.arrays = generate_arrays(VARIANTS[variant], 8, count, 1)
        self.instances_path, self.solutions_path = folder / "set.npz", folder / "solutions.parquet"
        self.variant = variant
        write_arrays(self.instances_path, self.arrays)
        instances = instances_from_arrays(self.arrays)
        self.rows = []
        for index in range(count):
            actions = tuple(nearest_neighbour(instances, index))
            report = check_tour(instances, index, actions)
            self.rows.append(
                SolutionRow(
                    variant, 8, index, "pyvrp", report.cost, actions, report.num_routes, 0.1, report.max_violation
                )
            )

    def change(self, index: int, **values: Any) -> None:
        self.rows[index] = dataclasses.replace(self.rows[index], **values)

    def check(self, key: Literal["solver", "run"] = "solver") -> int:
        write_solutions(self.solutions_path, self.rows, key)
        return main(["check", str(self.instances_path), str(self.solutions_path)])


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path, "VRPBLTW")


@pytest.mark.parametrize("variant", VARIANTS)
def test_feasible_solutions_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str], variant: str) -> None:
    case = Case(tmp_path, variant, count=2)
    assert case.check() == 0
    mean = np.mean([row.cost for row in case.rows])
    assert capsys.readouterr().out == (
        f"{case.solutions_path}: 2 rows, 2 right, 0 wrong, 0 without a solution, mean cost {mean:.6f}\n"
    )


def test_a_wrong_cost_is_shown_with_the_exact_one(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """Off by more than 1e-6 is wrong, less is not."""
    exact = case.rows[1].cost
    case.change(0, cost=case.rows[0].cost + 9e-7)
    case.change(1, cost=exact + 2e-6)
    assert case.check() == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"instance 1 (pyvrp): its stored cost is {exact + 2e-6:.9g}, the exact cost {exact:.9g}"
    assert "3 rows, 2 right, 1 wrong, 0 without a solution" in lines[1]


def test_a_cost_that_is_no_number_is_wrong(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """Our writer refuses it; a foreign file may hold it."""
    assert case.check() == 0
    table = read_solutions(case.solutions_path)
    costs = pa.array([table["cost"][0].as_py(), float("nan"), table["cost"][2].as_py()])
    foreign = table.set_column(table.schema.get_field_index("cost"), "cost", costs).replace_schema_metadata(None)
    pq.write_table(foreign, case.solutions_path)
    assert main(["check", str(case.instances_path), str(case.solutions_path)]) == 1
    assert "instance 1 (pyvrp): its stored cost is nan" in capsys.readouterr().out


def test_a_file_that_was_changed_is_judged_by_what_it_holds_now(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong rows are named, with exit code 1; if there is none the file is refused all the same."""
    assert case.check() == 0
    table, command = pq.read_table(case.solutions_path), ["check", str(case.instances_path), str(case.solutions_path)]
    for column, code in (("cost", 1), ("seconds", 2)):
        place, more = table.schema.get_field_index(column), pc.add(table[column], 1.0)
        pq.write_table(table.set_column(place, table.schema.field(place), more), case.solutions_path)
        capsys.readouterr()
        assert main(command) == code
        printed = capsys.readouterr()
        assert printed.out.count("its stored cost is") == (3 if code == 1 else 0)
        assert ("its content was changed after it was written" in printed.err) == (code == 2)


def test_columns_that_say_nothing_of_tours_may_be_absent(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    assert case.check() == 0
    table = pq.read_table(case.solutions_path)
    first = table.column_names[:6]
    costs = pa.array([None, *table["cost"].to_pylist()[1:]], pa.float64())
    plain = table.select(first).set_column(first.index("cost"), "cost", costs).replace_schema_metadata(None)
    pq.write_table(plain, case.solutions_path)
    capsys.readouterr()
    assert main(["check", str(case.instances_path), str(case.solutions_path)]) == 0
    assert "3 rows, 2 right, 0 wrong, 1 without a solution" in capsys.readouterr().out


def swapped_route(actions: tuple[int, ...]) -> tuple[int, ...]:
    """The first route with two stops or more, backwards."""
    routes = actions_to_routes(actions, 1)
    return tuple(routes_to_actions([Route(0, route.customers[::-1]) for route in routes], 1))


BROKEN = [
    (lambda actions: actions[:-1], r"customer \d is not served"),
    (lambda actions: (*actions, actions[0]), r"customer \d is served twice"),
    (lambda actions: (*actions, 9), "node 9 does not exist; nodes are 0 to 8"),
    (lambda actions: (), "customer 1 is not served"),
    (lambda actions: tuple(a for a in actions if a), "route 1 "),  # all in one route
]


@pytest.mark.parametrize(("breaking", "message"), BROKEN)
def test_infeasible_rows_are_named(case: Case, capsys: pytest.CaptureFixture[str], breaking: Any, message: str) -> None:
    case.change(2, actions=breaking(case.rows[2].actions))
    assert case.check() == 1
    assert re.match(rf"instance 2 \(pyvrp\): {message}", capsys.readouterr().out)


def test_a_late_tour_is_named_with_customer_and_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Routes driven backwards miss a window or serve linehauls after backhauls."""
    case = Case(tmp_path, "VRPTW")
    for index in range(3):
        case.change(index, actions=swapped_route(case.rows[index].actions))
    assert case.check() == 1
    assert re.search(r"route \d serves customer \d at \d\.\d+, its window ends \d\.\d+", capsys.readouterr().out)


@pytest.mark.parametrize(("key", "excess", "code"), [("run", 5e-6, 0), ("run", 2e-5, 1), ("solver", 5e-6, 1)])
def test_tolerances_of_references_and_policies(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    key: Literal["solver", "run"],
    excess: float,
    code: int,
) -> None:
    """A policy's clock runs in float32; a reference has no such excuse."""
    case = Case(tmp_path, "VRPL", count=1)
    actions = case.rows[0].actions
    routes = actions_to_routes(actions, 1)
    instances = instances_from_arrays(case.arrays)
    lengths = []
    for route in routes:
        way = instances.locs[0][[0, *route.customers, 0]].astype(np.float64)
        lengths.append(np.linalg.norm(np.diff(way, axis=0), axis=1).sum())
    case.arrays["distance_limit"][0] = max(lengths) - excess
    write_arrays(case.instances_path, case.arrays)
    assert case.check(key) == code
    assert ("has length" in capsys.readouterr().out) == bool(code)


def test_rows_without_a_solution_are_counted_apart(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    case.change(0, cost=None, actions=(), routes=0, max_violation=None, reason="time limit")
    assert case.check() == 0
    assert "3 rows, 2 right, 0 wrong, 1 without a solution" in capsys.readouterr().out
    for index in (1, 2):
        case.change(index, cost=None, actions=(), routes=0, max_violation=None, reason="time limit")
    assert case.check() == 0
    assert capsys.readouterr().out.endswith("0 right, 0 wrong, 3 without a solution\n")


def test_only_the_first_wrong_rows_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = Case(tmp_path, "CVRP", count=13)
    for index in range(13):
        case.change(index, cost=1.0)
    assert case.check() == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 12
    assert lines[9].startswith("instance 9 ") and lines[10] == "... and 3 more"


def test_rows_are_written_and_checked_some_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong is found in any block of rows, and what is there twice between them."""
    case = Case(tmp_path, "VRPBLTW", count=5)
    for index in (0, 4):
        case.change(index, cost=1.0)
    assert case.check() == 1
    said, content = capsys.readouterr().out, case.solutions_path.read_bytes()
    assert "instance 0 " in said and "instance 4 " in said and "5 rows, 3 right, 2 wrong" in said
    monkeypatch.setattr(solutions, "ROWS_AT_ONCE", 2)
    assert case.check() == 1
    assert (capsys.readouterr().out, case.solutions_path.read_bytes()) == (said, content)
    case.change(4, instance=1)
    assert case.check() == 2
    assert "it solves instance 1 twice by pyvrp" in capsys.readouterr().err


def test_several_methods_in_one_file(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """Published solutions beside our own: each is judged for itself."""
    case.rows += [dataclasses.replace(row, method="published-ortools") for row in case.rows[:2]]
    case.change(4, cost=0.5)
    assert case.check() == 1
    assert capsys.readouterr().out.startswith("instance 1 (published-ortools): its stored cost is 0.5")


MISMATCHES = [
    (lambda case: case.change(0, variant="VRPTW"), "it solves VRPTW with 8 customers, the set is VRPBLTW with 8"),
    (lambda case: case.change(0, num_customers=9), "it solves VRPBLTW with 9 customers, the set is VRPBLTW with 8"),
    (lambda case: case.change(1, instance=3), "it solves instance 3, the set holds 0 to 2"),
    (lambda case: case.change(1, instance=-1), "it solves instance -1, the set holds 0 to 2"),
    (lambda case: case.change(1, instance=0), "it solves instance 0 twice by pyvrp"),
    (lambda case: case.rows.clear(), "it holds no solutions"),
]


@pytest.mark.parametrize(("change", "message"), MISMATCHES)
def test_solutions_of_another_set(case: Case, capsys: pytest.CaptureFixture[str], change: Any, message: str) -> None:
    """Rows that belong to other instances are bad input, not wrong solutions."""
    change(case)
    assert case.check() == 2
    wanted = f"polarvrp check: {case.solutions_path} does not belong to {case.instances_path}: {message}\n"
    assert capsys.readouterr().err == wanted


def test_unusable_files(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Missing, truncated, of another kind: one line, exit code 2."""
    case.check()
    instances, solutions = case.instances_path.read_bytes(), case.solutions_path.read_bytes()
    capsys.readouterr()

    def refused(first: Any, second: Any, message: str) -> None:
        assert main(["check", str(first), str(second)]) == 2
        error = capsys.readouterr().err
        assert re.fullmatch(rf"polarvrp check: .*{re.escape(message)}.*\n", error), error

    refused(tmp_path / "no.npz", case.solutions_path, "no.npz does not exist")
    refused(case.instances_path, tmp_path / "no.parquet", "no.parquet does not exist")
    cut = tmp_path / "cut"
    (cut_npz := cut.with_suffix(".npz")).write_bytes(instances[: len(instances) // 2])
    (cut_parquet := cut.with_suffix(".parquet")).write_bytes(solutions[: len(solutions) // 2])
    refused(cut_npz, case.solutions_path, "cut.npz: no .npz archive, or a truncated one")
    refused(case.instances_path, cut_parquet, "cut.parquet is no complete Parquet file")
    refused(case.instances_path, case.instances_path, "set.npz: no archive of solutions, it lacks the array 'actions'")
    refused(case.solutions_path, case.solutions_path, "solutions.parquet: unknown format")
    (mixed := tmp_path / "mixed.npz").write_bytes(instances)
    arrays = dict(case.arrays, open_route=np.array([[True], [False], [False]]))
    write_arrays(mixed, arrays)
    refused(mixed, case.solutions_path, "instances of one variant are needed")


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """A published instance with its best-known solution as files."""
    name = "X-n101-k25"
    instance, cost, routes = load_set_x(name)
    rows = zip(instance.coordinates.astype(int).tolist(), instance.demands.tolist(), strict=True)
    nodes = [(i, *xy, demand) for i, (xy, demand) in enumerate(rows, start=1)]
    lines = [f"NAME : {name}", "TYPE : CVRP", f"DIMENSION : {len(nodes)}", "EDGE_WEIGHT_TYPE : EUC_2D"]
    lines += [f"CAPACITY : {instance.capacity}", "NODE_COORD_SECTION", *(f"{i} {x} {y}" for i, x, y, _ in nodes)]
    lines += ["DEMAND_SECTION", *(f"{i} {demand}" for i, _, _, demand in nodes), "DEPOT_SECTION", "1", "-1", "EOF"]
    path = tmp_path / f"{name}.vrp"
    path.write_text("\n".join(lines))
    return path, tmp_path / f"{name}.sol", routes, cost


def test_the_best_known_solution_passes(library: Library, capsys: pytest.CaptureFixture[str]) -> None:
    """26 routes although the name says 25: the fleet is unlimited."""
    vrp, sol, routes, cost = library
    write_sol(sol, routes, cost)
    assert main(["check", str(vrp), str(sol)]) == 0
    assert capsys.readouterr().out == f"{sol}: X-n101-k25, 26 routes, cost 27591: right\n"


def test_a_solution_without_a_cost_is_priced(library: Library, capsys: pytest.CaptureFixture[str]) -> None:
    vrp, sol, routes, cost = library
    write_sol(sol, routes, cost)
    sol.write_text(sol.read_text().replace("Cost 27591\n", ""))
    assert main(["check", str(vrp), str(sol)]) == 0
    assert capsys.readouterr().out.endswith("26 routes, cost 27591 (the file states none): right\n")


def test_wrong_library_solutions(library: Library, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong cost, overload, a customer left out: exit code 1 and the reason."""
    vrp, sol, routes, cost = library
    joined = [Route(0, routes[0].customers + routes[1].customers), *routes[2:]]
    for changed, stated, message in (
        (routes, cost - 1, "wrong, its stored cost is 27590, with rounded distances it is 27591"),
        (joined, cost, "wrong, route 1 has load "),
        (routes[1:], cost, f"wrong, customer {min(routes[0].customers)} is not served"),
    ):
        write_sol(sol, changed, stated)
        assert main(["check", str(vrp), str(sol)]) == 1
        assert message in capsys.readouterr().out


def test_convention_of_distances(library: Library, capsys: pytest.CaptureFixture[str]) -> None:
    """Sets published without rounding are priced so; the option overrides the convention."""
    vrp, sol, routes, cost = library
    write_sol(sol, routes, cost)
    assert main(["check", str(vrp), str(sol), "--distances", "exact"]) == 1
    assert "with exact distances it is 27" in capsys.readouterr().out
    vrp.write_text(vrp.read_text().replace("X-n101-k25", "CMT_like"))
    assert main(["check", str(vrp), str(sol)]) == 1
    exact = float(re.search(r"distances it is (\S+)", capsys.readouterr().out).group(1))
    write_sol(sol, routes, round(exact, 2))
    assert main(["check", str(vrp), str(sol)]) == 0
    assert main(["check", str(vrp), str(sol), "--distances", "rounded"]) == 1


def test_distances_of_a_set_have_no_convention(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    case.check()
    assert main(["check", str(case.instances_path), str(case.solutions_path), "--distances", "exact"]) == 2
    assert "--distances is for library files" in capsys.readouterr().err


def test_unusable_library_files(library: Library, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vrp, sol, routes, cost = library
    write_sol(sol, routes, cost)
    vrp.write_text("\n".join(vrp.read_text().splitlines()[:80]))  # six lines of header, 74 coordinates
    for first, second, message in (
        (vrp, sol, "NODE_COORD_SECTION must hold 101 nodes, got 74"),
        (tmp_path / "no.vrp", sol, "no.vrp does not exist"),
    ):
        assert main(["check", str(first), str(second)]) == 2
        assert message in capsys.readouterr().err
