"""Fixtures of the tests of tables."""

import pytest

from helpers.results_folder import ResultsFolder


@pytest.fixture
def folder(tmp_path):
    return ResultsFolder(tmp_path / "results")
