"""Files of the imported solutions that a study lists; imports nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from polarvrp.errors import ConfigError

if TYPE_CHECKING:
    from polarvrp.config.study import ExternalMethod


def external_files(methods: Iterable[ExternalMethod]) -> list[Path]:
    """Every file that some methods' patterns name, each once, methods and patterns in order, as inputs of the workflow.

    Raises:
        ConfigError: If a pattern names no file, or one that cannot be an input.
    """
    files = {path: f"external_methods, {method.name}" for method in methods for path in files_of(method)}
    for path, key in files.items():
        require_workflow_path(path, key)
    return list(files)


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


def require_workflow_path(path: Path, key: str) -> None:
    """Refuse a path of a configuration that cannot be an input of the workflow.

    Raises:
        ConfigError: If there is anything in it that Snakemake reads as its own.
    """
    if re.search(r"[{}\r\n]", str(path)):
        raise ConfigError(
            f"{key}: {str(path)!r} has a brace or a line break in it, which Snakemake reads as its own; rename it"
        )
