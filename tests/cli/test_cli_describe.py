"""``polarvrp describe``: JSON with the right counts, and one line for a network that does not exist."""

import json
from typing import Any

import pytest

from polarvrp.catalog.backbones import BACKBONES, Backbone
from polarvrp.cli.main import main


def described(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["describe", *words]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "parameters"),
    [
        (("polarnet", "shared"), 1_841_576),
        (("polarnet", "ple"), 6_983_414),
        (("polarnet", "ple", "--task-experts", "2"), 5_407_472),
        (("cada", "shared", "--num-customers", "100"), 3_421_488),
        (("moses", "shared"), 10_139_455),
    ],
)
def test_parameters(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...] | tuple[str, str], parameters: int
) -> None:
    found = described(capsys, *words)
    assert found["parameters"] == sum(found["parameters_by_part"].values()) == parameters
    assert (found["backbone"], found["encoder"]) == words[:2]


def test_parts_name_what_the_network_is_made_of(capsys: pytest.CaptureFixture[str]) -> None:
    parts = described(capsys, "polarnet", "ple")["parts"]
    assert parts["stack"] == "ple"
    assert parts["decoder"]["head"] == "gated"
    assert (parts["task_experts"], parts["prompt_tokens"], parts["rope"]) == (3, 6, "proper")


def test_multiply_adds_of_the_shared_encoder_and_its_decoder(capsys: pytest.CaptureFixture[str]) -> None:
    """Closed forms: maps of every row, attention of every pair of rows, 50 starts of 60 steps."""
    found = described(capsys, "polarnet", "shared")["multiply_adds"]
    rows, d, f = 51, 128, 512
    block = rows * (4 * d * d + 3 * d * f) + 2 * rows * rows * d
    assert found["encoder"] == 6 * block + 3 * d + 50 * 7 * d
    query = (d + 5) * d + 2 * rows * d + (d + 5) * 8 + d * d + 5 * d + 3 * d * f + rows * d
    assert found["steps"] == 60
    assert found["decoder"] == rows * 2 * d * d + 60 * 50 * query
    assert found["total"] == found["encoder"] + found["decoder"]


def test_a_record_without_architecture_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(BACKBONES, "mine", Backbone("mine", "Mine"))
    assert main(["describe", "mine", "shared"]) == 2
    error = "polarvrp describe: backbone mine has no architecture; its record must name one\n"
    assert capsys.readouterr() == ("", error)


def test_an_unknown_pair_ends_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "cada", "deep"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert "no backbone 'cada' with encoder 'deep'; there are mtpomo-shared" in output.err
