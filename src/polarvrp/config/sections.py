"""Sections of a configuration: frozen dataclasses built from mappings, with errors that name the key.

Unknown keys, missing keys, wrong types and values out of bounds raise ``ConfigError`` with the key's dotted name.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from polarvrp.errors import ConfigError


class Section:
    """What all sections share: construction from a mapping."""

    __slots__ = ()

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], where: str = "") -> Self:
        """Section with the values of ``mapping``; absent keys take their defaults.

        Args:
            mapping: Keys are the dataclass's fields.
            where: Dotted name of the section, for messages.

        Raises:
            ConfigError: If a key is unknown or missing, or a value has the wrong type or contradicts another.
        """
        section: Self = _build(cls, mapping, where)
        return section


def one_of(got: str, known: Iterable[str]) -> str:
    """End of a message on an unknown name: the one that was probably meant, else all that exist."""
    known = tuple(known)
    close = difflib.get_close_matches(got, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"it is one of {', '.join(known)}"


def at_least(name: str, value: float, bound: float) -> None:
    """Raise ``ConfigError`` if ``value`` is below ``bound``."""
    if not value >= bound:
        raise ConfigError(f"{name} must be at least {bound}, got {value}")


def above_zero(name: str, value: float) -> None:
    """Raise ``ConfigError`` unless ``value`` is positive and finite."""
    if not 0 < value < float("inf"):
        raise ConfigError(f"{name} must be a finite number above 0, got {value}")


def require_distinct(name: str, values: Sequence[object]) -> None:
    """Raise ``ConfigError`` if a value occurs twice."""
    if len(set(values)) < len(values):
        raise ConfigError(f"{name} names something twice, got {', '.join(map(str, values))}; drop one")


def require_known(name: str, values: Sequence[str], known: Collection[str]) -> None:
    """Raise ``ConfigError`` if a value occurs twice or is none of ``known``."""
    require_distinct(name, values)
    for value in values:
        if value not in known:
            raise ConfigError(f"{name} holds {value!r}; {one_of(value, known)}")


def _build(cls: type[Any], mapping: Any, where: str) -> Any:
    """Dataclass ``cls`` with the values of ``mapping``, each brought to its annotated type."""
    prefix = f"{where}." if where else ""
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{where or 'configuration'} must be a section of keys, got {mapping!r}")
    hints = get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for key in mapping:
        if key not in fields:
            raise ConfigError(f"unknown key {prefix}{key}; {one_of(str(key), fields)}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in mapping:
            raise ConfigError(f"{prefix}{name} is missing; add it")
    return cls(**{key: _convert(value, hints[key], f"{prefix}{key}") for key, value in mapping.items()})


def _convert(value: Any, annotation: Any, name: str) -> Any:
    """``value`` as ``annotation`` says, or a ``ConfigError`` that names the key."""
    origin = get_origin(annotation)
    if dataclasses.is_dataclass(annotation):
        return _build(annotation, value, name)  # type: ignore[arg-type]
    if origin is tuple:
        return _convert_sequence(value, get_args(annotation)[0], name)
    if origin is Literal:
        if value not in get_args(annotation):
            raise ConfigError(f"{name} must be one of {', '.join(map(str, get_args(annotation)))}, got {value!r}")
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(value, get_args(annotation), name)
    return _convert_scalar(value, annotation, name)


def _convert_sequence(value: Any, annotation: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{name} must be a list, got {value!r}")
    return tuple(_convert(item, annotation, f"{name}[{position}]") for position, item in enumerate(value))


def _convert_union(value: Any, annotations: tuple[Any, ...], name: str) -> Any:
    errors = []
    for annotation in annotations:
        try:
            return _convert(value, annotation, name)
        except ConfigError as error:
            errors.append(error)
    raise errors[0]


def _convert_scalar(value: Any, annotation: type, name: str) -> Any:
    if annotation is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, annotation) and (annotation is bool or not isinstance(value, bool)):
        return value
    hint = ""
    if annotation in (int, float) and isinstance(value, str):
        hint = "; YAML reads 3e-4 and quoted numbers as text, write 0.0003"
    wanted = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(annotation, annotation)
    raise ConfigError(f"{name} must be {wanted}, got {value!r}{hint}")
