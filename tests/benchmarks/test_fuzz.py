"""Some hundred damaged files over all readers; ``benchmarks/fuzz.py`` reads thousands, each kind in processes apart."""

import importlib.util
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fuzz.py"
SEEDS = range(9)


@pytest.fixture(scope="module")
def fuzz() -> Iterator[ModuleType]:
    specification = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["fuzz"] = module
    specification.loader.exec_module(module)
    yield module
    del sys.modules["fuzz"]
    logging.disable(logging.NOTSET)


def test_damaged_files_are_read_as_they_were_or_refused_in_one_line(fuzz: ModuleType) -> None:
    outcomes = {(name, seed): fuzz.fault_of((name, seed)) for name in fuzz.KINDS for seed in SEEDS}
    assert {task: found for task, found in outcomes.items() if found not in ("read", "refused")} == {}
    assert len(outcomes) >= 190
    assert list(outcomes.values()).count("refused") > 100
