"""Files on disk: written whole or not at all, with origin and digest; read with one true line for each fault."""

import fcntl
import hashlib
import io
import json
import logging
import os
import platform
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from polarvrp.errors import DataError

_LOGGER = logging.getLogger(__name__)
_MACHINE = f"{zlib.crc32(platform.node().encode()):08x}"

PROVENANCE = b"polarvrp"
"""Key of the provenance in the metadata of a Parquet file's schema."""

DIGEST = b"polarvrp-sha256"
"""Key of the digest of provenance and columns, by which a flipped bit is found wherever it is."""

DAMAGES = (ValueError, TypeError, KeyError, EOFError, MemoryError, OverflowError, RecursionError)
"""What parsers raise on damaged content; most errors of libraries derive from one of them."""


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
    if is_folder(final):
        raise DataError(f"{final} is a folder; name a file to write")
    with writing(final, "choose another path"):
        final.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(final)
        handle, name = tempfile.mkstemp(dir=final.parent, prefix=_temporary_prefix(final), suffix=final.suffix)
        os.close(handle)
    temporary = Path(name)
    try:
        with writing(final):
            yield temporary
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(final)
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
    if exists(final) and not is_folder(final):
        raise DataError(f"{path} is a file; name a folder to write")
    with writing(path, "choose another folder"):
        final.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(final)
        temporary = Path(tempfile.mkdtemp(dir=final.parent, prefix=_temporary_prefix(final), suffix=final.suffix))
    try:
        with writing(path, "free space or choose another folder"):
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            for inner in temporary.rglob("*"):
                inner.chmod((0o777 if inner.is_dir() else 0o666) & ~_umask())
            _swap(temporary, final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_figure(path: str | Path, figure: Any, **options: Any) -> None:
    """Write a figure of matplotlib, atomically, in the form that the suffix of ``path`` names.

    It is drawn in memory, since matplotlib leaves a PDF open that a full disk does not take. Its texts, which hold
    names from files and configurations, are drawn as they are: a ``$`` begins no formula.

    Args:
        path: Final path.
        figure: What is drawn.
        options: Of ``savefig``.
    """
    _make_texts_plain(figure)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=Path(path).suffix[1:].lower(), **options)
    with atomic_path(path) as temporary:
        temporary.write_bytes(drawn.getvalue())


def _make_texts_plain(figure: Any) -> None:
    """Turn off formulas in all texts but the powers of ten of logarithmic axes, and drop what cannot be printed."""
    from matplotlib.text import Text

    axes = [axis for panel in figure.axes for axis in (panel.xaxis, panel.yaxis) if axis.get_scale() == "log"]
    powers = {text for axis in axes for text in axis.get_ticklabels(which="both")}
    for text in set(figure.findobj(Text)) - powers:
        text.set_parse_math(False)
        text.set_text("".join(sign for sign in text.get_text() if sign.isprintable() or sign == "\n"))


@contextmanager
def reading(
    path: str | Path,
    absent: str = "check the path",
    damage: str = "is damaged ({reason}); delete it and make it again",
    damages: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into one line that says what is true of it.

    Args:
        path: The file.
        absent: What to do if there is no such file.
        damage: What to say of content that cannot be parsed, with ``{reason}`` where the parser's own words belong.
        damages: Exceptions of the parser beside ``DAMAGES``.

    Raises:
        DataError: If the file is missing, a folder, unreadable or damaged.
    """
    expected: tuple[type[Exception], ...] = (OSError, *DAMAGES, *damages)
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        fault = "is a link to nothing" if Path(path).is_symlink() else "does not exist"
        raise DataError(f"{path} {fault}; {absent}") from error
    except IsADirectoryError as error:
        raise DataError(f"{path} is a folder; name a file") from error
    except expected as error:
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"{path} cannot be read ({error.strerror}); check its permissions and its disk") from error
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{path} {damage.format(reason=reason)}") from error


@contextmanager
def writing(path: str | Path, advice: str = "free space or choose another path") -> Iterator[None]:
    """Turn what the system refuses while a file or folder is written into one line that names it.

    Raises:
        DataError: On any error of the system.
    """
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror or error}); {advice}") from error


def exists(path: str | Path) -> bool:
    """Whether there is anything at a path, be it a link to nothing.

    Raises:
        DataError: If the system does not tell, because a folder is closed or a name too long.
    """
    return _status(path, follow=False) is not None


def is_file(path: str | Path) -> bool:
    """Whether there is a file at a path; as ``exists``."""
    found = _status(path, follow=True)
    return found is not None and stat.S_ISREG(found.st_mode)


def is_folder(path: str | Path) -> bool:
    """Whether there is a folder at a path; as ``exists``."""
    found = _status(path, follow=True)
    return found is not None and stat.S_ISDIR(found.st_mode)


def resolved(path: str | Path) -> Path:
    """A path without links, as far as they can be followed: closed folders and links in a circle are no error."""
    return Path(os.path.realpath(path))


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content in hexadecimal digits; whoever asks for it words the errors of the system."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def try_lock(handle: IO[Any] | int, path: Path) -> bool:
    """Lock an open file or folder for this process alone, without waiting; False if another process has it.

    On a file system that has no locks there is one line of warning, and the work goes on.

    Args:
        handle: Of the file or folder, whose lock ends with it.
        path: Its name, for the message.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        _LOGGER.warning(
            "%s: its file system has no locks (%s); let no other process work on the same", path, error.strerror
        )
    return True


def write_rows(path: str | Path, rows: Iterable[Mapping[str, Any]], schema: Any, provenance: Mapping[str, Any]) -> None:
    """Write rows as a Parquet file; see ``write_parquet``.

    Args:
        path: Final path.
        rows: One mapping a row, column to value.
        schema: Arrow schema of the file.
        provenance: Where the rows come from, anything JSON can hold.
    """
    import pyarrow as pa

    write_parquet(path, pa.Table.from_pylist([dict(row) for row in rows], schema=schema), provenance)


def write_parquet(path: str | Path, table: Any, provenance: Mapping[str, Any]) -> None:
    """Write an Arrow table as a Parquet file, atomically, with a digest of its content and checksums of its pages.

    Args:
        path: Final path.
        table: The rows; what its schema has as metadata is not written.
        provenance: Where they come from, anything JSON can hold.
    """
    import pyarrow.parquet as pq

    said = json.dumps(dict(provenance), sort_keys=True).encode()
    table = table.replace_schema_metadata({PROVENANCE: said, DIGEST: _digest(said, table)})
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def read_parquet(path: str | Path, absent: str = "run the command that makes it", *, changed: bool = False) -> Any:
    """Read a Parquet file; importing pandas is left to the caller.

    Args:
        path: One of ``write_parquet``, which must be as it was written, or anybody else's.
        absent: What to do if there is no such file.
        changed: Whether it may have been changed since it was written, for those who judge its content.

    Returns:
        An Arrow table, valid throughout, with the provenance in its metadata, ``{}`` where the file says nothing.

    Raises:
        DataError: If the file is missing, unreadable, damaged or no Parquet file, or names a column twice.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    damage = "is no complete Parquet file ({reason}); delete it and make it again"
    with reading(path, absent, damage, (pa.ArrowException,)):
        with Path(path).open("rb"):  # whose error says which: missing, a folder, or closed
            pass
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read()
        table.validate(full=True)
        names = table.column_names
        if len(set(names)) < len(names):
            raise ValueError("it names a column twice")
        metadata = table.schema.metadata or {}
        said = metadata.get(PROVENANCE, b"{}")
        if not _is_object(said):
            raise ValueError("it says in no readable way where it comes from")
        if not changed and DIGEST in metadata and metadata[DIGEST] != _digest(said, table):
            raise ValueError("its content was changed after it was written")
    return table.replace_schema_metadata({PROVENANCE: said})


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def provenance(table: Any) -> dict[str, Any]:
    """What the writer of a table of ``read_parquet`` said about its origin; empty when it said nothing."""
    said: dict[str, Any] = json.loads((table.schema.metadata or {}).get(PROVENANCE, b"{}"))
    return said


def _digest(said: bytes, table: Any) -> bytes:
    """SHA-256 of provenance, names and values in hexadecimal digits, whatever pages and chunks hold them."""
    digest = hashlib.sha256(said)
    for name, column in zip(table.column_names, table.columns, strict=True):
        digest.update(f"{name} {len(column)}\n".encode())
        for part in _plain(column.combine_chunks()):
            digest.update(part)
    return digest.hexdigest().encode()


def _plain(array: Any) -> Iterator[bytes | memoryview]:
    """Values of an Arrow array as bytes: which are null, lengths where they differ, then all of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    yield _numbers(pc.is_null(array).cast(pa.uint8()))
    if pa.types.is_list(kind):
        yield _numbers(pc.list_value_length(array))
        yield from _plain(pc.list_flatten(array))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        yield _numbers(pc.binary_length(array))
        yield b"".join(array.drop_null().cast(pa.binary()).to_pylist())
    elif not pa.types.is_null(kind):
        yield _numbers(array.cast(pa.uint8()) if pa.types.is_boolean(kind) else array)


def _numbers(array: Any) -> memoryview:
    """Numbers of an Arrow array without the missing ones; neither ``to_numpy`` nor scalars, which import pandas."""
    array = array.drop_null()
    width = array.type.bit_width // 8
    return memoryview(array.buffers()[1])[array.offset * width : (array.offset + len(array)) * width]


def _status(path: str | Path, follow: bool) -> os.stat_result | None:
    """What the system knows of a path, None if nothing is there."""
    try:
        return Path(path).stat(follow_symlinks=follow)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be looked at ({reason}); check its folder or choose another path") from error


def _temporary_prefix(final: Path) -> str:
    """Begin of the names of temporary files for a path, by which those of killed processes are known."""
    return f".{final.stem}-{_MACHINE}-{os.getpid()}-"


def _remove_leftovers(final: Path) -> None:
    """Remove temporary files and folders that killed processes of this machine left for the same path."""
    pattern = re.compile(rf"\.{re.escape(final.stem)}-{_MACHINE}-(\d+)-\w+{re.escape(final.suffix)}(-old)?")
    for path in final.parent.iterdir():
        match = pattern.fullmatch(path.name)
        if match and not _is_alive(int(match[1])) and (match[2] is None or final.exists()):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        pass
    return True


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
