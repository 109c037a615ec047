"""The table of where a network helps: rows once each, also after a crash, and what the table says of them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from helpers.benchmark_scripts import loaded_script
from polarvrp.config.model import ModelConfig
from polarvrp.model.registry import build_policy
from polarvrp.model.saving import save_policy


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The script as a module, for instances of 8 customers."""
    policy = build_policy(ModelConfig(width=32, heads=4, layers=1, feedforward_width=32), seed=0)
    save_policy(tmp_path / "weights.safetensors", policy, {"run": "polarnet-ple-polar-n50-s0"})
    with loaded_script("solve") as module:
        monkeypatch.setattr(module, "GENERATED_CUSTOMERS", 8)
        yield module


def call(module: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str) -> list[dict[str, object]]:
    """Rows after a call of the script."""
    rows = folder / "rows.jsonl"
    words = ["solve.py", "--seconds", "0.1", "--model", str(folder), "--output", str(rows), *options]
    monkeypatch.setattr(sys, "argv", words)
    assert module.main() == 0
    return list(module.read_rows(rows))


def test_every_kind_by_every_method_and_nothing_twice(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = list(benchmark.KINDS)
    rows = call(benchmark, monkeypatch, tmp_path, "--instances", "1", "--kinds", *kinds)
    assert [(row["kind"], row["method"]) for row in rows] == [(k, m) for k in kinds for m in benchmark.SHARES]
    assert all(row["num_customers"] == 8 for row in rows)
    path = tmp_path / "rows.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], lines[-1][:30]]))  # as a crash leaves it
    again = call(benchmark, monkeypatch, tmp_path, "--instances", "1", "--kinds", *kinds)
    assert again[:-1] == rows[:-1] and again[-1]["method"] == rows[-1]["method"]
    assert "| VRPTW" in capsys.readouterr().out
    benchmark.print_tables(pd.DataFrame(again))
    printed = capsys.readouterr().out
    kept = tmp_path / "rows.parquet"
    pd.DataFrame(again).to_parquet(kept)
    benchmark.print_tables(pd.DataFrame(benchmark.read_rows(kept)))
    assert capsys.readouterr().out == printed
    with pytest.raises(SystemExit):
        call(benchmark, monkeypatch, tmp_path, "--output", str(kept))


def test_gaps_and_verdicts(benchmark: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """Set-X against the best known, others against their best row; a network without a tour has no mean."""
    costs: dict[str, tuple[float | None, dict[str, float | None]]] = {
        "a": (110.0, {"network": 132.0, "PyVRP": 121.0, "both": 110.0}),
        "b": (None, {"network": 120.0, "PyVRP": 100.0, "both": 105.0}),
        "c": (None, {"network": None, "PyVRP": 100.0, "both": 100.0}),
    }
    kinds = {"a": "Set-X, n < 250", "b": "OVRP", "c": "OVRP"}
    rows = [
        {
            "kind": kinds[name],
            "instance": name,
            "method": method,
            "limit_seconds": 1.0,
            "best_known": best,
            "cost": cost,
            "from_network": name == "a",
        }
        | {"starts": 8, "symmetries": 2, "model": "m", "threads": 2, "pyvrp": "0", "cpu": "c", "date": "d"}
        for name, (best, found) in costs.items()
        for method, cost in found.items()
    ]
    benchmark.print_tables(pd.DataFrame(rows))
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    table = {line[0]: line[1:] for line in cells if line}
    assert table["Set-X, n < 250"] == ["1", "20.00", "10.00", "0.00", "1/0/0", "8 x 2"]
    assert table["OVRP"] == ["2", "–", "0.00", "2.50", "0/1/1", "8 x 2"]
    assert "Both against PyVRP: -1.36 % in the mean; begun at the network's tour: 33 %." in lines
    assert json.dumps(rows)  # rows are what lines hold


def test_classes_of_set_x(benchmark: ModuleType) -> None:
    cases = {kind: [case.library for case in benchmark.cases_of(kind, 3)] for kind in benchmark.SET_X_CLASSES}
    sizes = {kind: [library.num_customers for library in found] for kind, found in cases.items()}
    assert {kind: (found[0], len(found), found[-1]) for kind, found in sizes.items()} == {
        "Set-X, n < 250": (100, 3, 246),
        "Set-X, 250 to 500": (250, 3, 490),
        "Set-X, n > 500": (501, 3, 1000),
    }
