"""Others' solutions: each form read, every cost recomputed, what breaks a rule named and without a cost."""

import itertools
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from helpers.library_texts import CORDEAU, vrp
from polarvrp.cli.main import main
from polarvrp.problem.archives import write_arrays
from polarvrp.problem.datasets import instances_from_arrays
from polarvrp.problem.nearest_neighbour import nearest_neighbour
from polarvrp.problem.numpy_generator import generate_arrays
from polarvrp.problem.tours import Route, actions_to_routes
from polarvrp.problem.variants import VARIANTS
from polarvrp.problem.vrplib import load_set_x, write_sol
from polarvrp.solutions.library_rows import read_library_rows
from polarvrp.solutions.solutions import read_solutions, solution_rows

SIZE, COUNT = 8, 4


class Published:
    """A set with solutions as RouteFinder publishes them."""

    def __init__(self, folder: Path, variant: str) -> None:
        self.arrays = generate_arrays(VARIANTS[variant], SIZE, COUNT, 1)
        self.path, self.archive = folder / "50.npz", folder / "50_sol_hgs.npz"
        write_arrays(self.path, self.arrays)
        self.instances = instances_from_arrays(self.arrays)
        self.tours = [nearest_neighbour(self.instances, index) for index in range(COUNT)]
        self.costs = [self.length(index) for index in range(COUNT)]

    def length(self, index: int) -> float:
        """Length of a tour from its coordinates."""
        locs, is_open = self.instances.locs[index].tolist(), bool(self.instances.open_route[index])
        total = 0.0
        for route in actions_to_routes(self.tours[index], self.instances.num_depots):
            way = [route.depot, *route.customers, *([] if is_open else [route.depot])]
            total += sum(math.dist(locs[start], locs[end]) for start, end in itertools.pairwise(way))
        return total

    def write(self, **changed: Any) -> None:
        actions = np.zeros((COUNT, max(map(len, self.tours)) + 3), dtype=np.int64)
        for row, tour in zip(actions, self.tours, strict=True):
            row[: len(tour)] = tour
        costs = np.array(self.costs, dtype=np.float32)
        np.savez(self.archive, **{"actions": actions, "costs": -costs, "time": np.array(8.0), **changed})


@pytest.mark.parametrize("variant", ["CVRP", "OVRPBLTW", "MDVRPTW", "MDOVRP"])
def test_routefinders_archives(variant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Negative costs, padding with depots and the time of all; the set lies beside by its name."""
    case = Published(tmp_path, variant)
    case.write()
    output = tmp_path / "ours.parquet"
    assert main(["check", str(case.path), str(case.archive)]) == 0
    assert main(["import", str(case.archive), "--output", str(output)]) == 0
    assert "4 solutions, 4 right, 0 break a rule, 0 missing, mean cost" in capsys.readouterr().out
    rows = solution_rows(read_solutions(output))
    assert [row.cost for row in rows] == pytest.approx(case.costs, abs=1e-12)
    assert [list(row.actions) for row in rows] == case.tours
    assert {(row.method, row.variant, row.num_customers, row.seconds) for row in rows} == {("hgs", variant, SIZE, 2.0)}
    assert main(["check", str(case.path), str(output)]) == 0


def test_stated_costs_are_compared_and_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = Published(tmp_path, "VRPTW")
    case.write(costs=np.array([*case.costs[:3], case.costs[3] + 0.25]))
    output = tmp_path / "ours.parquet"
    assert main(["import", str(case.archive), "--output", str(output), "--method", "theirs"]) == 0
    assert capsys.readouterr().out.endswith("stated costs are off by at most 0.25\n")
    rows = solution_rows(read_solutions(output))
    assert rows[3].cost == pytest.approx(case.costs[3], abs=1e-12) and rows[0].method == "theirs"


def test_what_breaks_a_rule_has_no_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A customer left out, a rule broken, nothing found: each by its reason; the others keep theirs."""
    case = Published(tmp_path, "VRPL")
    lost = case.tours[0].pop()
    case.tours[1] = [node for node in case.tours[1] if node]
    case.tours[2] = []
    case.write()
    output = tmp_path / "ours.parquet"
    assert main(["import", str(case.archive), "--output", str(output)]) == 1
    first, second, total = capsys.readouterr().out.splitlines()
    assert first == f"instance 0: customer {lost} is not served; every customer must be served once"
    assert second.startswith("instance 1: route 1 ")
    assert ": 4 solutions, 1 right, 2 break a rule, 1 missing, mean cost" in total
    rows = solution_rows(read_solutions(output))
    assert [row.cost is None for row in rows] == [True, True, True, False]
    assert rows[2].reason == "the file holds no solution" and f"instance 1: {rows[1].reason}" == second
    assert main(["check", str(case.path), str(case.archive)]) == 1
    assert main(["check", str(case.path), str(output)]) == 0


@pytest.mark.parametrize("variant", ["VRPTW", "MDVRPL"])
def test_published_solutions(published: pa.Table, variant: str, tmp_path: Path) -> None:
    """Exact costs, and no cost where a window or limit is broken by more than a policy's clock may be off."""
    arrays = {name: array[:60] for name, array in generate_arrays(VARIANTS[variant], 50, 1000, 1234).items()}
    write_arrays(tmp_path / "50.npz", arrays)
    chosen = (pc.field("variant") == variant) & (pc.field("num_customers") == 50) & (pc.field("instance") < 60)
    theirs = published.filter(chosen & (pc.field("solver") == "pyvrp")).sort_by("instance")
    tours = theirs["actions"].to_pylist()
    actions = np.array([tour + [0] * (120 - len(tour)) for tour in tours])
    np.savez(tmp_path / "50_sol_pyvrp.npz", actions=actions, costs=-theirs["cost"].to_numpy(), time=600.0)
    broken = np.maximum(theirs["window_violation"].to_numpy(), theirs["limit_violation"].to_numpy()) > 1e-5
    output = tmp_path / "out.parquet"
    assert main(["import", str(tmp_path / "50_sol_pyvrp.npz"), "--output", str(output)]) == int(broken.any())
    costs = read_solutions(output)["cost"].to_numpy()
    np.testing.assert_array_equal(np.isnan(costs), broken)
    np.testing.assert_allclose(costs[~broken], theirs["exact_cost"].to_numpy()[~broken], rtol=0, atol=1e-9)


def listed(tour: list[int], num_depots: int, form: str) -> Any:
    if form == "actions":
        return tour
    with_depots = num_depots > 1 or form == "routes with depots"
    routes = actions_to_routes(tour, num_depots)
    return [[route.depot, *route.customers, route.depot] if with_depots else list(route.customers) for route in routes]


@pytest.mark.parametrize("variant", ["CVRP", "MDVRPTW"])
@pytest.mark.parametrize("form", ["actions", "routes", "routes with depots"])
def test_plain_parquet(variant: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Some instances in any order, without costs or times; a route may begin and end with its depot."""
    case = Published(tmp_path, variant)
    rows = [
        {"instance": index, form.partition(" ")[0]: listed(case.tours[index], case.instances.num_depots, form)}
        for index in (3, 1)
    ]
    pq.write_table(pa.Table.from_pylist(rows), plain := tmp_path / "mine.parquet")
    output = tmp_path / "plain.parquet"
    assert main(["import", str(plain), "--output", str(output), "--instances", str(case.path)]) == 0
    found = solution_rows(read_solutions(output))
    assert [(row.instance, row.method, row.seconds) for row in found] == [(1, "plain", None), (3, "plain", None)]
    assert [row.cost for row in found] == pytest.approx([case.costs[1], case.costs[3]], abs=1e-12)
    assert main(["check", str(case.path), str(plain)]) == 0
    assert "2 solutions, 2 right" in capsys.readouterr().out


def test_solutions_of_set_x(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the package where no instance lies beside; the gap is to its best known cost."""
    _, best_known, routes = load_set_x("X-n101-k25")
    write_sol(sol := tmp_path / "X-n101-k25.sol", routes, best_known)
    other, other_known, _ = load_set_x("X-n106-k14")
    write_sol(alone := tmp_path / "x-n106-k14.vrp.sol", [Route(0, (c,)) for c in range(1, 106)], 1.0)
    output = tmp_path / "hgs.parquet"
    assert main(["import", str(sol), str(alone), "--output", str(output)]) == 0
    first, second = read_library_rows(output)
    assert (first.instance, first.solver, first.cost, first.gap_percent) == ("X-n101-k25", "hgs", 27591, 0.0)
    assert (first.rounding, first.routes, first.num_customers) == ("rounded", 26, 100)
    places = other.coordinates
    cost = 2 * sum(math.floor(math.dist(places[0], place) + 0.5) for place in places[1:])
    assert (second.cost, second.gap_percent) == (cost, 100 * (cost - other_known) / other_known)
    assert main(["check", "set-x", str(output)]) == 0
    table = pq.read_table(output).replace_schema_metadata()
    wrong = table.set_column(table.schema.get_field_index("cost"), "cost", pa.array([27590.0, float(cost)]))
    pq.write_table(wrong, output)
    assert main(["check", "set-x", str(output)]) == 1
    assert "X-n101-k25: its stored cost is 27590.0, with rounded distances it is 27591" in capsys.readouterr().out


NEGATIVE: list[dict[str, Any]] = [
    {"routes": [[-1, 1, 2], [3]]},
    {"routes": [[-1], [1, 2], [3]]},
    {"routes": [[1, -9], [2, 3]]},
    {"actions": [-1, 1, 2, 0, 3]},
    {"actions": [1, 2, -1, 3]},
]


@pytest.mark.parametrize("tour", NEGATIVE)
@pytest.mark.parametrize("kind", ["CVRP", "MDVRP", "vrp", "cordeau"])
def test_negative_nodes_are_named(
    kind: str, tour: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are neither depots nor counted from the end."""
    plain, output, index = tmp_path / "mine.parquet", tmp_path / "out.parquet", kind.isupper()
    if index:
        instances = Published(tmp_path, kind).path
    else:
        (instances := tmp_path / "a.vrp").write_text(vrp("a") if kind == "vrp" else CORDEAU)
    pq.write_table(pa.Table.from_pylist([{"instance": 0 if index else "a"} | tour]), plain)
    for command in (["check", str(instances), str(plain)], ["import", str(plain), "--instances", str(instances)]):
        assert main([*command, *(["--output", str(output)] if command[0] == "import" else [])]) == 1
        assert re.match(r"(a|instance 0): node -\d does not exist", capsys.readouterr().out)
    assert pq.read_table(output)["cost"].to_pylist() == [None]


REFUSED: list[tuple[str, Any, str]] = [
    ("no.npz", None, "no.npz does not exist"),
    ("no.sol", None, "no.sol does not exist"),
    ("no.parquet", None, "no.parquet does not exist"),
    ("a.txt", b"1 2 3", "a.txt: unknown form; wanted is RouteFinder's *_sol_*.npz, a .sol or a Parquet"),
    ("a.parquet", b"1 2 3", "a.parquet is no complete Parquet file"),
    ("a.parquet", [{"instance": 0}], "needs instance and lists in routes or actions, it has instance"),
    ("a.parquet", [{"instance": 4, "actions": [1]}], "a.parquet solves instance 4, "),
    ("a.parquet", [{"instance": 0, "actions": [1]}] * 2, "solves instance 0 of "),
    ("a.parquet", [{"instance": 0, "actions": [1.5]}], "a.parquet: row 1 must list nodes, whole numbers, got [1.5]"),
    ("a.parquet", [{"instance": 0, "routes": [1]}], "a.parquet: row 1 must list nodes, whole numbers, got 1"),
    (
        "a.parquet",
        [{"instance": 0, "routes": 1}],
        "needs instance and lists in routes or actions, it has instance, routes",
    ),
    ("a.parquet", [{"instance": 0, "actions": [1], "cost": "3"}], "a.parquet: row 1 must state its cost as a number"),
    ("a.parquet", [{"instance": 0.5, "actions": [1]}], "row 1 must name its instance by a number or a name, got 0.5"),
    ("a.parquet", [{"instance": "X-n9", "actions": [1]}], "there is no instance 'X-n9' among the named instances"),
    ("a_sol_b.npz", {"locs": [1]}, "no archive of solutions, it lacks the array 'actions' and holds locs"),
    ("a_sol_b.npz", {"actions": [1.0]}, "actions must be whole numbers [instances, steps], got float64 [1]"),
    ("a_sol_b.npz", {"actions": [[1]], "costs": [1.0, 2.0]}, "costs must be numbers [1] to match actions"),
]


@pytest.mark.parametrize(("name", "content", "message"), REFUSED)
def test_refusals(name: str, content: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case, path, output = Published(tmp_path, "CVRP"), tmp_path / name, tmp_path / "out.parquet"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, list):
        pq.write_table(pa.Table.from_pylist(content), path)
    elif content is not None:
        arrays: dict[str, Any] = {key: np.array(value) for key, value in content.items()}
        np.savez(path, **arrays)
    assert main(["import", str(path), "--instances", str(case.path), "--output", str(output)]) == 2
    printed = capsys.readouterr().err
    assert message in printed and printed.startswith("polarvrp import: ") and len(printed.splitlines()) == 1
    assert not output.exists()


def test_contradictory_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case, output = Published(tmp_path, "CVRP"), str(tmp_path / "out.parquet")
    case.write()
    for words, message in (
        (["--output", str(case.archive)], "--output must end in .parquet"),
        (["--output", output, "--open"], "--open is for library files"),
        (["--output", output, "--instances", str(case.path), str(case.path)], "--instances must name one set, got 2"),
    ):
        assert main(["import", str(case.archive), *words]) == 2
        assert message in capsys.readouterr().err
    case.path.rename(tmp_path / "elsewhere.npz")
    assert main(["import", str(case.archive), "--output", output]) == 2
    assert "50_sol_hgs.npz solve? name it by --instances SET.npz" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["set", "library"])
def test_impossible_outputs_are_refused_before_the_check(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The solution of an instance that is not there would be found by the check."""
    instances, row = Published(tmp_path, "CVRP").path, {"instance": 99, "actions": [1]}
    if kind == "library":
        (instances := tmp_path / "a.vrp").write_text(vrp("a"))
        row["instance"] = "b"
    pq.write_table(pa.Table.from_pylist([row]), plain := tmp_path / "mine.parquet")
    (other := tmp_path / "other.parquet").write_text("my notes")
    (folder := tmp_path / "folder.parquet").mkdir()
    for output, message in (
        (tmp_path / "out.csv", "--output must end in .parquet"),
        (plain, "--output must name another file than the inputs"),
        (other, "other.parquet exists and does not say what it holds"),
        (folder, "folder.parquet is a folder"),
        (other / "out.parquet", "out.parquet cannot be written"),
    ):
        assert main(["import", str(plain), "--instances", str(instances), "--output", str(output)]) == 2
        assert message in capsys.readouterr().err
    assert other.read_text() == "my notes"


@pytest.mark.parametrize(
    ("variant", "routes", "message"),
    [
        ("CVRP", [[0, 1, 2, 0, 3]], "route 1 passes a depot on its way; list it as two routes"),
        ("MDVRP", [[3, 4], [0, 5]], "route 1 does not begin with its depot, which it must with several"),
        ("MDVRP", [[0, 3, 1]], "route 1 begins at depot 0 and ends at depot 1"),
    ],
)
def test_routes_that_cannot_be(
    variant: str, routes: list[list[int]], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = Published(tmp_path, variant)
    pq.write_table(pa.Table.from_pylist([{"instance": 0, "routes": routes}]), plain := tmp_path / "a.parquet")
    words = ["--instances", str(case.path), "--output", str(tmp_path / "out.parquet")]
    assert main(["import", str(plain), *words]) == 1
    assert f"instance 0: {message}" in capsys.readouterr().out
