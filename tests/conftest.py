"""Fixtures shared by all tests."""

import importlib.util
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from helpers.interpreter import quicken_interpreter

if not torch.cuda.is_available():
    # Read when kernels are defined, so before any test imports them.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    if importlib.util.find_spec("triton") is not None:
        quicken_interpreter()

PUBLISHED = Path(__file__).parents[2] / "shared" / "data" / "published_references.parquet"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked ``gpu`` are skipped where there is none; where there is one, warnings of compilers are no errors.

    The files that take minutes come first, so that none is left over when each process takes whole files.
    """
    items.sort(key=lambda item: item.path.parent.name != "workflow")
    on_gpu = torch.cuda.is_available()
    for item in items:
        if on_gpu:
            item.add_marker(pytest.mark.filterwarnings("default"))
        elif item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def published() -> pa.Table:
    """The published solutions of PyVRP and OR-Tools, 192,000 rows; too large for the package, skipped where absent."""
    if not PUBLISHED.is_file():
        pytest.skip(f"needs the published solutions at {PUBLISHED}")
    return pq.read_table(PUBLISHED)
