"""The eight symmetries: which map has which index, and that costs do not notice."""

import numpy as np
import pytest
import torch

from helpers.instances import generated, sample
from polarvrp.problem.instances import to_arrays, to_tensors
from polarvrp.problem.nearest_neighbour import nearest_neighbour
from polarvrp.problem.symmetries import NUM_SYMMETRIES, apply_symmetry, augment
from polarvrp.problem.tours import check_tour


def test_the_eight_maps_in_order() -> None:
    x, y = 0.25, 0.625
    images = [(x, y), (1 - x, y), (x, 1 - y), (1 - x, 1 - y), (y, x), (1 - y, x), (y, 1 - x), (1 - y, 1 - x)]
    point = torch.tensor([[x, y]])
    for index, image in enumerate(images):
        assert apply_symmetry(point, index).tolist() == [list(image)], index
    assert len(set(images)) == NUM_SYMMETRIES


@pytest.mark.parametrize("index", [-1, 8])
def test_there_are_only_eight(index: int) -> None:
    with pytest.raises(ValueError, match=f"symmetries are 0 to 7, got {index}"):
        apply_symmetry(torch.zeros(1, 2), index)


@pytest.mark.parametrize("name", ["CVRP", "OVRPBLTW", "MDVRPMBLTW"])
def test_costs_and_feasibility_are_invariant(name: str) -> None:
    """The same actions cost the same under every map, and nothing but coordinates is touched."""
    instances = generated(name, 20, 3, 1)
    copies = to_arrays(augment(to_tensors(instances)))
    assert len(copies) == 24
    for number in range(24):
        actions = nearest_neighbour(instances, number % 3)
        before, after = check_tour(instances, number % 3, actions), check_tour(copies, number, actions)
        assert after.cost == pytest.approx(before.cost, abs=1e-5)
        assert after.load_violation == before.load_violation
        assert after.time_violation < 1e-5
    np.testing.assert_array_equal(copies.time_windows, np.tile(instances.time_windows, (8, 1, 1)))
    assert copies.num_depots == instances.num_depots and copies.capacity == instances.capacity


def test_layout_of_copies() -> None:
    """Copy a of instance b is row a * B + b; the first B rows are the originals."""
    instances = sample("VRPB", 6, 5, 1)
    copies = augment(instances, count=4)
    assert len(copies) == 20
    for a in range(4):
        assert torch.equal(copies.locs[5 * a : 5 * a + 5], apply_symmetry(instances.locs, a))
        assert torch.equal(copies.demand_backhaul[5 * a : 5 * a + 5], instances.demand_backhaul)
    assert torch.equal(augment(instances, count=1).locs, instances.locs)
