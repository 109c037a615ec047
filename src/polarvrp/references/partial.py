"""Finished instances of work that goes on: an append-only file beside the output, so that a kill costs one instance.

Chunks of sets, library files and Set-X have one. The first line says what the rows were solved with, each other line is
one row, of a set or a library file with the digest of its instance. Every line carries a checksum. The half line
that a kill leaves behind is cut off; any other damage is reported, and the file is rebuilt from its intact lines.
"""

import dataclasses
import json
import logging
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, Self, TypeVar

from polarvrp.errors import DataError
from polarvrp.files import try_lock, writing
from polarvrp.solutions.library_rows import LibraryRow
from polarvrp.solutions.rows import SolutionRow

logger = logging.getLogger(__name__)

Row = TypeVar("Row", SolutionRow, LibraryRow)

DIGEST = "fingerprint"
"""Entry of a record that holds the digest of its instance; earlier versions named it so, and their files are kept."""


@dataclass(frozen=True, slots=True)
class StoredRow(Generic[Row]):
    """A row and the digest of the instance that it solves."""

    digest: str
    row: Row


class PartialRecords:
    """Records on their way to a file of results, each JSON; only one process may hold the file.

    Args:
        output: The file of results; this one is its name with ``.partial`` added.
        identity: What all records must have been made with. Those of another identity are dropped.

    Raises:
        DataError: If another process holds the file, or it cannot be written.
    """

    def __init__(self, output: Path, identity: dict[str, Any]) -> None:
        self.path = output.with_name(f"{output.name}.partial")
        self._identity = identity
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = self.path.open("a+b")
        if not try_lock(self._file, self.path):
            self._file.close()
            raise DataError(f"{self.path} is in use: another process is solving for {output.name}")
        try:
            self.records = self._load()
        except DataError:
            self._file.close()
            raise

    def append_record(self, record: dict[str, Any]) -> None:
        """Add a record; it is on disk when this returns."""
        self._write(record)
        self.records.append(record)

    def remove(self) -> None:
        """Delete the file once its rows are in the output."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the file; it stays on disk if it holds rows and was not removed."""
        if not self.records:
            self.remove()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self) -> list[dict[str, Any]]:
        self._file.seek(0)
        content = self._file.read()
        lines = content.split(b"\n")
        half_line = lines.pop()
        records = [_decode(line) for line in lines]
        if records and records[0] == {"identity": self._identity}:
            intact = [record for record in records[1:] if record is not None]
            damaged = records.count(None)
            if damaged:
                logger.warning("%s is damaged: %d of %d lines are lost", self.path, damaged, len(lines))
            if damaged or half_line:
                self._rebuild(intact)
            return intact
        if records and records[0] is None:
            logger.warning("%s is damaged in its first line; its instances are solved anew", self.path)
        elif records:
            logger.info("%s belongs to other settings; its instances are solved anew", self.path)
        self._rebuild([])
        return []

    def _rebuild(self, records: list[dict[str, Any]]) -> None:
        with writing(self.path):
            self._file.truncate(0)
        self._write({"identity": self._identity})
        for record in records:
            self._write(record)

    def _write(self, record: dict[str, Any]) -> None:
        text = json.dumps(record, sort_keys=True).encode()
        with writing(self.path):
            self._file.write(b"%08x %s\n" % (zlib.crc32(text), text))
            self._file.flush()
            os.fsync(self._file.fileno())


class PartialFile(PartialRecords, Generic[Row]):
    """Rows on their way to a file of solutions, ``rows`` by what they say of their instance.

    Args:
        output: The file of solutions.
        identity: What all rows must have been solved with.
        kind: Class of the rows.

    Raises:
        DataError: As ``PartialRecords``.
    """

    def __init__(self, output: Path, identity: dict[str, Any], kind: type[Row]) -> None:
        super().__init__(output, identity)
        self.rows: dict[Any, StoredRow[Row]] = {}
        for record in self.records:
            row = kind(**record["row"] | {"actions": tuple(record["row"]["actions"])})
            self.rows[row.instance] = StoredRow(record[DIGEST], row)

    def append(self, stored: StoredRow[Row]) -> None:
        """Add a row; it is on disk when this returns."""
        self.append_record({DIGEST: stored.digest, "row": dataclasses.asdict(stored.row)})
        self.rows[stored.row.instance] = stored


def _decode(line: bytes) -> dict[str, Any] | None:
    """The record of a line, None if the line is damaged."""
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    record: dict[str, Any] = json.loads(text)
    return record
