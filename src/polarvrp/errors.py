"""Errors a user can act on. The command line prints their one line and exits with code 2."""

import difflib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

LONGEST_LINE = 1000
"""Characters of a line of a message that are printed."""


class PolarvrpError(Exception):
    """Base of all errors that are the input's fault; the message says what, got, wanted, what to do."""


class ConfigError(PolarvrpError):
    """A configuration, run name or option is unknown, contradictory or out of bounds."""


class DataError(PolarvrpError):
    """A file is missing, truncated, of another layout, or describes an impossible instance."""


class InfeasibleTourError(PolarvrpError):
    """A sequence of actions is no solution of its instance, or breaks one of its rules."""


class EngineError(PolarvrpError):
    """A level of the engine that was asked for does not work on this machine."""


class CheckpointMismatchError(PolarvrpError):
    """Saved weights belong to another architecture or specification than the one asked for."""


class DivergenceError(PolarvrpError):
    """A loss or gradient of a training is not finite."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory was short, on a processor or on a card."""
    said = str(error)
    is_torch = isinstance(error, RuntimeError) and ("out of memory" in said or "can't allocate memory" in said)
    return isinstance(error, MemoryError) or is_torch


def one_of(got: str, known: Iterable[str]) -> str:
    """End of a message on an unknown name: the one that was probably meant, else all that exist."""
    known = tuple(known)
    close = difflib.get_close_matches(got, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"it is one of {', '.join(known)}"


def printable(text: str) -> str:
    """Text on one line: what cannot be printed, such as a line break in the name of a file, is spelled out."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def lines_of(source: str, error: PolarvrpError) -> str:
    """An error as it is printed: each of its lines after ``source``, where the mistake is; none longer than a screen.

    What a file holds may stand in a message, and be of any length.
    """
    return "\n".join(f"{source}: {_shortened(line)}" for line in str(error).splitlines())


def _shortened(line: str) -> str:
    kept = LONGEST_LINE // 2
    return line if len(line) <= LONGEST_LINE else f"{line[:kept]} ... {line[-kept:]}"


@contextmanager
def exit_on_mistake(source: str) -> Iterator[None]:
    """End the program with the error's lines instead of a traceback, and with exit code 2.

    Args:
        source: Where the mistakes are, printed before each.
    """
    try:
        yield
    except PolarvrpError as error:
        sys.stderr.write(f"{lines_of(source, error)}\n")
        sys.exit(2)
