"""Rotary positions: an independent version by complex numbers, and what a rotation must leave alone."""

import cmath
import math

import pytest
import torch
from torch import Tensor

from helpers.instances import sample
from helpers.model_samples import policy_of
from polarvrp.model.rotation import rotate, rotation_of


def turned_by_complex_numbers(vector: list[float], x: float, y: float) -> list[float]:
    """Pairs (2j, 2j + 1) of each half as complex numbers, multiplied by unit numbers; plain Python."""
    half = len(vector) // 2
    result = []
    for coordinate, part in ((x, vector[:half]), (y, vector[half:])):
        for pair in range(half // 2):
            angle = 2 * math.pi * coordinate * 10000 ** (-2 * pair / half)
            number = complex(part[2 * pair], part[2 * pair + 1]) * cmath.exp(1j * angle)
            result += [number.real, number.imag]
    return result


def test_rotation_equals_multiplication_of_complex_numbers() -> None:
    locs = torch.rand(2, 3, 2, dtype=torch.float64)
    vectors = torch.randn(2, 3, 1, 1, 16, dtype=torch.float64)
    got = rotate(vectors, rotation_of(locs, 16, "proper", 0))
    for b in range(2):
        for i in range(3):
            wanted = turned_by_complex_numbers(vectors[b, i, 0, 0].tolist(), *locs[b, i].tolist())
            assert got[b, i, 0, 0].tolist() == pytest.approx(wanted, abs=1e-12)


def scores(locs: Tensor, query: Tensor, key: Tensor, form: str) -> Tensor:
    rotation = rotation_of(locs, 16, form, 0)
    return torch.einsum("bishd,bjshd->bij", rotate(query, rotation), rotate(key, rotation))


def test_only_the_proper_form_is_blind_to_translations() -> None:
    locs = torch.rand(2, 5, 2, dtype=torch.float64)
    query, key = torch.randn(2, 2, 5, 1, 1, 16, dtype=torch.float64).unbind(0)
    shift = torch.tensor([0.1, -0.3], dtype=torch.float64)
    for form, blind in (("proper", True), ("as_released", False)):
        change = (scores(locs + shift, query, key, form) - scores(locs, query, key, form)).abs().max()
        assert bool(change < 1e-12) is blind


def test_as_released_gives_both_features_of_a_pair_different_angles() -> None:
    rotation = rotation_of(torch.full((1, 1, 2), 0.25, dtype=torch.float64), 16, "as_released", 0)
    angles = [2 * math.pi * 0.25 * 10000 ** (-j / 4) for j in (0, 1, 2, 3)]
    assert rotation.cosine[0, 0].tolist() == pytest.approx([math.cos(a) for a in angles * 4], abs=1e-12)


def test_prompt_rows_are_not_turned() -> None:
    rotation = rotation_of(torch.rand(2, 3, 2), 8, "proper", 4)
    rows = torch.randn(2, 7, 2, 2, 8)
    assert torch.equal(rotate(rows, rotation)[:, 3:], rows[:, 3:])
    assert not torch.equal(rotate(rows, rotation)[:, :3], rows[:, :3])


def test_an_encoder_sees_translations_through_features_only() -> None:
    """With rope the attention of equal features depends on differences of coordinates."""
    policy = policy_of("polarnet", "shared", dtype=torch.float64)
    instances = sample("CVRP", dtype=torch.float64)
    block = policy.stack.blocks[0]
    rows = torch.randn(3, instances.num_nodes, 32, dtype=torch.float64)
    near = block(rows, rotation_of(instances.locs, 16, "proper", 0))[0]
    moved = block(rows, rotation_of(instances.locs + 0.2, 16, "proper", 0))[0]
    stretched = block(rows, rotation_of(instances.locs * 1.2, 16, "proper", 0))[0]
    torch.testing.assert_close(moved, near)
    assert (stretched - near).abs().max() > 1e-6
