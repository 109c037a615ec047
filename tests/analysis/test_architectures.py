"""Sizes of networks against counts by hand."""

from pathlib import Path

import pytest

from polarvrp.analysis import architectures
from polarvrp.catalog.backbones import BACKBONES
from polarvrp.cli.main import main
from polarvrp.files import read_parquet


@pytest.fixture
def two_backbones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(architectures, "BACKBONES", {name: BACKBONES[name] for name in ("moses", "polarnet")})


def encoder_by_hand(num_customers: int, blocks: int) -> int:
    """Multiply-adds of an encoder of dense pre-norm blocks: embedding, four maps, attention, and a SwiGLU, each."""
    nodes = num_customers + 1
    embedding = 3 * 128 + 7 * 128 * num_customers
    maps, attention, feedforward = 4 * 128 * 128 * nodes, 2 * nodes * nodes * 128, 3 * 128 * 512 * nodes
    return embedding + blocks * (maps + attention + feedforward)


def decoder_by_hand(num_customers: int) -> int:
    """Keys and values once; a query, a glimpse of all nodes and a gated head for each step from each start."""
    nodes, steps = num_customers + 1, round(1.2 * num_customers)
    query, state, output = 133 * 128, 5 * 128, 128 * 128
    gate = 133 * 8
    head, glimpse, pointer = 3 * 128 * 512, 2 * nodes * 128, nodes * 128
    step = query + gate + state + output + head + glimpse + pointer
    return 2 * 128 * 128 * nodes + num_customers * steps * step


@pytest.mark.usefixtures("two_backbones")
def test_sizes_are_those_counted_by_hand(tmp_path: Path) -> None:
    output = tmp_path / "architectures.parquet"
    assert main(["analyse", "architectures", "--num-customers", "5", "10", "--output", str(output)]) == 0
    rows = {(row["backbone"], row["encoder"], row["num_customers"]): row for row in read_parquet(output).to_pylist()}
    assert len(rows) == 2 * (1 + 3)
    for size in (5, 10):
        for encoder, blocks in (("shared", 6), ("deep", 24)):
            row = rows["polarnet", encoder, size]
            assert row["encoder_multiply_adds"] == encoder_by_hand(size, blocks)
            assert row["decoder_multiply_adds"] == decoder_by_hand(size)
            assert row["steps"] == round(1.2 * size)
        assert rows["polarnet", "ple", size]["decoder_multiply_adds"] == decoder_by_hand(size)
    assert {key[1]: row["parameters"] for key, row in rows.items() if key[::2] == ("polarnet", 5)} == {
        "shared": 1_841_576,
        "deep": 6_567_080,
        "ple": 6_983_414,
    }
    assert rows["moses", "shared", 10]["parameters"] == 10_139_455  # with the adapters of its last stage
