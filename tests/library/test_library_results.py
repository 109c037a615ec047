"""The table of ``polarvrp solve``: rows of several calls in one file."""

import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from polarvrp.files import write_rows
from polarvrp.library import results
from polarvrp.library.inputs import InputFile
from polarvrp.library.results import COMMAND, SCHEMA, SOLUTIONS, Outcome, write_outcomes

SETTINGS: dict[str, Any] = {"limit_seconds": 1.0, "seed": 0, "models": {}}


def bad(name: str) -> list[Outcome]:
    """What became of a file that could not be read."""
    return [Outcome(InputFile(Path(name), Path(name).with_suffix("")), problem="unknown format")]


def files_in(folder: Path) -> list[Any]:
    """Files that a table has rows of, in their order."""
    files: list[Any] = pq.read_table(folder / SOLUTIONS)["file"].to_pylist()
    return files


def test_what_writes_the_table_is_loaded_before_anything_is_solved() -> None:
    """Ctrl-C while it loads would leave no table."""
    code = "import sys, polarvrp.library.results; print({'pyarrow.compute', 'pyarrow.parquet'} <= set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


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
    assert files_in(output) == [str(Path.cwd() / name) for name in ("a.vrp", "b.vrp")]
    assert [path.name for path in output.iterdir()] == [SOLUTIONS]


def test_a_file_has_one_row_from_whatever_folder_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a table of an earlier version, which has paths as they were typed, if the folder is that of then."""
    inner, output = tmp_path / "a", tmp_path / "out"
    inner.mkdir()
    monkeypatch.chdir(tmp_path)
    typed: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    write_rows(output / SOLUTIONS, [typed | {"file": "a/x.vrp"}], SCHEMA, COMMAND)
    assert write_outcomes(output, bad("a/x.vrp"), SETTINGS) == 1
    assert files_in(output) == [str(inner / "x.vrp")]
    monkeypatch.chdir(inner)
    assert write_outcomes(Path("../out"), bad("x.vrp"), SETTINGS) == 1
    assert write_outcomes(Path("../out"), bad("../x.vrp"), SETTINGS) == 2
    assert files_in(output) == [str(inner / "x.vrp"), str(tmp_path / "x.vrp")]


def test_whole_paths_follow_links_of_folders_and_keep_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a link to an instance is called says more than what it leads to."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "link").symlink_to("inner")
    (tmp_path / "inner" / "x.vrp").symlink_to("content")
    for folder, name in ((".", "link/x.vrp"), ("inner", "x.vrp"), ("inner", "../link/x.vrp")):
        monkeypatch.chdir(tmp_path / folder)
        assert InputFile(Path(name), Path("x")).whole_path == tmp_path / "inner" / "x.vrp"
