"""Fixtures of the tests of tables."""

from pathlib import Path

import pytest

from helpers.results_folder import ResultsFolder, whole_study
from polarvrp.tables.build import build_tables
from polarvrp.tables.sources import Results


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(tmp_path / "results")


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Every table, as wide and long as the paper's; not to be changed."""
    results = Results(whole_study(tmp_path_factory.mktemp("study") / "results").root, "quick")
    build_tables(results)
    return results
