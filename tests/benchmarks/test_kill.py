"""Ten moments at which a work is killed; ``benchmarks/kill.py`` draws more, also of trainings and of Snakemake."""

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


@pytest.mark.parametrize(("name", "moments"), [("references", 10), pytest.param("table", 3, marks=pytest.mark.long)])
def test_the_same_command_ends_with_what_an_undisturbed_one_makes(
    kill: ModuleType, tmp_path: Path, name: str, moments: int
) -> None:
    work, draw = kill.WORKS[name], random.Random(0)
    (tmp_path / "work").mkdir()
    seconds, wanted = kill.undisturbed(work, tmp_path / "work")
    for _ in range(moments):
        at_s = draw.uniform(0, seconds)
        assert kill.fault_of(work, tmp_path / "work-prepared", tmp_path / "work", at_s, wanted) is None, at_s
