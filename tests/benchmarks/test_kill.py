"""Some moments at which each work is killed; ``benchmarks/kill.py`` draws more, also of trainings and of Snakemake."""

import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from helpers.benchmark_scripts import loaded_script


@pytest.fixture(scope="module")
def kill() -> Iterator[ModuleType]:
    with loaded_script("kill") as module:
        yield module


@pytest.mark.parametrize(
    ("name", "moments"),
    [
        ("references", 8),
        ("library", 2),
        ("evaluation", 1),
        ("table", 1),
        pytest.param("evaluation", 3, marks=pytest.mark.long),
        pytest.param("table", 3, marks=pytest.mark.long),
    ],
)
def test_the_same_command_ends_with_what_an_undisturbed_one_makes(
    kill: ModuleType, tmp_path: Path, name: str, moments: int
) -> None:
    work, draw = kill.WORKS[name], random.Random(0)
    (tmp_path / "work").mkdir()
    seconds, wanted = kill.undisturbed(work, tmp_path / "work")
    for _ in range(moments):
        at_s, fault = kill.fault_of(work, tmp_path / "work-prepared", tmp_path / "work", seconds, wanted, draw)
        assert fault is None, at_s


def test_a_work_that_ends_by_itself_was_not_killed(kill: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "prepared").mkdir()
    places = (tmp_path / "prepared", tmp_path / "work")
    for seconds, is_killed in ((0, False), (60, True)):
        work = kill.Work(("sleep", str(seconds)), lambda folder: None, ())
        assert (kill.seconds_unless_killed(work, *places, 0.5 if is_killed else 60) is None) == is_killed
