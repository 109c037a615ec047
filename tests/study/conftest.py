"""The studies that ship."""

from pathlib import Path

import pytest

from helpers.studies import study
from polarvrp.config.study import StudyConfig


@pytest.fixture
def quick(tmp_path: Path) -> StudyConfig:
    return study(tmp_path, scale="quick")


@pytest.fixture
def paper(tmp_path: Path) -> StudyConfig:
    return study(tmp_path, scale="paper")
