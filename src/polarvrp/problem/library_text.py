"""Text of library files taken apart: keys, sections and rows of numbers, each with its line.

The packages ``vrplib`` and ``pyvrp`` read plain files alike, which tests use; they name no line, drop the numbers of
nodes, and read a Solomon row with a decimal as -1 in silence, so the text is taken apart here.
"""

import codecs
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from polarvrp.errors import DataError
from polarvrp.files import reading

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)

LARGEST_NUMBER = 1e15
"""Whole numbers up to here, their sums over a route, and squares of coordinates are exact or harmless in float64."""


@dataclass(frozen=True, slots=True)
class Row:
    """Numbers of one line of a file, which is counted from 1."""

    line: int
    values: list[float]


@dataclass(slots=True)
class LibraryText:
    """A file in VRPLIB form, whatever its problem type; names in capitals."""

    source: str
    keys: dict[str, str] = field(default_factory=dict)
    sections: dict[str, list[Row]] = field(default_factory=dict)

    def error(self, text: str) -> DataError:
        return DataError(f"{self.source}: {text}")


def read_text(path: str | Path) -> str:
    """A file's text.

    Raises:
        DataError: If the file cannot be read.
    """
    with reading(path):
        content = Path(path).read_bytes()
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # as some editors save text
    # Comments in public files come in several encodings; everything that matters is ASCII.
    return content.decode("utf-16" if is_wide else "utf-8-sig", errors="replace").replace("\r\n", "\n")


def numbers_of(words: list[str], source: str, line: int, what: str) -> list[float]:
    """The numbers that words spell.

    Raises:
        DataError: If a word spells none, or one beyond ``LARGEST_NUMBER``.
    """
    values = []
    for word in words:
        value = finite_number(word)
        if value is None:
            raise DataError(f"{source}: line {line} of {what} must hold numbers, got {word[:40]!r}")
        if abs(value) > LARGEST_NUMBER:
            bound = f"numbers go up to {LARGEST_NUMBER:g}; scale the file"
            raise DataError(f"{source}: line {line} of {what} holds {word[:40]}; {bound}")
        values.append(value)
    return values


def finite_number(word: str) -> float | None:
    """The number that a word spells, in scientific notation too, infinite if too large; None if it spells none."""
    return float(word) if NUMBER.fullmatch(word) else None


def whole_number(value: float, error_start: str) -> int:
    """A number as an integer.

    Raises:
        DataError: If it is not whole; the message begins with ``error_start``.
    """
    if not math.isfinite(value) or not value.is_integer():
        raise DataError(f"{error_start} must be a whole number, got {value:.15g}; scale the file")
    return int(value)


def take_apart(text: str, source: str, accepted: str) -> LibraryText:
    """Keys and sections of a file in VRPLIB form.

    Tolerated: CRLF, tabs, blank and comment lines, keys in any case and after sections, a colon after a section's
    name, a missing EOF.

    Raises:
        DataError: If a line is neither key, section nor row of one, or a key or section comes twice.
    """
    file = LibraryText(source)
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        words = stripped.split()
        header = re.fullmatch(r"(\w+_SECTION)\s*:?", stripped, re.IGNORECASE)
        key = re.fullmatch(r"([A-Za-z_]+)\s*:(.*)", stripped)
        if words[0].rstrip(":").upper() == "EOF":
            break
        if header:
            section = header.group(1).upper()
            _require_new(file, section, number)
            file.sections[section] = []
        elif section and finite_number(words[0]) is not None:
            file.sections[section].append(Row(number, numbers_of(words, source, number, section)))
        elif key:
            _require_new(file, key.group(1).upper(), number)
            file.keys[key.group(1).upper()] = key.group(2).strip()
        elif file.keys:
            raise file.error(f"line {number} is no key, section or row of one: {stripped[:60]!r}")
        else:
            raise file.error(f"unknown format; wanted is {accepted}")
    if not file.keys:
        raise file.error(f"unknown format; wanted is {accepted}")
    return file


def _require_new(file: LibraryText, name: str, line: int) -> None:
    if name != "COMMENT" and (name in file.keys or name in file.sections):
        raise file.error(f"line {line} states {name} a second time; remove one of both")
