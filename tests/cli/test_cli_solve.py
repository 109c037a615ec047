"""``polarvrp solve``: users' files of every form, good and bad, with a network and without."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import vrplib

from helpers.file_rights import as_ordinary_user, own_folder
from helpers.library_texts import CORDEAU, EXPLICIT, LAYOUTS, SOLOMON, TWINS, vrp
from polarvrp import machine
from polarvrp.cli.main import main
from polarvrp.config.model import ModelConfig
from polarvrp.library.solving import SolvedInstance, solve_library
from polarvrp.model.registry import build_policy
from polarvrp.model.saving import save_policy
from polarvrp.outputs import stated_subject
from polarvrp.problem.library_files import read_library
from polarvrp.problem.library_instances import Convention, LibraryInstance, Rounding
from polarvrp.problem.vrplib import read_sol
from polarvrp.solutions.library_rows import read_library_rows
from polarvrp.solvers.integers import IntegerInstance
from polarvrp.solvers.library_integers import library_integers
from polarvrp.study import shipped

FILES = TWINS | {"solomon": SOLOMON, "cordeau": CORDEAU, "open": vrp("mine", problem="OVRP")}
QUICK = ("--seconds", "0.05")

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _nothing_ships(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path / "nothing")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A file in the test's folder."""

    def write_text(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write_text


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained network."""
    folder = tmp_path_factory.mktemp("network")
    policy = build_policy(ModelConfig(width=32, heads=4, layers=1, feedforward_width=32), seed=0)
    save_policy(folder / "weights.safetensors", policy, {"run": "polarnet-ple-polar-n50-s0"})
    return folder


@pytest.mark.parametrize("with_network", [False, True])
@pytest.mark.parametrize("kind", FILES)
def test_every_form_is_solved_and_accepted(
    write: Write, tmp_path: Path, network: Path, capsys: pytest.CaptureFixture[str], kind: str, with_network: bool
) -> None:
    path, output = write(f"{kind}.vrp", FILES[kind]), tmp_path / "out"
    # The network gets a fifth of the time, which must be enough for a tour on a busy machine.
    model, seconds = (str(network), "1") if with_network else ("none", "0.2")
    assert main(["solve", str(path), "--model", model, "--output", str(output), "--seconds", seconds]) == 0
    said = capsys.readouterr().out
    assert main(["check", str(path), str(output / f"{kind}.sol")]) == 0
    (row,) = pq.read_table(output / "solutions.parquet").to_pylist()
    library, solution = read_library(path), read_sol(output / f"{kind}.sol")
    assert row["cost"] == pytest.approx(solution.cost) and row["distances"] == library.rounding
    assert row["variant"] in said and ("network:" in said) == with_network
    assert (row["network_cost"] is not None) == with_network
    foreign = vrplib.read_solution(str(output / f"{kind}.sol"))
    assert foreign["cost"] == pytest.approx(row["cost"])
    assert [tuple(route) for route in foreign["routes"]] == [route.customers for route in solution.routes]


def test_a_folder_goes_on_after_a_bad_file(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("set/a/X-n4-k2.vrp", TWINS["A"])
    write("set/b.vrp", "NAME : b\nTYPE : SDVRP\n")
    write("set/c.TXT", SOLOMON)
    write("set/d.vrp", vrp("d").replace("4 10\n", "4 11\n"))
    write("set/notes.md", "no instance")
    assert main(["solve", str(tmp_path / "set"), *QUICK, "--output", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert lines[0].startswith(f"polarvrp solve: {tmp_path}/set/b.vrp: TYPE SDVRP is not supported")
    assert "set/d.vrp: customer 3 cannot be served: a route to it alone has load 11, the capacity is 10" in lines[1]
    assert lines[2] == f"polarvrp solve: 2 of 4 files solved; bad: {tmp_path}/set/b.vrp, {tmp_path}/set/d.vrp"
    rows = pq.read_table(tmp_path / "out" / "solutions.parquet").to_pylist()
    assert [row["cost"] is None for row in rows] == [row["reason"] is not None for row in rows]
    assert [row["cost"] for row in rows] == [16, None, pytest.approx(5 + 3.6 + 1.4 + 5), None]
    solutions = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.sol"))
    assert solutions == ["a/X-n4-k2.sol", "c.sol"]


def test_a_folder_goes_on_after_a_file_that_is_too_large(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables of all pairs of 20,001 nodes find no room in many memories."""

    def in_short_memory(library: LibraryInstance) -> IntegerInstance:
        if library.name == "large":
            raise MemoryError("Unable to allocate 6.71 GiB")
        return library_integers(library)

    monkeypatch.setattr("polarvrp.library.improvement.library_integers", in_short_memory)
    write("set/a.vrp", vrp("large"))
    write("set/b.vrp", TWINS["A"])
    assert main(["solve", str(tmp_path / "set"), *QUICK, "--output", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"polarvrp solve: {tmp_path}/set/a.vrp: not enough memory for a file of this size"
    rows = pq.read_table(tmp_path / "out" / "solutions.parquet").to_pylist()
    reason = "not enough memory for a file of this size"
    assert [(row["cost"], row["reason"]) for row in rows] == [(None, reason), (16, None)]


def test_closed_folders_and_links_to_nothing_are_bad_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are solved; patterns and files in closed folders are as bad as the folder."""
    words = ["solve", *QUICK, "--model", "none", "--output", "out"]
    with own_folder() as folder:
        monkeypatch.chdir(folder)
        for name in ("good.vrp", "good/x.vrp", "unlisted/x.vrp", "unsearched/x.vrp"):
            Path("set", name).parent.mkdir(parents=True, exist_ok=True)
            Path("set", name).write_text(TWINS["A"])
        Path("set/gone.vrp").symlink_to("nowhere.vrp")
        Path("set/circle.vrp").symlink_to("circle.vrp")
        os.mkfifo("set/pipe.vrp")
        assert main([*words, "set/good.vrp"]) == 0  # imports what is then closed to an ordinary user
        with as_ordinary_user(folder):
            Path("set/unlisted").chmod(0o000)
            Path("set/unsearched").chmod(0o600)
            capsys.readouterr()
            assert main([*words, "set"]) == 2
            whole = capsys.readouterr().err.splitlines()
            assert main([*words, "set/unsearched/x.vrp", "set/good.vrp"]) == 2
            assert main([*words, "set/unsearched/*.vrp", "set/good.vrp"]) == 2
            named = capsys.readouterr().err.splitlines()
        monkeypatch.undo()
    bad = ["set/circle.vrp", "set/gone.vrp", "set/unlisted/*", "set/unsearched/x.vrp"]
    assert [line.removeprefix("polarvrp solve: ").split()[0] for line in whole[:-1]] == bad
    assert "Permission denied" in whole[2] and "Permission denied" in whole[3]
    assert whole[1].endswith("set/gone.vrp is a link to nothing; check the path")
    assert whole[-1] == f"polarvrp solve: 2 of 6 files solved; bad: {', '.join(bad)}"
    assert named[1] == named[3] == "polarvrp solve: 1 of 2 files solved; bad: set/unsearched/x.vrp"


def test_a_line_break_in_a_name_makes_no_second_line(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("set/a\nb.vrp", "nothing")
    write("set/c\x1b.vrp", TWINS["A"])
    assert main(["solve", str(tmp_path / "set"), *QUICK, "--model", "none"]) == 2
    said = capsys.readouterr()
    first, last = said.err.splitlines()
    assert r"set/a\nb.vrp: unknown format" in first and last.endswith(r"set/a\nb.vrp")
    assert r"set/c\x1b.vrp: CVRP" in said.out and "\x1b" not in said.out


def test_a_name_in_another_encoding_is_refused_before_anything_is_solved(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes of Latin-1, as old archives unpack: text in Parquet cannot hold them. Without a table they do no harm."""
    path, output = write(os.fsdecode(b"M\xfcnster.vrp"), TWINS["A"]), tmp_path / "out"
    words = ["solve", str(path), str(write("a.vrp", TWINS["A"])), *QUICK, "--model", "none"]
    assert main([*words, "--output", str(output)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        rf"polarvrp solve: {tmp_path}/M\udcfcnster.vrp has a name that is no UTF-8, as solutions.parquet needs it; "
        "rename it"
    )
    assert not output.exists()
    assert main(words) == 0
    monkeypatch.chdir(write(os.fsdecode(b"M\xfcnster/b.vrp"), TWINS["A"]).parent)
    capsys.readouterr()
    assert main(["solve", "b.vrp", *QUICK, "--model", "none", "--output", str(output)]) == 2
    assert rf"{tmp_path}/M\udcfcnster/b.vrp has a name that is no UTF-8" in capsys.readouterr().err
    assert not output.exists()


def test_rows_of_other_files_stay(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whichever way a file is named, it has one row; those of files that a call does not name are as they were."""
    one = write("set/a/one.vrp", TWINS["A"])
    write("set/b/one.vrp", SOLOMON)
    output = tmp_path / "out"
    table = output / "solutions.parquet"
    before: list[tuple[str, dict[str, object]]] = []
    for name, said in ((one.parents[1], 2), (one, 2), (write("two.vrp", TWINS["A"]), 3), (one.parent, 3)):
        assert main(["solve", str(name), *QUICK, "--model", "none", "--output", str(output)]) == 0
        assert f"{table}: {said} rows" in capsys.readouterr().out
        rows = {row.pop("file"): row for row in pq.read_table(table).to_pylist()}
        assert len(rows) == said and all(rows[file] == row for file, row in before if not file.startswith(str(name)))
        before = list(rows.items())
    assert pq.read_table(table).num_rows == 3


def test_rows_are_written_before_the_next_file_is_solved(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that a process that is killed loses the file in work and no other."""
    table, seen = tmp_path / "out" / "solutions.parquet", list[int]()

    def solve_looking(library: LibraryInstance, *options: Any) -> SolvedInstance:
        seen.append(pq.read_table(table).num_rows if table.exists() else 0)
        return solve_library(library, *options)

    monkeypatch.setattr("polarvrp.library.solving.solve_library", solve_looking)
    files = [write("a.vrp", TWINS["A"]), write("bad.vrp", "nothing"), write("b.vrp", TWINS["A"])]
    assert main(["solve", *map(str, files), *QUICK, "--model", "none", "--output", str(tmp_path / "out")]) == 2
    assert seen == [0, 2]
    assert [row["file"] for row in pq.read_table(table).to_pylist()] == [str(path) for path in files]
    assert [line for line in capsys.readouterr().out.splitlines() if "parquet" in line] == [f"{table}: 3 rows"]


def test_a_dollar_in_a_name_is_drawn(write: Write, tmp_path: Path) -> None:
    write("set/a.vrp", vrp(r"a$\frac{$"))
    write("set/b.vrp", vrp("b"))
    assert main(["solve", str(tmp_path / "set"), *QUICK, "--plot", "--output", str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out").glob("*.png")} == {"a.png", "b.png"}


def test_patterns_and_names(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = write("a/X-n4-k2.vrp", TWINS["A"]), write("b/X-n4-k2.vrp", TWINS["A"])
    assert main(["solve", f"{tmp_path}/*/X*.vrp", *QUICK]) == 2
    assert f"{one} and {two} would share the name X-n4-k2" in capsys.readouterr().err
    assert main(["solve", f"{tmp_path}/a/*.vrp", *QUICK]) == 0
    write("c/X-n4-k2.sol", "Route #1: 1\n")
    write("c/Y-n4-k2.SOL", "Route #1: 1\n")
    for pattern in ("*.vrp", "*.sol", "*"):
        assert main(["solve", f"{tmp_path}/c/{pattern}", *QUICK]) == 2
        assert f"no instance matches {tmp_path}/c/{pattern}; check the pattern" in capsys.readouterr().err
    assert main(["solve", str(tmp_path / "c.vrp"), *QUICK]) == 2
    assert "c.vrp does not exist" in capsys.readouterr().err


def test_files_with_one_name_inside_are_checked_apart(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each by its own row of the table, since what is best of one costs something else of the other."""
    files = [write("set/a.vrp", vrp("same")), write("set/b.vrp", vrp("Same").replace("-2.5 0", "-25 0"))]
    assert main(["solve", *map(str, files), *QUICK, "--output", str(tmp_path / "out")]) == 0
    for path in files:
        capsys.readouterr()
        assert main(["check", str(path), str(tmp_path / "out" / "solutions.parquet")]) == 0
        assert "1 rows, 1 right, 0 wrong" in capsys.readouterr().out


def test_more_routes_than_the_file_has_vehicles_are_said(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """Of all depots together: the loads of 6 and 10 need two vehicles, wherever they start; 0 is no statement."""
    text = vrp("t", "VEHICLES : 1\n", problem="MDVRP").replace(" 1\n -1", " 1\n 2\n -1").replace("2 4\n", "2 0\n")
    for vehicles, said in ((1, True), (2, False), (0, False)):
        path = write("t.vrp", text.replace("VEHICLES : 1", f"VEHICLES : {vehicles}"))
        assert main(["solve", str(path), *QUICK]) == 0
        printed = capsys.readouterr().out
        assert "2 routes" in printed
        assert ("which is no bound here" in printed) == ("(the file states 1 vehicles" in printed) == said


def test_gap_to_the_solution_beside(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Priced anew: a wrong cost is said, an infeasible solution gives no gap."""
    path = write("A-n4-k2.vrp", TWINS["A"])
    for text, end in (
        ("Route #1: 1 2\nRoute #2: 3\nCost 16\n", "gap 0.000 % to {} (16)"),
        ("Route #1: 1\nRoute #2: 2\nRoute #3: 3\nCost 15\n", "gap -11.111 % to {} (18, it states 15)"),
        ("Route #1: 1 2 3\nCost 3\n", "no gap: {} is unusable, route 1 has load 20, the capacity is 10"),
    ):
        beside = write("A-n4-k2.sol", text)
        assert main(["solve", str(path), *QUICK]) == 0
        assert capsys.readouterr().out.splitlines()[-1].endswith(end.format(beside))
    assert main(["solve", str(path), *QUICK, "--output", str(tmp_path)]) == 2
    assert "--output must name another file than the inputs" in capsys.readouterr().err


def test_results_are_read_as_they_were_counted(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exact distances and open routes of a file that says neither: by its .sol and by its table, unless options say
    otherwise."""
    path, imported = write("A-n4-k2.vrp", TWINS["A"]), tmp_path / "imported.parquet"
    assert main(["solve", str(path), *QUICK, "--distances", "exact", "--open", "--output", str(tmp_path / "out")]) == 0
    cost = 2.5 + math.sqrt(2) + math.sqrt(13)  # 3; 2 and 1
    for name in ("A-n4-k2.sol", "solutions.parquet"):
        solution = str(tmp_path / "out" / name)
        assert main(["check", str(path), solution]) == 0
        assert main(["import", solution, "--instances", str(path), "--output", str(imported), "--method", "us"]) == 0
        (row,) = read_library_rows(imported)
        assert (row.cost, row.rounding, row.open_routes) == (pytest.approx(cost, abs=1e-9), "exact", True)
        assert main(["import", str(imported), "--instances", str(path), "--output", f"{tmp_path}/again.parquet"]) == 0
        assert main(["check", str(path), f"{tmp_path}/again.parquet"]) == 0
        assert main(["check", str(path), solution, "--distances", "rounded"]) == 1
        assert "with rounded distances it is 8" in capsys.readouterr().out
    assert main(["plot", str(path), str(tmp_path / "out" / "A-n4-k2.sol"), "--output", f"{tmp_path}/a.svg"]) == 0
    assert "OVRP" in (tmp_path / "a.svg").read_text()


def test_a_wrong_cost_in_our_own_files_is_wrong(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out, imported = write("A-n4-k2.vrp", TWINS["A"]), tmp_path / "out", tmp_path / "imported.parquet"
    assert main(["solve", str(path), *QUICK, "--output", str(out)]) == 0
    sol, table = out / "A-n4-k2.sol", pq.read_table(out / "solutions.parquet").replace_schema_metadata()
    sol.write_text(sol.read_text().replace("Cost 16", "Cost 15"))
    wrong = table.set_column(table.schema.get_field_index("cost"), "cost", pa.array([15.0]))
    pq.write_table(wrong, out / "solutions.parquet")
    for solution in (sol, out / "solutions.parquet"):
        assert main(["check", str(path), str(solution)]) == 1
        assert main(["import", str(solution), "--instances", str(path), "--output", str(imported)]) == 1
        said = capsys.readouterr().out
        assert said.count("its stored cost is 15, with rounded distances it is 16") == 2
        assert read_library_rows(imported)[0].cost is None


def test_our_own_solutions_state_every_digit(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Others round to cents, which is right in a file that does not say that it is ours."""
    path = write("A-n4-k2.vrp", TWINS["A"])
    assert main(["solve", str(path), *QUICK, "--distances", "exact", "--output", str(tmp_path / "out")]) == 0
    sol = tmp_path / "out" / "A-n4-k2.sol"
    sol.write_text(re.sub(r"Cost (\d+\.\d\d)\d*", r"Cost \1", sol.read_text()))
    assert main(["check", str(path), str(sol)]) == 1
    assert "its stored cost is 15.01, with exact distances it is 15.019" in capsys.readouterr().out
    sol.write_text(re.sub(r"Cost .*\nComment.*", "Cost 15.02", sol.read_text()))
    assert main(["check", str(path), str(sol), "--distances", "exact"]) == 0


def test_no_gap_to_a_known_cost_of_0(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """Everybody lives at the depot; the next file is solved too."""
    home = EXPLICIT.format("LOWER_ROW", "0 0 0 0 0 0")
    paths = [str(write("home.vrp", home)), str(write("a.vrp", TWINS["A"]))]
    beside = write("home.sol", "Route #1: 1\nRoute #2: 2\nRoute #3: 3\nCost 0\n")
    assert main(["solve", *paths, *QUICK]) == 0
    said = capsys.readouterr().out.splitlines()
    answers = [line for line in said if line.startswith("  cost ")]
    assert answers[0].endswith(f"; no gap: the cost of {beside} is 0") and answers[1].startswith("  cost 16, ")
    assert main(["solve", *paths, *QUICK, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["gap_percent"] is None


def test_a_folder_is_solved_into_itself_again(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Our own solutions are written again, others' and those of another instance never."""
    (one := write("set/a/x.vrp", TWINS["A"])), write("set/y.vrp", TWINS["A"])
    words = ["solve", str(tmp_path / "set"), *QUICK, "--output", str(tmp_path / "set")]
    for distances in ("rounded", "exact"):
        assert main([*words, "--distances", distances]) == 0
        assert read_sol(one.with_suffix(".sol")).convention == Convention(Rounding(distances), open_routes=False)
    ours = one.with_suffix(".sol").read_text()
    for content in (
        "Route #1: 1 2\nRoute #2: 3\nCost 16\n",
        ours.replace('"x"', '"other"'),
        ours.replace("polarvrp", ""),
    ):
        one.with_suffix(".sol").write_text(content)
        capsys.readouterr()
        assert main(words) == 2
        assert "--output must name another file than the inputs" in capsys.readouterr().err
        assert one.with_suffix(".sol").read_text() == content


def test_results_of_another_file_of_the_same_name_stay(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Solution and picture, each by itself."""
    one, other, output = write("a/x.vrp", TWINS["A"]), write("b/x.vrp", vrp("other")), tmp_path / "out"
    words = ["solve", *QUICK, "--model", "none", "--plot", "--output", str(output)]
    assert main([*words, str(one)]) == 0
    for name in ("x.sol", "x.png"):
        before = {path: path.read_bytes() for path in output.iterdir()}
        capsys.readouterr()
        assert main([*words, str(other)]) == 2
        assert capsys.readouterr().err.splitlines() == [
            f"polarvrp solve: {output / name} is of {one}, not of {other}; choose another --output or rename the file"
        ]
        assert {path: path.read_bytes() for path in output.iterdir()} == before
        (output / name).unlink()
    assert main([*words, str(other)]) == 0


def test_a_file_that_was_edited_or_moved_is_solved_again(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is any of its name where results state no file, as those of earlier versions, or where the table is gone."""
    one, output = write("a/x.vrp", TWINS["A"]), tmp_path / "out"
    words, sol = ["solve", *QUICK, "--model", "none", "--output", str(output)], output / "x.sol"
    assert main([*words, str(one)]) == 0
    one.write_text(vrp("edited"))
    monkeypatch.chdir(one.parent)
    assert main([*words, one.name]) == 0
    assert main([*words, str(write("b/x.vrp", vrp("edited")))]) == 0
    assert (stated_subject(sol) or {})["file"] == "../b/x.vrp"
    another = write("c/x.vrp", vrp("another"))
    assert main([*words, str(another)]) == 2
    sol.write_text(re.sub(r'"(file|sha256)": "[^"]*", ', "", sol.read_text()))
    assert stated_subject(sol) == {"solution": "x", "distances": "rounded", "open": False}
    assert main([*words, str(another)]) == 0
    assert main([*words, str(one)]) == 2
    (output / "solutions.parquet").unlink()
    assert main([*words, str(one)]) == 0


def test_what_the_network_never_saw_is_said(write: Write, network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix = EXPLICIT.format("FULL_MATRIX", LAYOUTS["FULL_MATRIX"].replace("0 10 20 30", "0 11 20 30", 1))
    assert main(["solve", str(write("m.vrp", matrix)), "--model", str(network), *QUICK]) == 0
    said = capsys.readouterr().out
    for phrase in ("CVRP (its file does not say", "3 customers (trained on 50)", "an asymmetric matrix"):
        assert phrase in said


def test_a_network_on_the_cpu_keeps_freed_memory(
    write: Write, network: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept: list[str] = []
    monkeypatch.setattr(machine, "keep_freed_memory", lambda: kept.append("kept"))
    path = str(write("a.vrp", TWINS["A"]))
    assert main(["solve", path, "--model", "none", *QUICK]) == 0
    assert kept == []
    assert main(["solve", path, "--model", str(network), *QUICK]) == 0
    assert kept == ([] if torch.cuda.is_available() else ["kept"])


def test_json_holds_the_routes(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(write("a.vrp", TWINS["A"])), str(write("bad.vrp", "nothing"))]
    assert main(["solve", *paths, *QUICK, "--json"]) == 2
    good, bad = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert good["cost"] == 16 and sorted(c for route in good["routes"] for c in route["customers"]) == [1, 2, 3]
    assert bad["routes"] == [] and "unknown format" in bad["reason"]
    assert bad.keys() == good.keys() and bad["cost"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seconds", "0"), "--seconds must be above 0"),
        (("--seconds", "nan"), "--seconds must be above 0"),
        (("--seed", "-1"), "--seed must be in"),
        (("--plot",), "--plot needs --output"),
        (("--model", "nowhere"), "no model 'nowhere'"),
        (("--model", "pretrained-n7"), "ships no model 'pretrained-n7'"),
    ],
)
def test_bad_options(write: Write, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str) -> None:
    assert main(["solve", str(write("a.vrp", TWINS["A"])), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("polarvrp solve: ") and message in line


def test_interrupted_between_two_files(tmp_path: Path) -> None:
    """Ctrl-C ends with 130 and one line; what was finished is complete, nothing else is there."""
    for name in ("X-n101-k25", "X-n106-k14"):
        with zipfile.ZipFile(Path(str(resources.files("polarvrp").joinpath("data", "set_x.zip")))) as archive:
            archive.extract(f"{name}.vrp", tmp_path)
    # What a shell starts in the background ignores the signal, tests included; here nothing does.
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [
        sys.executable,
        "-c",
        f"{listening}; from polarvrp.cli.main import run; run()",
        "solve",
        str(tmp_path),
        "--seconds",
        "2",
        "--output",
        str(tmp_path / "o"),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    first = tmp_path / "o" / "X-n101-k25.sol"
    while not first.exists() and process.poll() is None:
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors.splitlines()) == (130, ["polarvrp solve: interrupted"])
    (row,) = pq.read_table(tmp_path / "o" / "solutions.parquet").to_pylist()
    assert row["cost"] == read_sol(first).cost
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["X-n101-k25.sol", "solutions.parquet"]
