"""Arrays on disk: ``.npz`` archives, written whole, checked to the last byte, read as far as they are wanted.

How a set was made is kept as JSON in the comment of the zip archive, where readers that know nothing of it never meet
it.
"""

import json
import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from polarvrp.errors import DataError
from polarvrp.files import atomic_path, reading

END_OF_ARCHIVE = 22
"""Bytes of the last record of a zip archive, its comment apart."""

BLOCK = 2**20
"""Bytes read at a time."""

EVERY_ROW = slice(None)

Arrays = Mapping[str, NDArray[Any]]


def write_arrays(path: str | Path, arrays: Arrays, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a set atomically; the same arrays and metadata give the same bytes.

    Args:
        path: Ends in ``.npz``.
        arrays: The published layout, e.g. from ``generate_arrays``.
        metadata: How the set was made, kept as JSON.
    """
    with atomic_path(path) as temporary:
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        if metadata is not None:
            with zipfile.ZipFile(temporary, "a") as archive:
                archive.comment = json.dumps(dict(metadata), sort_keys=True).encode()


def read_arrays(path: str | Path, rows: slice = EVERY_ROW) -> dict[str, NDArray[Any]]:
    """Arrays of a set by name, as stored.

    Args:
        path: The file.
        rows: Which rows of the arrays are kept. The others are read too, for the sake of their checksums, but take no
            memory. Arrays that differ in their number of rows are kept whole.

    Raises:
        DataError: If the file is missing, no ``.npz`` archive, truncated or corrupt, holds pickled objects, or lacks
            members that its directory counts.
    """
    with _archive(path) as archive:
        members = archive.namelist()
        if len({shape[:1] for shape in _shapes(archive).values()}) > 1:
            rows = EVERY_ROW
        return {member.removesuffix(".npy"): _read_member(archive, member, rows) for member in members}


def read_shapes(path: str | Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays of a set by name, without their content.

    Raises:
        DataError: If the file is missing, no ``.npz`` archive, or corrupt where it says what it holds.
    """
    with _archive(path) as archive:
        return _shapes(archive)


def read_metadata(path: str | Path) -> dict[str, Any] | None:
    """How the set was made, or None where the file does not say.

    Raises:
        DataError: If the file is missing or no ``.npz`` archive.
    """
    with _reading(path), zipfile.ZipFile(path) as archive:
        comment = archive.comment
    try:
        metadata = json.loads(comment)
    except ValueError:
        return None
    return metadata if isinstance(metadata, dict) else None


@contextmanager
def _archive(path: str | Path) -> Iterator[zipfile.ZipFile]:
    """An archive, open for reading."""
    with _reading(path), Path(path).open("rb") as file:
        if not zipfile.is_zipfile(file):
            if Path(path).suffix.lower() != ".npz":
                raise DataError(f"{path}: no .npz archive; files of single instances are for polarvrp solve")
            raise DataError(f"{path}: no .npz archive, or a truncated one; generate or download it again")
        with zipfile.ZipFile(file) as archive:
            _require_members(file, archive)
            yield archive


def _reading(path: str | Path) -> AbstractContextManager[None]:
    """``files.reading`` for archives; an encrypted one is a RuntimeError."""
    damage = "is damaged or of another layout ({reason}); generate or download it again"
    return reading(path, damage=damage, damages=(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError))


def _require_members(file: BinaryIO, archive: zipfile.ZipFile) -> None:
    """As many members as the end of the archive counts: Python's reader lets a changed length swallow one."""
    names = archive.namelist()
    end = file.seek(-END_OF_ARCHIVE - len(archive.comment), os.SEEK_END)
    counted = int.from_bytes(file.read(END_OF_ARCHIVE)[10:12], "little")
    if counted != len(names) or len(set(names)) < len(names):
        raise ValueError(f"{len(names)} members instead of {counted} before byte {end}")


def _shapes(archive: zipfile.ZipFile) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for member in archive.namelist():
        with archive.open(member) as stream:
            shapes[member.removesuffix(".npy")] = _read_header(stream)[0]
    return shapes


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether the first axis varies fastest, and type of the array that follows."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"arrays of version {version} are not known")


def _read_member(archive: zipfile.ZipFile, member: str, rows: slice) -> NDArray[Any]:
    """Rows of an array; the stream is read to its end, where its checksum is compared."""
    with archive.open(member) as stream:
        shape, is_fortran, dtype = _read_header(stream)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or stream.tell() + size != archive.getinfo(member).file_size:
            raise ValueError(f"{member} holds objects, or more or less than it says")
        if is_fortran or not shape:
            array = _next_array(stream, shape[::-1], dtype).T
            array = array[rows] if shape else array
        else:
            start, stop, _ = rows.indices(shape[0])
            before = start * math.prod(shape[1:]) * dtype.itemsize
            for passed in range(0, before, BLOCK):
                stream.read(min(BLOCK, before - passed))
            array = _next_array(stream, (stop - start, *shape[1:]), dtype)
        while stream.read(BLOCK):
            pass
    return array


def _next_array(stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    array = np.empty(shape, dtype)
    content = array.reshape(-1).view(np.uint8).data
    for start in range(0, len(content), BLOCK):
        part = content[start : start + BLOCK]
        part[:] = stream.read(len(part))  # a ValueError if there is less
    return array
