"""Fixtures of the tests of tables."""

from pathlib import Path

import pytest

from helpers.results_folder import ResultsFolder


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(tmp_path / "results")
