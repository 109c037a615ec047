"""Fixtures of the tests of tables."""

import pytest

from results_folder import ResultsFolder


@pytest.fixture
def folder(tmp_path):
    return ResultsFolder(tmp_path / "results")
