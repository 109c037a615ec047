"""``polarvrp reference``: stretches, merging, warm starts, best of, and bad input in one line."""

import math
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.library_texts import CORDEAU, EXPLICIT, LAYOUTS, SOLOMON, vrp
from polarvrp.cli.main import main
from polarvrp.problem.archives import write_arrays
from polarvrp.problem.datasets import read_instances
from polarvrp.problem.numpy_generator import generate_arrays
from polarvrp.problem.tours import Route, check_tour
from polarvrp.problem.variants import VARIANTS
from polarvrp.problem.vrplib import write_sol
from polarvrp.solutions.library_rows import read_library_rows
from polarvrp.solutions.solutions import read_solutions, solution_rows
from polarvrp.solvers import library_solve, versions

SOLVE = ["--solver", "pyvrp", "--seconds", "20", "--iterations", "20"]


@pytest.fixture(scope="module")
def instances_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sets") / "MDVRPB-n10.npz"
    write_arrays(path, generate_arrays(VARIANTS["MDVRPB"], 10, 5, seed=3))
    return path


def test_stretches_merge_into_the_whole(
    instances_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stretches = [("0", "2"), ("2", "50")]
    for start, count in stretches:
        selection = ["--start", start, "--count", count, "--workers", "2"]
        output = str(tmp_path / f"{start}.parquet")
        assert main(["reference", str(instances_path), *SOLVE, *selection, "--output", output]) == 0
    merged, whole = tmp_path / "merged.parquet", tmp_path / "whole.parquet"
    files = [str(tmp_path / "2.parquet"), str(tmp_path / "0.parquet")]
    assert main(["reference", "--merge", *files, "--output", str(merged)]) == 0
    assert main(["reference", str(instances_path), *SOLVE, "--output", str(whole)]) == 0
    columns = ["variant", "num_customers", "instance", "solver", "cost", "actions", "iterations", "seed", "scale"]
    assert read_solutions(merged).select(columns) == read_solutions(whole).select(columns)
    assert capsys.readouterr().out.splitlines()[-1] == f"{whole}: 5 instances"


def test_warm_start_and_best_of(instances_path: Path, tmp_path: Path) -> None:
    good, warm, ortools, best = (tmp_path / f"{name}.parquet" for name in ("good", "warm", "ortools", "best"))
    solve = ["reference", str(instances_path)]
    assert main([*solve, *SOLVE, "--first", "2", "--output", str(good)]) == 0
    assert main([*solve, *SOLVE, "--first", "3", "--warm-start", str(good), "--output", str(warm)]) == 0
    others = ["--solver", "ortools", "--seconds", "20", "--iterations", "5"]
    assert main([*solve, *others, "--output", str(ortools)]) == 0
    assert main([*solve, "--best-of", str(good), str(warm), str(ortools), "--output", str(best)]) == 0
    instances = read_instances(instances_path)
    candidates = [row for path in (good, warm, ortools) for row in solution_rows(read_solutions(path))]
    for row in solution_rows(read_solutions(best)):
        assert row.cost == min(
            other.cost for other in candidates if other.instance == row.instance and other.cost is not None
        )
        assert check_tour(instances, row.instance, row.actions).first_problem is None


LIBRARY = {
    "P-n4-k2.vrp": (vrp("P-n4-k2"), 16),  # 5 + 4 + 1 and twice 2.5, rounded
    "R199.txt": (SOLOMON, 15.0),
    "p99.txt": (CORDEAU, 4 + 2 * math.sqrt(50)),  # each customer from the depot that is nearest
    "matrix.vrp": (EXPLICIT.format("LOWER_ROW", LAYOUTS["LOWER_ROW"]), 105),
}


@pytest.mark.parametrize("solver", ["pyvrp", "ortools"])
def test_library_files(solver: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Optimal by hand, priced by the convention of each, accepted by check; the gap is to the .sol beside the file."""
    for name, (text, _) in LIBRARY.items():
        (tmp_path / name).write_text(text)
    write_sol(tmp_path / "P-n4-k2.sol", [Route(0, (1,)), Route(0, (2,)), Route(0, (3,))], 18)
    files, output = [str(tmp_path / name) for name in LIBRARY], tmp_path / "out.parquet"
    effort = ["--solver", solver, "--seconds", "20", "--iterations", "30", "--workers", "2"]
    assert main(["reference", *files, *effort, "--output", str(output)]) == 0
    rows = read_library_rows(output)
    assert [row.cost for row in rows] == pytest.approx([cost for _, cost in LIBRARY.values()])
    assert {row.solver for row in rows} == {solver} and rows[0].gap_percent == pytest.approx(100 * (16 - 18) / 18)
    assert capsys.readouterr().out.startswith("P-n4-k2: 16 (rounded distances), gap -11.111 % to 18\n")
    for file in files:
        assert main(["check", file, str(output)]) == 0


def test_wrong_rows_of_library_files_are_named_although_the_file_was_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 1; if no row of the instance is wrong the file is refused all the same."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.vrp").write_text(vrp(name))
    first, second, output = (str(tmp_path / name) for name in ("a.vrp", "b.vrp", "out.parquet"))
    assert main(["reference", first, second, *SOLVE, "--output", output]) == 0
    table, changed = pq.read_table(output), "its content was changed after it was written"

    def found(file: str, **columns: list[Any]) -> tuple[int, str]:
        written = table
        for name, values in columns.items():
            place = table.schema.get_field_index(name)
            written = written.set_column(place, table.schema.field(place), pa.array(values, table.schema.types[place]))
        pq.write_table(written, output)
        capsys.readouterr()
        code = main(["check", file, output])
        return code, "".join(capsys.readouterr())

    for cost in (15.0, math.nan):
        code, said = found(first, cost=[cost, 16])
        assert code == 1 and f"a (pyvrp): its stored cost is {cost:.15g}, with rounded distances it is 16" in said
    code, said = found(first, actions=[[1, 2, 3], [1, 2, 0, 3]])
    assert code == 1 and "a (pyvrp): route 1 has load 20, the capacity is 10" in said
    for file, columns in ((second, {"cost": [15.0, 16]}), (first, {"seconds": [0.0, 0.0]})):
        code, said = found(file, **columns)
        assert code == 2 and changed in said
    code, said = found(first, actions=[[1, None, 3], [1, 2, 0, 3]])
    assert code == 2 and "a has a tour with a missing node" in said
    plain = table.select(["instance", "actions"])
    for actions, code in (([[1, 2], [3]], 1), ([[1, 0, 2, 0, 3], [3]], 2)):
        held = plain.set_column(1, plain.schema.field(1), pa.array(actions, plain.schema.types[1]))
        pq.write_table(held, output)
        capsys.readouterr()
        assert main(["check", first, output]) == code
        assert ("a: customer 3 is not served" if code == 1 else changed) in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Route #1: x\nCost 16\n", "is unusable, {}: line 1 must list customers"),
        ("Route #1: 1 2 3\nCost 16\n", "is unusable, route 1 has load 20, the capacity is 10"),
        ("Route #1: 1\nCost 16\n", "is unusable, customer 2 is not served"),
    ],
)
def test_a_spoiled_solution_beside_a_file_gives_no_gap(
    text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path := tmp_path / "P-n4-k2.vrp").write_text(vrp("P-n4-k2"))
    (beside := tmp_path / "P-n4-k2.sol").write_text(text)
    effort = ["--solver", "pyvrp", "--seconds", "20", "--iterations", "5", "--output", str(tmp_path / "out.parquet")]
    assert main(["reference", str(path), *effort]) == 0
    wanted = f"P-n4-k2: 16 (rounded distances); no gap: {beside} {why.format(beside)}"
    assert capsys.readouterr().out.startswith(wanted)


def test_two_depots_have_a_fleet_each(tmp_path: Path) -> None:
    """Customers at 1 and 9, depots at 0 and 10: back and forth twice, or there twice if routes are open."""
    text = "2 2 2 2\n0 1\n0 1\n1 1 0 0 1 1 2 1 2\n2 9 0 0 1 1 2 1 2\n3 0 0 0 0 0 0\n4 10 0 0 0 0 0\n"
    (path := tmp_path / "p98.txt").write_text(text)
    for solver, (options, cost) in product(("pyvrp", "ortools"), (([], 4), (["--open"], 2))):
        words = ["reference", str(path), *options, "--solver", solver, "--seconds", "20", "--iterations", "5"]
        output = tmp_path / f"{solver}-{cost}.parquet"
        assert main([*words, "--output", str(output)]) == 0
        (row,) = read_library_rows(output)
        assert row.cost == cost and {0, 1} <= set(row.actions) and row.routes == 2


def test_library_files_without_a_solution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A customer out of reach, rules that OR-Tools' model does not know."""
    (tmp_path / "a.vrp").write_text(vrp("far", "DISTANCE : 9\n"))
    (tmp_path / "b.vrp").write_text(vrp("CMT6", "DISTANCE : 40\nSERVICE_TIME : 10\n"))
    words = [str(tmp_path / "a.vrp"), str(tmp_path / "b.vrp"), "--output", str(tmp_path / "out.parquet")]
    assert main(["reference", *words, "--solver", "ortools", "--seconds", "20", "--iterations", "5"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("far: no solution, customer 1 cannot be served: a route to it alone has length 10")
    assert second == "CMT6: no solution, the model for OR-Tools knows no durations and no late opening; use pyvrp"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{vrp}", "--first", "1"], "--first is for sets; leave it out for library files"),
        (["{vrp}", "--hard-limit", "0"], "the hard limit must be above 0 seconds, got 0.0"),
        (["{vrp}", "{vrp}"], "files must be of different instances"),
        (["{npz}", "{npz}"], "one set at a time, got 2; library files may be several"),
        (["{npz}", "--open"], "--open is for library files"),
        (["{none}"], "none.vrp does not exist"),
    ],
)
def test_library_files_and_sets_have_options_of_their_own(
    words: list[str], message: str, instances_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path := tmp_path / "a.vrp").write_text(vrp("a"))
    (other := tmp_path / "b.vrp").write_text(vrp("a"))
    places = {"npz": str(instances_path), "none": str(tmp_path / "none.vrp")}
    named = iter((str(path), str(other)))
    given = [next(named) if word == "{vrp}" else word.format(**places) for word in words]
    assert main(["reference", *given, *SOLVE, "--output", str(tmp_path / "out.parquet")]) == 2
    assert message in capsys.readouterr().err


def test_another_release_is_refused_before_library_files_are_solved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (path := tmp_path / "a.vrp").write_text(vrp("a"))
    monkeypatch.setattr(versions, "version", lambda name: "0.11.0")
    monkeypatch.setattr(library_solve, "WorkerPool", None)  # nobody is set to work
    assert main(["reference", str(path), *SOLVE, "--output", str(tmp_path / "out.parquet")]) == 2
    assert "pyvrp 0.11.0 is installed, 0.14.x is needed" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]


def test_instances_without_a_solution_do_not_fail_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = generate_arrays(VARIANTS["OVRPTW"], 10, 3, seed=3)
    arrays["demand_linehaul"][1, 4] = 2.0
    write_arrays(tmp_path / "set.npz", arrays)
    output = tmp_path / "out.parquet"
    assert main(["reference", str(tmp_path / "set.npz"), *SOLVE, "--output", str(output)]) == 0
    assert capsys.readouterr().out == f"{output}: 3 instances, 1 of them without a solution\n"
    assert "customer 5: demand 2 exceeds" in str(solution_rows(read_solutions(output))[1].reason)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{set}", "--solver", "pyvrp"], "needs --solver pyvrp or ortools and --seconds"),
        (["{set}", "--solver", "pyvrp", "--seconds", "0"], "seconds must be above 0"),
        (["{set}", *SOLVE, "--first", "6"], "holds 5 instances, asked for 0 up to 6"),
        (["{set}", *SOLVE, "--first", "0"], "asked for 0 up to 0"),
        (["{set}", *SOLVE, "--start", "5", "--count", "9"], "asked for 5 up to 5"),
        (["{set}", *SOLVE, "--start", "1", "--count", "0"], "asked for 1 up to 1"),
        (["{set}", *SOLVE, "--first", "1", "--count", "1"], "either --first, or --start and --count"),
        (["{set}", *SOLVE, "--workers", "0"], "workers must be at least 1"),
        (["{set}", *SOLVE, "--hard-limit", "0"], "the hard limit must be above 0 seconds"),
        (["missing.npz", *SOLVE], "missing.npz"),
        ([], "which instances"),
        # options of solving beside work that solves nothing
        (["--merge", "a.parquet", "--seconds", "5"], "--merge solves nothing; leave --seconds out"),
        (["--merge", "a.parquet", "--workers", "2", "--seed", "0"], "--merge solves nothing; leave --workers --seed"),
        (["{set}", "--best-of", "a.parquet", "--solver", "pyvrp"], "--best-of solves nothing; leave --solver out"),
        (["{set}", "--best-of", "a.parquet", "--first", "1"], "--best-of solves nothing; leave --first out"),
        (["--best-of", "a.parquet", "--merge", "b.parquet"], "give either --merge or --best-of"),
        (["{set}", "--merge", "a.parquet"], "--merge takes no set of instances"),
        (["--merge", "missing.parquet"], "missing.parquet does not exist"),
        (["{set}", *SOLVE, "--warm-start", "missing.parquet"], "missing.parquet does not exist"),
    ],
)
def test_bad_input_ends_with_one_line(
    instances_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    output = tmp_path / "out.parquet"
    words = [word.format(set=instances_path) for word in arguments]
    assert main(["reference", *words, "--output", str(output)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("polarvrp reference: ")
    assert error.count("\n") == 1
    assert message in error
    assert list(tmp_path.iterdir()) == []


WITHOUT_HEAVY_IMPORTS = """
import sys
from polarvrp.cli.main import main
if __name__ == "__main__":
    assert main(sys.argv[1:]) == 0
    print([name for name in ("torch", "pandas") if name in sys.modules])
"""


def test_the_command_loads_neither_torch_nor_pandas(instances_path: Path, tmp_path: Path) -> None:
    script = tmp_path / "command.py"
    script.write_text(WITHOUT_HEAVY_IMPORTS)
    arguments = ["reference", str(instances_path), *SOLVE, "--first", "1", "--output", str(tmp_path / "out.parquet")]
    finished = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=True)
    assert finished.stdout.splitlines()[-1] == "[]"
