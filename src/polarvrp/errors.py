"""Errors a user can act on. The command line prints their one line and exits with code 2."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class PolarvrpError(Exception):
    """Base of all errors that are the input's fault; the message says what, got, wanted, what to do."""


class ConfigError(PolarvrpError):
    """A configuration, run name or option is unknown, contradictory or out of bounds."""


class DataError(PolarvrpError):
    """A file is missing, truncated, of another layout, or describes an impossible instance."""


class InfeasibleTourError(PolarvrpError):
    """A sequence of actions is no solution of its instance, or breaks one of its rules."""


class CheckpointMismatchError(PolarvrpError):
    """Saved weights belong to another architecture or specification than the one asked for."""


@contextmanager
def exit_on_mistake(source: str) -> Iterator[None]:
    """End the program with the error's one line instead of a traceback.

    Args:
        source: Where the mistake is, printed before it.
    """
    try:
        yield
    except PolarvrpError as error:
        sys.exit(f"{source}: {error}")
