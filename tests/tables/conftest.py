"""Fixtures of the tests of tables."""

from pathlib import Path

import pytest

from helpers.results_folder import ResultsFolder, whole_study
from polarvrp.study import shipped
from polarvrp.tables.build import build_tables
from polarvrp.tables.sources import Results


@pytest.fixture(autouse=True)
def nothing_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables hold what the tests put there, whatever models come with the package."""
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path / "ships nothing")


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(tmp_path / "results")


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Every table, as wide and long as the paper's; not to be changed."""
    folder = tmp_path_factory.mktemp("study")
    results = Results(whole_study(folder / "results").root, "quick")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipped, "SHIPPED", folder / "ships nothing")
        build_tables(results)
    return results
