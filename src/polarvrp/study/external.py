"""Imported solutions that a study lists: which files, and in which tables; imports nothing heavy."""

from collections.abc import Iterable
from glob import glob
from pathlib import Path

from polarvrp.config.study import ExternalMethod
from polarvrp.errors import ConfigError

EXTERNAL_TABLES = ("in_distribution", "zero_shot", "set_x")
"""Tables that list imported solutions."""


def external_files(methods: Iterable[ExternalMethod]) -> list[Path]:
    """Every file that some methods' patterns name, each once, methods and patterns in order.

    Raises:
        ConfigError: If a pattern names no file.
    """
    return list(dict.fromkeys(path for method in methods for path in files_of(method)))


def files_of(method: ExternalMethod) -> list[Path]:
    """Files of one method; see ``external_files``."""
    found: list[Path] = []
    for pattern in method.files:
        matches = map(Path, glob(pattern, recursive=True))  # noqa: PTH207, Path.glob takes no absolute pattern
        paths = sorted(path for path in matches if path.is_file())
        if not paths:
            raise ConfigError(
                f"external_methods: {pattern} of {method.name} is no file; make it with polarvrp import, or drop it"
            )
        found += paths
    return list(dict.fromkeys(found))
