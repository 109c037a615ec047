"""Worker processes: results, exceptions, deaths, hangs, early stops, and no orphans."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.worker_tasks import act
from polarvrp.workers import TaskFailure, WorkerPool


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool[str, object]]:
    with WorkerPool(act, 2) as shared:
        yield shared


def test_every_task_is_answered_by_persistent_processes(pool: WorkerPool[str, object]) -> None:
    tasks = ["pid"] * 6
    first, second = (dict(pool.run(tasks)) for _ in range(2))
    assert sorted(first) == list(range(6))
    assert set(first.values()) == set(second.values())
    assert len(set(first.values())) == 2
    assert os.getpid() not in first.values()


def test_one_thread_and_no_torch_in_workers(pool: WorkerPool[str, object]) -> None:
    before = os.environ.get("OMP_NUM_THREADS")
    assert dict(pool.run(["threads"])) == {0: ("1", "1", False)}
    assert os.environ.get("OMP_NUM_THREADS") == before


def test_failures_keep_to_their_task(pool: WorkerPool[str, object]) -> None:
    tasks = ["a", "fail bad luck", "die", "b", "sleep 60", "c"]
    start_s = time.monotonic()
    outcomes = dict(pool.run(tasks, hard_limit_s=1.0))
    assert time.monotonic() - start_s < 30
    assert [outcomes[i] for i in (0, 3, 5)] == ["a", "b", "c"]
    assert outcomes[1] == TaskFailure("ValueError: bad luck")
    assert outcomes[2] == TaskFailure("the worker process died (exit code -9)")
    assert outcomes[4] == TaskFailure("stopped after 1 s without an answer")
    assert dict(pool.run(["again"])) == {0: "again"}


def test_a_signal_to_the_whole_group_costs_no_task(pool: WorkerPool[str, object], tmp_path: Path) -> None:
    tasks = [f"once {tmp_path / name}" for name in "abc"]
    assert dict(pool.run(tasks)) == dict(enumerate(tasks))


def test_stopping_early_kills_what_is_in_work(pool: WorkerPool[str, object]) -> None:
    for _, outcome in pool.run(["sleep 60", "quick"]):
        assert outcome == "quick"
        break
    start_s = time.monotonic()
    assert len(dict(pool.run(["a", "b", "c"]))) == 3
    assert time.monotonic() - start_s < 30


def test_tasks_ahead_are_neither_lost_nor_blamed_when_a_worker_dies(tmp_path: Path) -> None:
    with WorkerPool(act, 1, depth=4) as pool:
        tasks = ["a", f"once {tmp_path / 'x'}", "b", "die", "c", "d"]
        numbers = pool.submit(tasks)
        outcomes: dict[int, object] = {}
        while len(outcomes) < len(tasks):
            outcomes.update(pool.wait())
    found = [outcomes[number] for number in numbers]
    assert found == [*tasks[:3], TaskFailure("the worker process died (exit code -9)", died=True), "c", "d"]


def test_workers_go_on_while_their_starter_is_busy(tmp_path: Path) -> None:
    with WorkerPool(act, 1, depth=3) as pool:
        numbers = pool.submit([f"touch {tmp_path / name}" for name in "abcd"])
        deadline_s = time.monotonic() + 20
        while not (tmp_path / "c").exists():
            assert time.monotonic() < deadline_s, "the worker waits"
            time.sleep(0.01)
        assert not (tmp_path / "d").exists()
        later = pool.submit(["later"])
        outcomes: dict[int, object] = {}
        while len(outcomes) < 5:
            outcomes.update(pool.wait())
        assert list(outcomes) == [*numbers, *later]
        assert (tmp_path / "d").exists()


def test_a_worker_that_died_idle_is_replaced() -> None:
    with WorkerPool(act, 1) as pool:
        pid = dict(pool.run(["pid"]))[0]
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
        assert dict(pool.run(["a"])) == {0: "a"}


def test_close_ends_all_processes_and_may_be_repeated() -> None:
    before = set(multiprocessing.active_children())
    pool = WorkerPool(act, 2)
    assert len(set(multiprocessing.active_children()) - before) == 2
    runner = pool.run(["sleep 60", "quick"])
    next(runner)
    pool.close()
    pool.close()
    assert set(multiprocessing.active_children()) <= before


ORPHAN = """
import os, sys
sys.path.insert(0, {folder!r})
from helpers.worker_tasks import act
from polarvrp.workers import WorkerPool
if __name__ == "__main__":
    pool = WorkerPool(act, 1)
    print(dict(pool.run(["pid"]))[0], flush=True)
    dict(pool.run(["sleep 600"]))
"""


def test_workers_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "orphan.py"
    script.write_text(ORPHAN.format(folder=str(Path(__file__).parent)))
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    deadline_s = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists():
        assert time.monotonic() < deadline_s, "the worker still runs"
        time.sleep(0.05)
