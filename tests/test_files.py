"""Files appear whole or not at all."""

import errno
import os
from pathlib import Path

import pytest

from polarvrp.cli.main import main
from polarvrp.errors import DataError
from polarvrp.files import atomic_folder, atomic_path, write_text


def test_a_file_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file.txt"
    write_text(target, "one")
    write_text(target, "two")
    assert target.read_text() == "two"
    assert list(target.parent.iterdir()) == [target]


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
