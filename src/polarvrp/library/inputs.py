"""Files that a user names: one by one, by folder or by pattern."""

import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from polarvrp.errors import ConfigError, DataError
from polarvrp.files import is_file, resolved
from polarvrp.study.external import require_workflow_path

SUFFIXES = frozenset({"", ".dat", ".mdvrp", ".ovrp", ".txt", ".vrp", ".vrpb", ".vrpbtw", ".vrptw"})
"""Files of a folder that are taken for instances, in any case; Cordeau's have none."""

UNFIT_FOR_JOBS = re.compile(r"[$`\"'\\]")
"""What a shell, to which Snakemake's plugins for clusters give names of jobs, reads as its own."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to be solved.

    Attributes:
        path: Where it lies.
        stem: Its path below the folder or pattern it was named by, without suffix: what its results are called.
    """

    path: Path
    stem: Path

    @property
    def whole_path(self) -> Path:
        """The same from whatever folder it was named; its own name stays, be it that of a link."""
        return resolved(self.path.parent) / self.path.name


def input_files(names: Iterable[str]) -> list[InputFile]:
    """Files that names stand for, in order; those of a folder, and of its folders, are sorted.

    What is closed or a link to nothing is among them, for reading it to say so.

    Args:
        names: Files, folders or patterns such as ``X/*.vrp``.

    Raises:
        DataError: If a folder holds no instance, or a pattern none but solutions (``.sol``).
        ConfigError: If two files would be solved under one name.
    """
    found: dict[Path, InputFile] = {}
    for name in names:
        for file in _files_of(name):
            other = found.setdefault(file.stem, file)
            if resolved(other.path) != resolved(file.path):
                raise ConfigError(f"{other.path} and {file.path} would share the name {file.stem}; solve them apart")
    return list(found.values())


def job_files(folder: str) -> dict[str, Path]:
    """Files of the configuration's ``solve.folder`` by what their results are called, each for a job of the workflow.

    Raises:
        ConfigError: If there is no such folder, or a file has a name that no job can have; else as ``input_files``.
    """
    if folder.startswith("-"):
        raise ConfigError(f"solve.folder {folder!r} begins as an option does; write its whole path")
    files = {str(file.stem): file.path for file in input_files([folder])}
    absent = next((path for path in files.values() if not is_file(path)), None)
    if absent is not None:
        raise ConfigError(f"solve.folder: {absent} does not exist; name the folder of your files")
    for stem, path in files.items():
        require_workflow_path(path, "solve.folder")
        if UNFIT_FOR_JOBS.search(stem):
            raise ConfigError(
                f"solve.folder: {str(path)!r} has a quote, a backslash, $ or ` in its name; rename it or give it to "
                "polarvrp solve"
            )
    return files


def _files_of(name: str) -> list[InputFile]:
    path = Path(name)
    mode = _mode(path)
    if stat.S_ISDIR(mode or 0):
        files = sorted(_instances_below(path))
        if not files:
            raise DataError(f"{name} holds no instance; files of instances end in {', '.join(sorted(SUFFIXES - {''}))}")
        return [InputFile(file, file.relative_to(path).with_suffix("")) for file in files]
    if mode is None and glob.has_magic(name):
        matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207  # of Path it would take no absolute pattern
        files = [file for match in matches if _may_be_file(file := Path(match)) and file.suffix.lower() != ".sol"]
        if not files:
            raise DataError(f"no instance matches {name}; check the pattern")
        return [InputFile(file, Path(file.stem)) for file in files]
    return [InputFile(path, Path(path.stem))]


def _instances_below(folder: Path) -> Iterator[Path]:
    """Files of a folder and of its folders that are taken for instances, and ``*`` of each folder that is closed."""
    closed: list[OSError] = []
    for place, folders, names in os.walk(folder, onerror=closed.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files = (Path(place, name) for name in names if not name.startswith("."))
        yield from (file for file in files if file.suffix.lower() in SUFFIXES and _may_be_file(file))
    yield from (Path(error.filename, "*") for error in closed)


def _may_be_file(path: Path) -> bool:
    """Whether a path is a file, or one cannot know; pipes, sockets and folders are told apart."""
    mode = _mode(path)
    return mode is None or stat.S_ISREG(mode)


def _mode(path: Path) -> int | None:
    """What is at the end of a path's links; None if nothing is, or the system does not tell."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return None
