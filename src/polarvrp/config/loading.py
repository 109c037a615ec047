"""From configuration files to the study, merged as the workflow merges them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from polarvrp.catalog.scales import SCALES, USUAL
from polarvrp.config.mistakes import short
from polarvrp.config.study import StudyConfig
from polarvrp.errors import ConfigError


class _RepeatedKeyError(Exception):
    """A key stands twice in one section; the message says which and where."""


class _UniqueKeyLoader(yaml.SafeLoader):
    """The safe loader, which takes the last of several values of a key, without that."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Values by key; keys that a ``<<`` brings may stand beside it again."""
        first: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                name, line = (key.tag, key.value), key.start_mark.line + 1
                if name in first:
                    raise _RepeatedKeyError(f"line {line}: {key.value} stands in line {first[name]} already; keep one")
                first[name] = line
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """Content of a YAML file of keys and values.

    Raises:
        ConfigError: If the file is missing, unreadable, holds a key twice in one section, or anything else.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeyLoader)
    except _RepeatedKeyError as error:
        raise ConfigError(f"{path}, {error}") from None
    except FileNotFoundError as error:
        raise ConfigError(f"{path} does not exist; run from the project's folder or name another file") from error
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:  # a date may be impossible, a list endless
        raise ConfigError(f"{path} is no readable YAML file: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold keys and values, got {short(content)}")
    return content


def require_unique_keys(paths: Iterable[str | Path]) -> None:
    """Refuse a key that stands twice in one section of a configuration file that somebody else has read.

    Args:
        paths: Of YAML files; those of JSON are left alone.

    Raises:
        ConfigError: If there is one, with file and line.
    """
    for path in map(Path, paths):
        if path.suffix != ".json":
            read_yaml(path)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the values of ``over``, section by section."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def scale_file(config: Mapping[str, Any]) -> str:
    """Path of the scale's file, below the folder of ``config.yaml``.

    Raises:
        ConfigError: If there is no such scale.
    """
    return f"scales/{_scale_of(config)}.yaml"


def _scale_of(config: Mapping[str, Any]) -> str:
    scale = config.get("scale")
    if not isinstance(scale, str) or scale not in SCALES:
        raise ConfigError(f"scale must be one of {', '.join(SCALES)}, got {short(scale)}")
    return str(scale)


def usual_scale(folder: Path = Path("config")) -> str:
    """The scale that ``config.yaml`` names, the usual one where there is no such file.

    Args:
        folder: Holds ``config.yaml``.

    Raises:
        ConfigError: If the file is no YAML mapping, or there is no such scale.
    """
    path = folder / "config.yaml"
    return _scale_of(read_yaml(path)) if path.is_file() else USUAL


def load_study(overrides: Path | None = None, folder: Path = Path("config"), scale: str | None = None) -> StudyConfig:
    """The study of the configuration files, merged as the workflow merges them.

    Args:
        overrides: A user's own file; its values win over both others, and its ``scale`` chooses the second.
        folder: Holds ``config.yaml`` and ``scales/``.
        scale: Wins over that of the files, as ``--config scale=`` does.

    Raises:
        ConfigError: If a file is missing or no YAML mapping, or a value is unknown, missing or contradictory.
    """
    own = {} if overrides is None else read_yaml(overrides)
    if scale is not None:
        own = {**own, "scale": scale}
    config = merge(read_yaml(folder / "config.yaml"), own)
    return StudyConfig.from_mapping(merge(merge(config, read_yaml(folder / scale_file(config))), own))
