"""Fixtures of the tests of the workflow."""

from pathlib import Path

import pytest

from helpers.snakemake import Workflow


@pytest.fixture
def workflow(tmp_path: Path) -> Workflow:
    """The project's workflow in an empty folder."""
    return Workflow(tmp_path)
