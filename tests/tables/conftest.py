"""Fixtures of the tests of tables."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.results_folder import ResultsFolder, whole_study
from polarvrp.study import shipped
from polarvrp.tables.build import build_tables
from polarvrp.tables.sources import Results


@pytest.fixture(scope="session", autouse=True)
def nothing_ships(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tables hold what the tests put there, whatever models come with the package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipped, "SHIPPED", tmp_path_factory.mktemp("ships nothing"))
        yield


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(tmp_path / "results")


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Every table, as wide and long as the paper's; not to be changed."""
    results = Results(whole_study(tmp_path_factory.mktemp("study") / "results").root, "quick")
    build_tables(results)
    return results
