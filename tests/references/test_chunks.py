"""Chunks: the same rows whoever works, nothing solved twice, extension, kills, damage, watchdog."""

import dataclasses
import errno
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from helpers.instances import generated
from polarvrp.errors import ConfigError, DataError
from polarvrp.files import provenance
from polarvrp.problem.archives import write_arrays
from polarvrp.problem.datasets import instances_from_arrays
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.numpy_generator import generate_arrays
from polarvrp.problem.tours import check_tour
from polarvrp.problem.variants import VARIANTS
from polarvrp.references import chunks
from polarvrp.references.chunks import solve_chunk
from polarvrp.references.partial import PartialFile, StoredRow
from polarvrp.solutions.merging import merge_solutions
from polarvrp.solutions.rows import SolutionRow
from polarvrp.solutions.solutions import read_solutions, solution_rows
from polarvrp.solvers.pool import default_hard_limit
from polarvrp.solvers.solve import SolverSettings
from polarvrp.study.specs import REFERENCE_CODE_VERSION

QUICK = SolverSettings("pyvrp", 20.0, seed=1, max_iterations=30)


def without_times(rows: list[SolutionRow]) -> list[SolutionRow]:
    return [dataclasses.replace(row, seconds=0.0) for row in rows]


@pytest.fixture
def solved_numbers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the instances that are handed to a solver, in order."""
    numbers: list[int] = []
    original = chunks._task

    def task(
        instance: Instances[NodeArrays], number: int, settings: SolverSettings, earlier: Any, warm_start: Any
    ) -> Any:
        numbers.append(number)
        return original(instance, number, settings, earlier, warm_start)

    monkeypatch.setattr(chunks, "_task", task)
    return numbers


@pytest.mark.parametrize("solver", ["pyvrp", "ortools"])
def test_one_and_eight_workers_write_the_same(tmp_path: Path, solver: str) -> None:
    instances = generated("VRPMBTW", 10, 9)
    settings = dataclasses.replace(QUICK, solver=solver)
    written = [
        without_times(solve_chunk(instances, settings, tmp_path / f"{workers}.parquet", 5, workers))
        for workers in (1, 8)
    ]
    assert written[0] == written[1]
    assert [row.instance for row in written[0]] == list(range(5, 14))
    for index, row in enumerate(written[0]):
        assert check_tour(instances, index, row.actions).first_problem is None
    table = read_solutions(tmp_path / "8.parquet")
    assert without_times(solution_rows(table)) == written[0]
    assert provenance(table)["threads_per_instance"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.parquet", "8.parquet"]


def test_finished_instances_are_never_solved_twice(tmp_path: Path, solved_numbers: list[int]) -> None:
    instances, output = generated("CVRP", 10, 6), tmp_path / "out.parquet"
    first = solve_chunk(instances[:3], QUICK, output)
    second = solve_chunk(instances, QUICK, output, workers=2)
    assert second[:3] == first
    assert solved_numbers == [0, 1, 2, 3, 4, 5]
    assert solve_chunk(instances[2:4], QUICK, output, start=2) == second[2:4]
    assert solved_numbers == [0, 1, 2, 3, 4, 5]


def test_other_instances_or_settings_are_solved_anew(tmp_path: Path, solved_numbers: list[int]) -> None:
    instances, output = generated("CVRP", 10, 3), tmp_path / "out.parquet"
    solve_chunk(instances, QUICK, output)
    locs = instances.locs.copy()
    locs[1, 4] = 0.123
    solve_chunk(dataclasses.replace(instances, locs=locs), QUICK, output)
    assert solved_numbers == [0, 1, 2, 1]
    solve_chunk(instances, dataclasses.replace(QUICK, seed=2), output)
    assert solved_numbers == [0, 1, 2, 1, 0, 1, 2]


def test_merged_chunks_are_extended_like_any_other(tmp_path: Path, solved_numbers: list[int]) -> None:
    instances, merged = generated("CVRP", 10, 5), tmp_path / "merged.parquet"
    solve_chunk(instances[:2], QUICK, tmp_path / "a.parquet")
    solve_chunk(instances[2:4], QUICK, tmp_path / "b.parquet", start=2)
    merge_solutions([tmp_path / "a.parquet", tmp_path / "b.parquet"], merged)
    assert len(solve_chunk(instances, QUICK, merged)) == 5
    assert solved_numbers == [0, 1, 2, 3, 4]


def test_rows_of_an_earlier_code_version_are_solved_again(
    tmp_path: Path, solved_numbers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a killed job too, whose output the workflow cannot remove."""
    assert chunks.FORMAT == REFERENCE_CODE_VERSION, "what a raised version makes anew must not be kept"
    instances, output = generated("CVRP", 10, 2), tmp_path / "out.parquet"
    solve_chunk(instances, QUICK, output)
    solve_chunk(instances, QUICK, output)
    assert solved_numbers == [0, 1]
    monkeypatch.setattr(chunks, "FORMAT", 99)
    solve_chunk(instances, QUICK, output)
    assert solved_numbers == [0, 1, 0, 1]


def test_more_seconds_go_on_from_the_stored_tours(tmp_path: Path) -> None:
    instances, output = generated("VRPB", 60, 2), tmp_path / "out.parquet"
    short = solve_chunk(instances, SolverSettings("pyvrp", 0.1), output)
    longer = solve_chunk(instances, SolverSettings("pyvrp", 0.4), output)
    for before, after in zip(short, longer, strict=True):
        assert before.cost is not None
        assert after.cost is not None
        assert after.cost <= before.cost
        assert after.seconds > before.seconds
        assert (after.iterations or 0) > (before.iterations or 0)
        assert after.limit_seconds == 0.4
    assert solve_chunk(instances, SolverSettings("pyvrp", 0.4), output) == longer


def test_impossible_instances_do_not_stop_the_others(tmp_path: Path, solved_numbers: list[int]) -> None:
    instances = generated("OVRPTW", 10, 4)
    demand = instances.demand_linehaul.copy()
    demand[2, 3] = 1.5
    instances = dataclasses.replace(instances, demand_linehaul=demand)
    for repetition in (1, 2):
        rows = solve_chunk(instances, QUICK, tmp_path / "out.parquet", workers=2)
        assert [row.cost is None for row in rows] == [False, False, True, False]
        assert "customer 3" in str(rows[2].reason)
        assert solved_numbers == [0, 1, 2, 3] + [2] * (repetition - 1)
    assert read_solutions(tmp_path / "out.parquet")["cost"].null_count == 1


def test_a_stuck_instance_is_killed_and_recorded(tmp_path: Path) -> None:
    instances, output = generated("CVRP", 20, 2), tmp_path / "out.parquet"
    start_s = time.monotonic()
    rows = solve_chunk(instances, SolverSettings("pyvrp", 300.0), output, workers=2, hard_limit_s=1.0)
    assert time.monotonic() - start_s < 60
    assert {row.reason for row in rows} == {"stopped after 1 s without an answer"}
    assert all(row.seconds >= 1 for row in rows)
    assert default_hard_limit(1.0, 1000) > 30


def test_warm_starts_reach_the_solver(tmp_path: Path) -> None:
    instances = generated("VRPL", 50, 2)
    good = solve_chunk(instances, dataclasses.replace(QUICK, max_iterations=300), tmp_path / "good.parquet")
    tours = {row.instance: row.actions for row in good}
    one = dataclasses.replace(QUICK, max_iterations=1)
    warm = solve_chunk(instances, one, tmp_path / "warm.parquet", warm_starts=tours)
    cold = solve_chunk(instances, one, tmp_path / "cold.parquet")
    for best, started, fresh in zip(good, warm, cold, strict=True):
        assert started.cost <= best.cost + 1e-6 < fresh.cost
    with pytest.raises(ConfigError, match="ortools takes no warm start"):
        solve_chunk(instances, SolverSettings("ortools", 1.0), tmp_path / "no.parquet", warm_starts=tours)


SLOW_CHUNK = """
import sys
from pathlib import Path
from polarvrp.problem.datasets import read_instances
from polarvrp.references.chunks import solve_chunk
from polarvrp.solvers.solve import SolverSettings
if __name__ == "__main__":
    instances = read_instances(sys.argv[1])
    solve_chunk(instances, SolverSettings("pyvrp", 0.2), Path(sys.argv[2]))
"""


def test_a_killed_chunk_goes_on_where_it_was(tmp_path: Path, solved_numbers: list[int]) -> None:
    arrays = generate_arrays(VARIANTS["CVRP"], 10, 20, seed=6)
    write_arrays(tmp_path / "set.npz", arrays)
    (tmp_path / "slow.py").write_text(SLOW_CHUNK)
    output = tmp_path / "out.parquet"
    partial = tmp_path / "out.parquet.partial"
    command = [sys.executable, str(tmp_path / "slow.py"), str(tmp_path / "set.npz"), str(output)]
    with subprocess.Popen(command, start_new_session=True) as process:
        while not partial.exists() or partial.read_bytes().count(b"\n") < 4:
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    assert not output.exists()
    finished = partial.read_bytes().count(b"\n") - 1
    assert 3 <= finished < 20
    rows = solve_chunk(instances_from_arrays(arrays)[: finished + 2], SolverSettings("pyvrp", 0.2), output)
    assert solved_numbers == [finished, finished + 1]
    assert len(rows) == finished + 2
    assert not partial.exists()


ROW = SolutionRow("CVRP", 3, 4, "pyvrp", 0.1 + 0.2, (1, 0, 2, 3), 2, 1e-9, 0.0, 1, 20.0, 10**7, 5, "pyvrp 0.14.1")
FAILED = dataclasses.replace(ROW, instance=5, cost=None, actions=(), max_violation=None, reason="stuck")


def partial_with_rows(folder: Path) -> Path:
    with PartialFile(folder / "x.parquet", {"seed": 1}, SolutionRow) as partial:
        for number in range(4, 9):
            partial.append(StoredRow(f"print {number}", dataclasses.replace(ROW, instance=number)))
        partial.append(StoredRow("print 5", FAILED))
        return partial.path


def test_partial_rows_come_back_exactly(tmp_path: Path) -> None:
    path = partial_with_rows(tmp_path)
    assert b'{"fingerprint": "print 4", "row": {' in path.read_bytes()  # as earlier versions wrote it
    with PartialFile(tmp_path / "x.parquet", {"seed": 1}, SolutionRow) as partial:
        assert partial.rows[4] == StoredRow("print 4", ROW)
        assert partial.rows[5] == StoredRow("print 5", FAILED)
        assert list(partial.rows) == [4, 5, 6, 7, 8]
    with PartialFile(tmp_path / "x.parquet", {"seed": 2}, SolutionRow) as partial:
        assert partial.rows == {}
        assert path.read_bytes().count(b"\n") == 1
    assert not path.exists()


def test_the_half_line_of_a_kill_is_cut_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = partial_with_rows(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    with PartialFile(tmp_path / "x.parquet", {"seed": 1}, SolutionRow) as partial:
        assert list(partial.rows) == [4, 5, 6, 7, 8]
        assert partial.rows[5].row == dataclasses.replace(ROW, instance=5)
        partial.append(StoredRow("print 5", FAILED))
    assert path.read_bytes() == whole
    assert not caplog.records


def test_damage_is_named_and_the_rest_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = partial_with_rows(tmp_path)
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b"0.3", b"0.2")
    path.write_bytes(b"\n".join(lines))
    with caplog.at_level(logging.WARNING), PartialFile(tmp_path / "x.parquet", {"seed": 1}, SolutionRow) as partial:
        assert list(partial.rows) == [4, 6, 7, 8, 5]
    assert "x.parquet.partial is damaged: 1 of 7 lines are lost" in caplog.text
    assert path.read_bytes().count(b"\n") == 6
    path.write_bytes(b"\x00garbage" + path.read_bytes())
    with caplog.at_level(logging.WARNING), PartialFile(tmp_path / "x.parquet", {"seed": 1}, SolutionRow) as partial:
        assert partial.rows == {}
    assert "damaged in its first line" in caplog.text


def test_only_one_process_works_on_an_output(tmp_path: Path) -> None:
    with (
        PartialFile(tmp_path / "x.parquet", {"seed": 1}, SolutionRow),
        pytest.raises(DataError, match=r"x\.parquet\.partial is in use"),
    ):
        PartialFile(tmp_path / "x.parquet", {"seed": 1}, SolutionRow)


def test_a_damaged_output_is_named_and_solved_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    output = tmp_path / "out.parquet"
    output.write_bytes(b"PAR1 no more")
    with caplog.at_level(logging.WARNING):
        rows = solve_chunk(generated("CVRP", 10, 1), QUICK, output)
    assert "out.parquet is no complete Parquet file" in caplog.text
    assert solution_rows(read_solutions(output)) == rows


def test_a_partial_file_below_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"out\.parquet\.partial cannot be written \(File exists\)"):
        PartialFile(tmp_path / "file" / "out.parquet", {}, SolutionRow)


def test_a_disk_that_fills_up_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"out\.parquet\.partial cannot be written \(No space left on device\)"):
        solve_chunk(generated("CVRP", 5, 1), QUICK, tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()
