"""Fixtures shared by all tests."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

PUBLISHED = Path(__file__).parents[2] / "shared" / "data" / "published_references.parquet"


@pytest.fixture(scope="session")
def published():
    """The published solutions of PyVRP and OR-Tools, 192,000 rows; too large for the package, skipped where absent."""
    if not PUBLISHED.is_file():
        pytest.skip(f"needs the published solutions at {PUBLISHED}")
    return pq.read_table(PUBLISHED)
