"""Files appear whole or not at all."""

import errno
import fcntl
import logging
import os
import random
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from polarvrp.cli.main import main
from polarvrp.errors import DataError
from polarvrp.files import (
    atomic_folder,
    atomic_path,
    exists,
    file_digest,
    provenance,
    read_parquet,
    try_lock,
    write_figure,
    write_parquet,
    write_text,
)


def test_a_file_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file.txt"
    write_text(target, "one")
    write_text(target, "two")
    assert target.read_text() == "two"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize(
    ("content", "digest"),  # of FIPS 180-4's examples
    [
        (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (b"a" * 10**6, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
    ],
)
def test_a_file_is_known_by_the_digest_of_its_content(tmp_path: Path, content: bytes, digest: str) -> None:
    (tmp_path / "file").write_bytes(content)
    assert file_digest(tmp_path / "file") == digest


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_names_in_a_figure_are_no_formulas(tmp_path: Path, suffix: str) -> None:
    """Wherever they stand; only the powers of ten of a logarithmic axis are formulas."""
    name, path = r"a$\frac{$b", tmp_path / f"x.{suffix}"
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    line = Line2D([], [], label=f"{name} in the legend")
    axes.set(title=f"{name} title\0\x1b", xlabel=f"{name} xlabel", ylabel=f"{name} ylabel", xscale="log", xlim=(1, 1e4))
    axes.set_yticks([0, 1], [f"{name} one", f"{name} two"])
    axes.annotate(f"{name} note", (10, 0.5))
    figure.suptitle(f"{name} head\nline")
    figure.legend(handles=[line])
    with mpl.rc_context({"svg.fonttype": "none"}):
        write_figure(path, figure)
    texts = {text.get_text() for text in figure.findobj(Text)}
    assert f"{name} title" in texts and f"{name} head\nline" in texts
    if suffix == "svg":
        drawn = path.read_text(encoding="utf-8")
        for place in ("in the legend", "title", "xlabel", "ylabel", "one", "two", "note", "head"):
            assert f"{name} {place}" in drawn
        assert r">$\mathdefault" not in drawn


def test_a_failure_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    write_text(target, "old")
    with pytest.raises(RuntimeError), atomic_path(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_and_a_path_below_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder"), atomic_path(tmp_path):
        pass
    write_text(tmp_path / "file.txt", "")
    with pytest.raises(DataError, match="cannot be written"), atomic_path(tmp_path / "file.txt" / "other.txt"):
        pass


def test_commands_report_an_output_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    output = tmp_path / "file" / "set.npz"
    words = ["--variant", "CVRP", "--num-customers", "5", "--instances", "1", "--seed", "1"]
    assert main(["generate", *words, "--output", str(output)]) == 2
    assert capsys.readouterr().err.startswith(f"polarvrp generate: {output} cannot be written")


def test_a_full_disk_is_one_line_and_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    write_text(target, "old")
    with pytest.raises(DataError, match=r"file\.txt cannot be written \(No space left on device\)"):  # noqa: SIM117
        with atomic_path(target):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder"
    for name in ("one", "two"):
        with atomic_folder(target) as temporary:
            (temporary / name).write_text("")
            (temporary / name).chmod(0o600)
    assert [path.name for path in target.iterdir()] == ["two"]
    (tmp_path / "plain").write_text("")
    assert (target / "two").stat().st_mode == (tmp_path / "plain").stat().st_mode
    with pytest.raises(RuntimeError), atomic_folder(target) as temporary:
        (temporary / "half").write_text("")
        raise RuntimeError
    assert [path.name for path in target.iterdir()] == ["two"]
    assert list(target.parent.iterdir()) == [target]
    with pytest.raises(DataError, match="is a file; name a folder"), atomic_folder(target / "two"):
        pass


TABLE = pa.table(
    {
        "number": pa.array([1, None, 3], pa.int32()),
        "cost": [0.5, 1.5, None],
        "name": ["a", None, "bc"],
        "nodes": pa.array([[1, 2], None, []], pa.list_(pa.uint16())),
        "right": [True, False, None],
    }
)


def test_parquet_files_keep_values_types_and_origin(tmp_path: Path) -> None:
    write_parquet(tmp_path / "x.parquet", TABLE, {"made": "here"})
    read = read_parquet(tmp_path / "x.parquet")
    assert read.equals(TABLE)
    assert provenance(read) == {"made": "here"}
    pq.write_table(TABLE, tmp_path / "foreign.parquet")
    assert read_parquet(tmp_path / "foreign.parquet").equals(TABLE)
    assert provenance(read_parquet(tmp_path / "foreign.parquet")) == {}


def test_no_flipped_bit_of_a_parquet_file_changes_what_is_read(tmp_path: Path) -> None:
    path, draw = tmp_path / "x.parquet", random.Random(0)
    write_parquet(path, pa.table({"cost": [draw.random() for _ in range(300)], "run": ["a"] * 300}), {"made": "here"})
    whole, content = read_parquet(path), path.read_bytes()
    refused = 0
    for _ in range(300):
        place = draw.randrange(8 * len(content))
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            read = read_parquet(path)
        except DataError as error:
            assert str(error).startswith(f"{path} is no complete Parquet file (")
            assert "\n" not in str(error)
            refused += 1
        else:
            assert read.equals(whole) and provenance(read) == provenance(whole)
    assert refused > 150


def test_a_value_changed_by_another_program_is_told_from_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_parquet(path, pa.table({"cost": [1.0]}), {})
    schema = pq.read_schema(path)
    pq.write_table(pa.table({"cost": [0.5]}).replace_schema_metadata(schema.metadata), path)
    with pytest.raises(DataError, match="its content was changed after it was written"):
        read_parquet(path)


def test_columns_named_twice_or_in_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["cost", "cost"]), path)
    with pytest.raises(DataError, match="it names a column twice"):
        read_parquet(path)
    pq.write_table(pa.table({"costs": [1]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"costs", b"c\xffsts"))
    with pytest.raises(DataError, match="is no complete Parquet file"):
        read_parquet(path)


def test_what_the_system_refuses_is_said_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"missing\.parquet does not exist; make it"):
        read_parquet(tmp_path / "missing.parquet", "make it")
    with pytest.raises(DataError, match="is a folder; name a file"):
        read_parquet(tmp_path)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(DataError, match=r"loop cannot be read \(Too many levels of symbolic links\)"):
        read_parquet(tmp_path / "loop")
    with pytest.raises(DataError, match="File name too long"):
        read_parquet(tmp_path / ("x" * 300))
    with pytest.raises(DataError, match=r"cannot be looked at \(File name too long\)"):
        exists(tmp_path / ("x" * 300))
    assert exists(tmp_path / "loop") and not exists(tmp_path / "none")


def test_only_a_lock_that_another_process_holds_means_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file system without locks answers otherwise: one true line, and the work goes on."""
    path = tmp_path / "lock"
    with path.open("w") as mine, path.open("w") as other:
        assert try_lock(mine, path)
        assert not try_lock(other, path)

    def without_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without_locks)
    with caplog.at_level(logging.WARNING), path.open("w") as mine:
        assert try_lock(mine, path)
    assert caplog.messages == [
        f"{path}: its file system has no locks (No locks available); let no other process work on the same"
    ]


KILLED = """
import os, signal, sys
from pathlib import Path
from polarvrp.files import atomic_folder, atomic_path
with atomic_folder(Path(sys.argv[1]) / "folder") as folder, atomic_path(Path(sys.argv[1]) / "plot.png") as path:
    (folder / "half").write_text("half")
    path.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_goes_with_the_next_one(tmp_path: Path) -> None:
    """And nothing else: neither what a living process is at, nor what only looks alike."""
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    left = {path.name for path in tmp_path.iterdir()}
    assert len(left) == 2 and all(name.startswith((".plot-", ".folder-")) for name in left)
    write_text(tmp_path / ".plot-mine.png", "")
    with atomic_path(tmp_path / "plot.png") as other:
        write_text(tmp_path / "plot.png", "whole")
        assert other.exists()
        with atomic_folder(tmp_path / "folder"):
            pass
    assert {path.name for path in tmp_path.iterdir()} == {"plot.png", "folder", ".plot-mine.png"}
