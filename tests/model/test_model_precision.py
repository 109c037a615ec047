"""Backward passes run without autocast, compiled or not; compiled layers get code for each shape."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from helpers.model_samples import policy_of
from polarvrp.model.precision import (
    bfloat16_products,
    compile_parts,
    no_autocast,
    prepare_compilation,
    trains_in_bfloat16,
)
from polarvrp.model.rotation import rotation_of

CPU = torch.device("cpu")


def in_float32(rows: Tensor, keys: Tensor) -> Tensor:
    """A product in a float32 region of an autocast forward pass, as the pointer's."""
    with torch.autocast("cpu", enabled=False):
        return (rows.float() @ keys.float().T).tanh()


def gradient(function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    rows, keys = (torch.randn(16, 64, generator=generator, requires_grad=True) for _ in range(2))
    with bfloat16_products(CPU, True):
        result = function(rows, keys)
        with no_autocast(CPU):
            (result * torch.arange(16.0)).sum().backward()
    assert rows.grad is not None
    return rows.grad


def test_compiled_float32_regions_get_float32_gradients() -> None:
    """By default torch compiles the backward pass with the forward pass's autocast, a thousand times less exact."""
    prepare_compilation()
    torch.compiler.reset()
    exact = gradient(in_float32)
    compiled = gradient(torch.compile(in_float32, backend="aot_eager", dynamic=False))
    assert (compiled - exact).norm() < 1e-6 * exact.norm()


def test_layers_get_code_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the odd batch at the end of an epoch would turn the code of all later ones into that of changing shapes."""
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module, **options: compiled.append(options))
    compile_parts(policy_of(layers=2))
    assert compiled == [{"dynamic": False}] * 2


class SumsOfAutocast(TorchFunctionMode):
    """A GPU's autocast adds up in float32, and returns that, where no dtype is asked for; a CPU's does not."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wide = {"dtype": torch.float32} if function is torch.Tensor.sum else {}
        return function(*args, **(wide | (kwargs or {})))


def test_all_layers_share_the_code_of_the_first() -> None:
    """Which code is compiled for depends on the dtype of each tensor, and on whether two of them are one object."""
    policy = policy_of(layers=3, dtype=torch.bfloat16).to("meta")
    seen = []
    for layer in policy.stack.layers:
        layer.register_forward_pre_hook(
            lambda _, given: seen.append(([each.dtype for each in given[:4]], given[0] is given[1]))
        )
    nodes, prompt = (torch.zeros(2, rows, 32, dtype=torch.bfloat16, device="meta") for rows in (5, 6))
    with SumsOfAutocast():
        policy.stack(nodes, prompt, rotation_of(nodes[..., :2], 16, "proper", 6))
    assert seen == 3 * [(4 * [torch.bfloat16], False)]


@pytest.mark.parametrize(("avx512", "amx"), [(True, False), (False, True), (False, False)])
def test_a_cpu_trains_in_bfloat16_where_it_has_the_instructions(
    avx512: bool, amx: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert trains_in_bfloat16(CPU) is (avx512 or amx)
    assert trains_in_bfloat16(CPU, "bfloat16")
    assert not trains_in_bfloat16(CPU, "float32")
