"""Kernels of the encoder's attention equal the attention they stand in for, and fit on a GPU."""

import pytest
import torch
from torch import Tensor

from helpers.kernel_compilation import SHARED_MEMORY_LIMIT, compile_launches, record_launches
from polarvrp.model import attention as attention_module
from polarvrp.model import short_attention as short_attention_module
from polarvrp.model.attention import Attention
from polarvrp.model.rotation import Rotation, rotation_of
from polarvrp.model.short_attention import is_short, short_attention

pytest.importorskip("triton")

from polarvrp.model.kernels import short_attention as kernels

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WIDTH, HEADS = 32, 2
MEMORY_ROWS = 2


def tables(num_rows: int, form: str | None, count: int = 3, head_width: int = WIDTH // HEADS) -> Rotation | None:
    """Of instances whose last rows are a prompt."""
    if form is None:
        return None
    locs = torch.rand(count, num_rows - MEMORY_ROWS, 2, generator=torch.Generator().manual_seed(1))
    return rotation_of(locs.to(DEVICE), head_width, form, MEMORY_ROWS)


def results(
    layer: Attention,
    rows: Tensor,
    rotation: Rotation | None,
    num_queries: int,
    kernel: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> list[Tensor]:
    """Output and gradients by rows and parameters."""
    monkeypatch.setattr(attention_module, "is_short", lambda _: kernel)
    leaf = rows.clone().requires_grad_()
    output = layer(leaf, rotation, num_queries)
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(2)).to(output)
    gradients = torch.autograd.grad((output * weights).sum(), [leaf, *layer.parameters()])
    return [output, *gradients]


@pytest.mark.parametrize("form", [None, "proper", "as_released"])
@pytest.mark.parametrize(
    ("num_rows", "num_queries", "experts"),
    [(9, 7, None), (9, 9, 3), (9, 7, 3), (70, 68, None)],
    ids=["memory rows", "experts", "experts and memory rows", "several blocks"],
)
def test_attention_and_gradients_are_those_of_tensor_operations(
    num_rows: int, num_queries: int, experts: int | None, form: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    layer = Attention(WIDTH, HEADS, bias=True, initial_factor=0.7, experts=experts).to(DEVICE)
    rows = torch.randn(3, num_rows, WIDTH) if experts is None else torch.randn(experts, 3, num_rows, WIDTH)
    rows, rotation = rows.to(DEVICE), tables(num_rows, form)
    found = results(layer, rows, rotation, num_queries, True, monkeypatch)
    wanted = results(layer, rows, rotation, num_queries, False, monkeypatch)
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours - theirs).norm() < 1e-5 * theirs.norm()


@pytest.mark.first_light
def test_tables_of_the_first_rows_serve_too(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer, rows = Attention(WIDTH, HEADS).to(DEVICE), torch.randn(3, 7, WIDTH).to(DEVICE)
    rotation = tables(9, "proper").first(7)
    found = results(layer, rows, rotation, 7, True, monkeypatch)
    torch.testing.assert_close(found, results(layer, rows, rotation, 7, False, monkeypatch), rtol=1e-5, atol=1e-5)


def test_kernels_are_launched_where_their_arguments_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not on the current device, which is another one for networks on a second card."""
    entered = []

    class Noted(torch.cuda.device_of):
        def __init__(self, values: Tensor) -> None:
            entered.append(values.device)
            super().__init__(values)

    monkeypatch.setattr(torch.cuda, "device_of", Noted)
    results(Attention(WIDTH, HEADS).to(DEVICE), torch.randn(3, 5, WIDTH).to(DEVICE), None, 5, True, monkeypatch)
    assert entered == 2 * [torch.zeros(0, device=DEVICE).device]


@pytest.mark.first_light
def test_bfloat16_stays_close_to_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    packed = torch.randn(3, 9, 3, HEADS, WIDTH // HEADS, device=DEVICE).bfloat16()
    rotation = tables(9, "proper")
    found, wanted = packed.clone().requires_grad_(), packed.float().requires_grad_()
    ours, exact = short_attention(found, rotation, 7), short_attention(wanted, rotation, 7)
    assert ours.dtype == torch.bfloat16
    weights = torch.randn_like(exact).bfloat16()
    (ours * weights).sum().backward()
    (exact * weights).sum().backward()
    assert (ours - exact).norm() < 0.01 * exact.norm()
    assert (found.grad - wanted.grad).norm() < 0.02 * wanted.grad.norm()


def test_a_compiler_sees_one_operation() -> None:
    packed = torch.randn(3, 5, 3, HEADS, WIDTH // HEADS, device=DEVICE, requires_grad=True)
    rotation = tables(5, "proper")
    torch.library.opcheck(short_attention_module._attention, (packed, rotation.cosine, rotation.sine, 4))


def test_only_few_rows_in_bfloat16_on_a_gpu_take_the_kernels() -> None:
    assert not is_short(torch.zeros(1, 5, 3, 8, 16))
    assert not is_short(torch.zeros(1, 5, 3, 8, 16, dtype=torch.bfloat16))


@pytest.mark.parametrize("num_rows", [57, 107, 134])
def test_kernels_compile_for_a_gpu_without_spilling(num_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    launches = record_launches(monkeypatch, kernels)
    packed = torch.zeros(1, num_rows, 3, 8, 16, dtype=torch.bfloat16, device=DEVICE, requires_grad=True)
    for rotation in (None, tables(num_rows, "proper", count=1)):
        short_attention(packed, rotation, num_rows - MEMORY_ROWS).sum().backward()
    compiled = compile_launches(launches)
    assert [entry["kernel"] for entry in compiled] == 2 * ["attention_forward", "attention_backward"]
    for entry in compiled:
        assert entry["spilled"] == 0, entry
        assert entry["shared"] < SHARED_MEMORY_LIMIT, entry
