"""Writing files so that a reader never meets half of one, and that say where they come from."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polarvrp.errors import DataError

PROVENANCE = b"polarvrp"
"""Key of the provenance in the metadata of a Parquet file's schema."""


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it replaces ``path``, on failure it is removed.

    Args:
        path: Final path; missing parent folders are created.

    Yields:
        A path with the same suffix in the same folder, to be written by the caller.

    Raises:
        DataError: If nothing can be written there.
    """
    final = Path(path)
    if final.is_dir():
        raise DataError(f"{final} is a folder; name a file to write")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=final.parent, prefix=f".{final.stem}-", suffix=final.suffix)
    except OSError as error:
        raise DataError(f"{final} cannot be written ({error.strerror}); choose another path") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(final)
    except OSError as error:
        raise DataError(
            f"{final} cannot be written ({error.strerror or error}); free space or choose another path"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; on success it takes the place of ``path``, on failure it is removed.

    Args:
        path: Final folder; missing parents are created, a folder that is there is replaced as a whole.

    Yields:
        An empty folder, to be filled by the caller.

    Raises:
        DataError: If nothing can be written there.
    """
    final = Path(path).resolve()
    if final.exists() and not final.is_dir():
        raise DataError(f"{path} is a file; name a folder to write")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=final.parent, prefix=f".{final.name}-"))
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}); choose another folder") from error
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        for inner in temporary.rglob("*"):
            inner.chmod((0o777 if inner.is_dir() else 0o666) & ~_umask())
        _swap(temporary, final)
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({error.strerror or error}); free space or choose another folder"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def with_provenance(schema: Any, provenance: Mapping[str, Any]) -> Any:
    """An Arrow schema that carries ``provenance`` as JSON in its metadata."""
    return schema.with_metadata({PROVENANCE: json.dumps(dict(provenance), sort_keys=True).encode()})


def write_rows(path: str | Path, rows: Iterable[Mapping[str, Any]], schema: Any, provenance: Mapping[str, Any]) -> None:
    """Write rows as a Parquet file, atomically.

    Args:
        path: Final path.
        rows: One mapping a row, column to value.
        schema: Arrow schema of the file.
        provenance: Where the rows come from, anything JSON can hold.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist([dict(row) for row in rows], schema=with_provenance(schema, provenance))
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def _swap(new: Path, final: Path) -> None:
    """Put a folder in the place of another, which goes only when that worked."""
    if not final.exists():
        new.rename(final)
        return
    aside = new.with_name(f"{new.name}-old")
    final.rename(aside)
    try:
        new.rename(final)
    except OSError:
        aside.rename(final)
        raise
    shutil.rmtree(aside)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
