"""The refiner that tests of a module share."""

from collections.abc import Iterator

import pytest

from polarvrp.local_search.refinement import Refiner


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Refiner]:
    with Refiner(2) as refiner:
        yield refiner
