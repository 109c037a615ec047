"""What networks compute on a CPU in forms of its own: the same values and gradients as the plain formulas."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from polarvrp.model.cpu_attention import MOST_KEYS, cpu_attention
from polarvrp.model.cpu_elementwise import GatedUnit, RootMeanSquare
from polarvrp.model.decoder import hidden_bias
from polarvrp.model.linear import Linear, map_pair
from polarvrp.model.rotation import rotate, rotation_of
from polarvrp.problem.table_rows import rows_of


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("keys", [5, MOST_KEYS + 1])
@pytest.mark.parametrize("masked", [False, True])
def test_attention(keys: int, masked: bool) -> None:
    query, key, value = random(2, 3, 4, 8), random(2, 3, keys, 8, seed=1), random(2, 3, keys, 8, seed=2)
    mask = torch.rand(2, 1, 4, keys, generator=torch.Generator().manual_seed(3)) < 0.5
    mask[..., 0] = True
    bias = hidden_bias(mask, torch.float64) if masked else None
    got = cpu_attention(query, key, value, bias)
    wanted = functional.scaled_dot_product_attention(query, key, value, mask if masked else None)
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
    if keys < MOST_KEYS:
        assert torch.autograd.gradcheck(lambda q, k, v: cpu_attention(q, k, v, bias), (query, key, value))


def test_attention_computes_in_float32_within_autocast() -> None:
    query, key, value = (random(2, 3, 40, 8, seed=seed).detach().bfloat16() for seed in range(3))
    with torch.autocast("cpu", torch.bfloat16):
        got = cpu_attention(query, key, value)
    wanted = cpu_attention(query.float(), key.float(), value.float())
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, wanted.bfloat16())


def test_gated_unit() -> None:
    gate_up = random(3, 4, 10)
    gate, up = gate_up.chunk(2, dim=-1)
    torch.testing.assert_close(GatedUnit.apply(gate_up), functional.silu(gate) * up)
    assert torch.autograd.gradcheck(GatedUnit.apply, gate_up)


@pytest.mark.parametrize(("rows", "weight"), [((5, 6), (6,)), ((2, 5, 6), (3, 1, 1, 6)), ((3, 2, 5, 6), (3, 1, 1, 6))])
def test_root_mean_square(rows: tuple[int, ...], weight: tuple[int, ...]) -> None:
    x, w = random(*rows), random(*weight, seed=1)
    wanted = x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w
    torch.testing.assert_close(RootMeanSquare.apply(x, w, 1e-5), wanted, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(lambda x, w: RootMeanSquare.apply(x, w, 1e-5), (x, w))


@pytest.mark.parametrize("form", ["proper", "as_released"])
def test_rotation(form: str) -> None:
    locs = torch.rand(2, 5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rotation = rotation_of(locs, 16, form, 2)
    features = random(2, 7, 2, 3, 16)
    turned = torch.stack((-features[..., 1::2], features[..., 0::2]), dim=-1).flatten(-2)
    tables = (table[:, :, None, None, :] for table in (rotation.cosine, rotation.sine))
    cosine, sine = tables
    torch.testing.assert_close(rotate(features, rotation), features * cosine + turned * sine, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(lambda x: rotate(x, rotation), features)


def test_a_map_of_a_pair_is_that_of_the_two_side_by_side() -> None:
    linear = Linear(9, 4).double()
    left, right = random(3, 6), random(3, 3, seed=1)
    torch.testing.assert_close(map_pair(linear, left, right), linear(torch.cat((left, right), dim=-1)))


def test_rows_of_each_instance_and_bias_of_a_mask() -> None:
    rows, index = random(3, 5, 4), torch.tensor([[0, 4, 4], [1, 1, 2], [3, 0, 2]])
    wanted = torch.stack([rows[b][index[b]] for b in range(3)])
    assert torch.equal(rows_of(rows, index), wanted)
    mask = torch.tensor([True, False, True])
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        assert hidden_bias(mask, dtype).tolist() == [0.0, float("-inf"), 0.0]
