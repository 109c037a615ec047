"""Where training instances come from when they are a user's own: files, or a generator of another package; no torch."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from polarvrp.errors import ConfigError
from polarvrp.files import file_digest
from polarvrp.study.external import matching_files

ENTRY_POINT_GROUP = "polarvrp.generators"
"""Where an installed package declares generators of its own."""


def instances_spec(instances: str | Sequence[str]) -> dict[str, Any]:
    """What a training's specification says of its instances, each file and source with the SHA-256 of its content.

    Args:
        instances: Name or import path of a generator, or patterns of ``.npz`` files.

    Raises:
        ConfigError: If a pattern names no file or another kind of file, or there is no such generator.
    """
    if isinstance(instances, str):
        source = _source_of(generator_path(instances))
        return {"generator": instances, "sha256": source_digest(source)}
    files = sorted(
        dict.fromkeys(path for pattern in instances for path in matching_files(pattern, "training.instances"))
    )
    strange = next((path for path in files if path.suffix != ".npz"), None)
    if strange is not None:
        raise ConfigError(f"training.instances: {strange} is no .npz file; polarvrp generate shows the layout")
    return {"files": {str(path): source_digest(path) for path in files}}


def generator_path(name: str) -> str:
    """Import path, ``package.module:attribute``, of a generator by its name.

    Raises:
        ConfigError: If no installed package declares it, and it is no import path.
    """
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=name):
        return entry.value
    if ":" not in name:
        known = sorted(entry.name for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP))
        instead = f"there are {', '.join(known)}" if known else "no installed package declares one"
        raise ConfigError(
            f"training.instances: no generator {name!r} in {ENTRY_POINT_GROUP}, {instead}; or write "
            "package.module:attribute, or a list of .npz files"
        )
    return name


def source_digest(path: Path) -> str:
    """SHA-256 of a file that training instances come from.

    Raises:
        ConfigError: If it cannot be read.
    """
    try:
        status = path.stat()
        return _digest(path.resolve(), status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise ConfigError(f"training.instances: {path} cannot be read ({error.strerror})") from error


def _source_of(path: str) -> Path:
    """The file of a generator's module."""
    module = path.partition(":")[0]
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise ConfigError(f"training.instances: module {module} of {path} is not found; install its package")
    if found.origin is None or not Path(found.origin).is_file():
        raise ConfigError(
            f"training.instances: module {module} of {path} has no file to be recorded by; name the module that "
            "defines the generator"
        )
    return Path(found.origin)


@lru_cache(maxsize=64)
def _digest(path: Path, _changed_ns: int, _size: int) -> str:
    """Digest of a file in one of its states: the workflow asks for it with every specification."""
    return file_digest(path)
