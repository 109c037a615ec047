"""The table of ``polarvrp solve``: rows of several calls in one file."""

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from polarvrp.files import write_rows
from polarvrp.library import results
from polarvrp.library.inputs import InputFile
from polarvrp.library.results import SOLUTIONS, Outcome, write_outcomes

SETTINGS: dict[str, Any] = {"limit_seconds": 1.0, "seed": 0, "models": {}}


def bad(name: str) -> list[Outcome]:
    """What became of a file that could not be read."""
    return [Outcome(InputFile(Path(name), Path(name).with_suffix("")), problem="unknown format")]


def test_calls_side_by_side_lose_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes between another's reading and writing of the table waits until it is written."""
    output, others = tmp_path / "out", list[threading.Thread]()

    def write_late(path: Path, rows: Iterable[Mapping[str, Any]], schema: Any, provenance: Mapping[str, Any]) -> None:
        if not others:
            others.append(threading.Thread(target=write_outcomes, args=(output, bad("b.vrp"), SETTINGS)))
            others[0].start()
            others[0].join(timeout=1.0)
        write_rows(path, rows, schema, provenance)

    monkeypatch.setattr(results, "write_rows", write_late)
    assert write_outcomes(output, bad("a.vrp"), SETTINGS) == 1
    others[0].join()
    assert pq.read_table(output / SOLUTIONS)["file"].to_pylist() == ["a.vrp", "b.vrp"]
    assert [path.name for path in output.iterdir()] == [SOLUTIONS]
