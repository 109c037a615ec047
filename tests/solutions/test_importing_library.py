"""Others' solutions of library files: which instance each row is of, how its routes are listed, what is best known."""

import math
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.library_texts import CORDEAU, SOLOMON, vrp
from polarvrp.cli.main import main
from polarvrp.problem.tours import Route
from polarvrp.problem.vrplib import write_sol
from polarvrp.solutions.library_rows import read_library_rows


def test_solutions_of_library_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the convention of their sets or an option; routes without depots begin at the cheapest one."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "CMT99.vrp").write_text(vrp("CMT99"))
    (tmp_path / "files" / "p99.txt").write_text(CORDEAU)
    rows = [{"instance": "cmt99", "routes": [[1, 2], [3]]}, {"instance": "p99", "routes": [[2], [3], [4]]}]
    pq.write_table(pa.Table.from_pylist(rows), plain := tmp_path / "mine.parquet")
    output, folder = tmp_path / "out.parquet", tmp_path / "files"
    assert main(["import", str(plain), "--instances", str(folder), "--output", str(output)]) == 0
    twin, several = read_library_rows(output)
    legs = 5 + math.sqrt(13) + math.sqrt(2) + 2.5 + 2.5
    assert (twin.cost, twin.length, twin.rounding, twin.gap_percent) == (legs, legs, "exact", None)
    assert several.cost == pytest.approx(4 + 2 * math.sqrt(50))
    assert several.actions == (0, 2, 1, 3, 0, 4)
    assert main(["check", str(folder / "CMT99.vrp"), str(output)]) == 0
    assert main(["check", str(folder / "p99.txt"), str(output)]) == 0
    assert main(["check", str(folder / "p99.txt"), str(plain)]) == 0
    assert main(["check", str(folder / "CMT99.vrp"), str(output), "--distances", "rounded"]) == 1
    assert "with rounded distances it is 16" in capsys.readouterr().out
    rounded = ["--instances", str(folder), "--distances", "rounded", "--open"]
    assert main(["import", str(plain), *rounded, "--output", str(output)]) == 0
    twin, several = read_library_rows(output)
    assert (twin.cost, twin.rounding, twin.open_routes, several.cost) == (12.0, "rounded", True, 9.0)
    assert main(["check", str(folder / "CMT99.vrp"), str(output)]) == 0


@pytest.mark.parametrize("routes", [[[1, 2], [3]], [[0, 1, 2], [3]], [[1, 2, 0], [3, 0]], [[0, 1, 2, 0], [0, 3, 0]]])
def test_routes_of_library_files_may_name_their_depot_at_either_end(
    routes: list[list[int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (instance := tmp_path / "a.vrp").write_text(vrp("a"))
    pq.write_table(pa.Table.from_pylist([{"instance": "a", "routes": routes}]), plain := tmp_path / "mine.parquet")
    assert main(["check", str(instance), str(plain)]) == 0
    assert "1 solutions, 1 right, 0 break a rule" in capsys.readouterr().out


def test_check_says_how_far_stated_costs_of_library_files_are_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are others' claims, so nothing is wrong; what lists no routes is missing."""
    (instance := tmp_path / "a.vrp").write_text(vrp("a"))
    rows = [
        {"instance": "a", "routes": [[1, 2], [3]], "cost": 15.5},
        {"instance": "A", "routes": [[1], [2], [3]], "cost": None},
        {"instance": "a", "routes": None, "cost": 3.0},
    ]
    pq.write_table(pa.Table.from_pylist(rows), plain := tmp_path / "mine.parquet")
    assert main(["check", str(instance), str(plain)]) == 0
    wanted = (
        "3 solutions, 2 right, 0 break a rule, 1 missing, mean cost 17.000000, stated costs are off by at most 0.5\n"
    )
    assert capsys.readouterr().out == f"{plain}: {wanted}"


def test_instances_are_found_by_the_name_inside_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Our files call an instance as it calls itself; others call it either way."""
    (folder := tmp_path / "files").mkdir()
    (mine := folder / "mine.txt").write_text(SOLOMON)
    (folder / "notes.txt").write_text("no instance")
    output, again = tmp_path / "out.parquet", tmp_path / "again.parquet"
    for name in ("r199", "Mine"):
        pq.write_table(pa.Table.from_pylist([{"instance": name, "routes": [[1, 2], [3]]}]), tmp_path / "a.parquet")
        named = ["--instances", str(folder)]
        assert main(["import", str(tmp_path / "a.parquet"), *named, "--output", str(output)]) == 0
        assert main(["check", str(mine), str(tmp_path / "a.parquet")]) == 0
        assert main(["import", str(output), *named, "--output", str(again)]) == 0
        assert main(["check", str(mine), str(again)]) == 0
        assert [(row.instance, row.cost) for row in read_library_rows(again)] == [("R199", 15.0)]
    shutil.copy(mine, folder / "copy.txt")
    capsys.readouterr()
    assert main(["import", str(output), *named, "--output", str(again)]) == 2
    wanted = f"{folder}/copy.txt and {mine} are both named R199; name one of them by --instances"
    assert wanted in capsys.readouterr().err


def test_named_instances_may_end_in_anything(tmp_path: Path) -> None:
    """Cordeau's in nothing; solutions named beside are no instances, and in a folder only endings tell."""
    (tmp_path / "p99").write_text(CORDEAU)
    (sol := tmp_path / "p99.sol").write_text("Route #1: 2\nRoute #2: 3\nRoute #3: 4\n")
    output = tmp_path / "out.parquet"
    for named in ([tmp_path / "p99"], [sol, tmp_path / "p99"]):
        assert main(["import", str(sol), "--output", str(output), "--instances", *map(str, named)]) == 0
        (row,) = read_library_rows(output)
        assert (row.instance, row.cost) == ("p99", pytest.approx(4 + 2 * math.sqrt(50)))
    assert main(["import", str(sol), "--output", str(output), "--instances", str(tmp_path)]) == 2


def test_of_several_files_of_one_name_none_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the first nor the last; what is no instance, or is named twice, is no second one."""
    (first := tmp_path / "first").mkdir()
    (second := tmp_path / "second").mkdir()
    (first / "a.vrp").write_text(vrp("one"))
    (first / "a.txt").write_text("no instance")
    (second / "a.vrp").write_text(vrp("two"))
    pq.write_table(
        pa.Table.from_pylist([{"instance": "a", "routes": [[1, 2], [3]]}]), plain := tmp_path / "mine.parquet"
    )
    words = ["import", str(plain), "--output", str(output := tmp_path / "out.parquet"), "--instances", str(first)]
    assert main([*words, str(first / "a.vrp")]) == 0
    assert [row.instance for row in read_library_rows(output)] == ["one"]
    assert main([*words, str(second)]) == 2
    assert f"{first}/a.vrp and {second}/a.vrp are both named a; name one of them" in capsys.readouterr().err


def test_the_instance_beside_a_table_is_that_of_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its rows may be of any instances, whatever the file is called."""
    (tmp_path / "mine.vrp").write_text(vrp("inside"))
    plain, output = tmp_path / "mine.parquet", tmp_path / "out.parquet"
    for name, code in (("mine", 0), ("Inside", 0), ("other", 2)):
        pq.write_table(pa.Table.from_pylist([{"instance": name, "routes": [[1, 2], [3]]}]), plain)
        assert main(["import", str(plain), "--output", str(output)]) == code
    assert "there is no instance 'other' beside it" in capsys.readouterr().err
    assert [row.instance for row in read_library_rows(output)] == ["inside"]


def test_best_known_costs_lie_beside(tmp_path: Path) -> None:
    """Unless that is the very file that is imported, or it breaks a rule."""
    (tmp_path / "P-n4-k2.vrp").write_text(vrp("P-n4-k2"))
    best = [Route(0, (1, 2)), Route(0, (3,))]
    write_sol(tmp_path / "P-n4-k2.sol", best, 16)
    (tmp_path / "theirs").mkdir()
    write_sol(theirs := tmp_path / "theirs" / "P-n4-k2.sol", [Route(0, (1,)), Route(0, (2,)), Route(0, (3,))], 18)
    output = tmp_path / "out.parquet"
    named = ["--instances", str(tmp_path), "--output", str(output)]
    assert main(["import", str(theirs), *named]) == 0
    (row,) = read_library_rows(output)
    assert (row.cost, row.best_known, row.gap_percent) == (18, 16, 12.5)  # 10 + 2 + 6
    shutil.copy(theirs, tmp_path / "P-n4-k2.sol")
    assert main(["import", str(tmp_path / "P-n4-k2.sol"), "--output", str(output)]) == 0
    assert read_library_rows(output)[0].best_known is None
