"""``polarvrp doctor`` without a card: what the machine is, and the self-check in Triton's interpreter."""

from importlib.metadata import version

import pytest
import torch

from polarvrp.cli.main import main

pytest.importorskip("triton")

from triton.language import constexpr

from polarvrp.decoding.fused import self_check
from polarvrp.decoding.fused.kernels import pointer

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="faults are planted in the interpreter")


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "_faults", {})


def test_the_machine_without_a_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split(" ")[0] for line in lines]
    assert names == ["machine", "versions", "card", "copies", "products", "engine", ""]
    assert f"torch {version('torch')}" in lines[1]
    assert lines[2].split()[1] == "none:"
    assert "level fused agrees with level parallel in Triton's interpreter" in lines[5]
    assert "need a card" in lines[6]


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(pointer, "CLIP", constexpr(6.0))
    assert main(["doctor"]) == 1
    assert "level fused fails: mean likelihood error is" in capsys.readouterr().out
