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
    key = f"external_methods, {method.name}"
    return list(dict.fromkeys(path for pattern in method.files for path in matching_files(pattern, key)))


def matching_files(pattern: str, key: str) -> list[Path]:
    """Files that a pattern of a configuration names, sorted.

    Args:
        pattern: A path, which may hold ``*``, ``?``, ``[...]`` and ``**``.
        key: Of the configuration, for messages.

    Raises:
        ConfigError: If there is none.
    """
    matches = map(Path, glob(pattern, recursive=True))  # noqa: PTH207, Path.glob takes no absolute pattern
    paths = sorted(path for path in matches if path.is_file())
    if not paths:
        raise ConfigError(f"{key}: {pattern} is no file; make it, or drop it from the configuration")
    return paths
