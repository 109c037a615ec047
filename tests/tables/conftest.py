"""Fixtures of the tests of tables."""

from pathlib import Path

import pytest

from helpers.results_folder import ResultsFolder
from polarvrp.study import shipped


@pytest.fixture(autouse=True)
def nothing_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables hold what the tests put there, whatever models come with the package."""
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path / "ships nothing")


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(tmp_path / "results")
