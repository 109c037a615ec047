"""Some hundred damaged files over all readers; ``benchmarks/fuzz.py`` reads thousands, each kind in processes apart."""

import logging
from collections.abc import Iterator
from types import ModuleType

import pytest

from helpers.benchmark_scripts import loaded_script

SEEDS = range(9)


@pytest.fixture(scope="module")
def fuzz() -> Iterator[ModuleType]:
    with loaded_script("fuzz") as module:
        yield module
    logging.disable(logging.NOTSET)


def test_damaged_files_are_read_as_they_were_or_refused_in_one_line(fuzz: ModuleType) -> None:
    outcomes = {(name, seed): fuzz.fault_of((name, seed)) for name in fuzz.KINDS for seed in SEEDS}
    assert {task: found for task, found in outcomes.items() if found not in ("read", "refused")} == {}
    assert len(outcomes) >= 190
    assert list(outcomes.values()).count("refused") > 100
