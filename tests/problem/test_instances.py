"""The container of instances: shapes checked once, batches cut, arrays and tensors exchanged."""

import dataclasses
import re
from typing import Any

import numpy as np
import pytest
import torch

from helpers.instances import generated
from polarvrp.errors import DataError
from polarvrp.files import provenance, read_parquet
from polarvrp.problem.instances import Instances, NodeArrays, instance_digests, to_arrays, to_tensors
from polarvrp.solutions.origin import DIGESTS
from polarvrp.study.shipped import SHIPPED


@pytest.fixture
def instances() -> Instances[NodeArrays]:
    return generated("MDOVRPMBLTW", 6, 4, 1)


FIELDS = {
    "demand_linehaul": [4, 9],
    "demand_backhaul": [4, 9],
    "time_windows": [4, 9, 2],
    "service_time": [4, 9],
    "distance_limit": [4],
    "open_route": [4],
    "backhaul_class": [4],
    "flags": [4, 6],
}


@pytest.mark.parametrize("name", FIELDS)
def test_shapes_are_checked_at_construction(instances: Instances[NodeArrays], name: str) -> None:
    """The message names the array, what was wanted and what came."""
    short = getattr(instances, name)[:3]
    message = f"{name} must be {FIELDS[name]} to match locs, got {list(short.shape)}"
    with pytest.raises(DataError, match=re.escape(message)):
        dataclasses.replace(instances, **{name: short})


def test_sizes(instances: Instances[NodeArrays]) -> None:
    assert (len(instances), instances.num_nodes, instances.num_depots, instances.num_customers) == (4, 9, 3, 6)


@pytest.mark.parametrize("index", [slice(1, 3), np.array([1, 2]), np.array([False, True, True, False])])
def test_a_part_of_a_batch(instances: Instances[NodeArrays], index: Any) -> None:
    part = instances[index]
    assert len(part) == 2 and part.num_depots == 3 and part.capacity == instances.capacity
    for name in ("locs", *FIELDS):
        np.testing.assert_array_equal(getattr(part, name), getattr(instances, name)[1:3])


def test_tensors_and_back(instances: Instances[NodeArrays]) -> None:
    tensors = to_tensors(instances)
    assert isinstance(tensors.locs, torch.Tensor) and tensors.backhaul_class.dtype == torch.int64
    back = to_arrays(tensors)
    for name in ("locs", *FIELDS):
        np.testing.assert_array_equal(getattr(back, name), getattr(instances, name))
        assert getattr(back, name).dtype == getattr(instances, name).dtype


def test_precision_changes_floats_only(instances: Instances[NodeArrays]) -> None:
    tensors = to_tensors(instances, dtype=torch.float64)
    assert tensors.locs.dtype == tensors.distance_limit.dtype == torch.float64
    assert tensors.open_route.dtype == tensors.flags.dtype == torch.bool
    assert tensors.backhaul_class.dtype == torch.int64


@pytest.mark.parametrize("variant", ["CVRP", "OVRPBLTW"])
def test_digests_are_those_that_earlier_files_of_solutions_name(variant: str) -> None:
    """Of a model that ships, like those of everybody's results; with other digests no table would take either."""
    path = SHIPPED / "pretrained-n20" / "evaluations" / f"{variant}-n20.parquet"
    digests = instance_digests(generated(variant, 20, 100))
    assert provenance(read_parquet(path))[DIGESTS] == {str(number): one for number, one in enumerate(digests)}
