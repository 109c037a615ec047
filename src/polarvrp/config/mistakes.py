"""Messages on mistakes in a configuration, one line each: the dotted key, what was got, what is allowed."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from polarvrp.errors import one_of

Place = tuple[str | int, ...]
"""Keys and positions that lead to a value."""

WANTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "model_type": "a section of keys",
    "too_short": "a list of at least {min_length}",
    "string_too_short": "text of at least {min_length} letter",
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than_equal": "at most {le:g}",
}
"""What is allowed where pydantic finds an error of such a type."""


def short(value: Any) -> str:
    """A value as a message shows it: of a few lists within each other, few items and few letters."""
    shown = reprlib.Repr()
    shown.maxlevel, shown.maxother, shown.maxstring = 4, 200, 200
    shown.maxlist = shown.maxtuple = shown.maxdict = 20
    return shown.repr(value)


def mistakes(error: ValidationError, model: type[BaseModel], mapping: Any, where: str) -> list[str]:
    """One line for each mistake that pydantic found.

    Args:
        error: What it found.
        model: What was to be built.
        mapping: From what.
        where: Dotted name of the mapping, empty for the whole configuration.
    """
    places: dict[Place, list[ErrorDetails]] = {}
    for details in error.errors():
        places.setdefault(_place(mapping, details), []).append(details)
    # of several forms that a value may have, the one that was meant is the one that fails further inside
    inner = [place for place in places if not any(place == other[: len(place)] != other for other in places)]
    return [_line(model, place, places[place], where) for place in inner]


def _place(mapping: Any, details: ErrorDetails) -> Place:
    """Where a mistake is, without pydantic's names of the forms that a value may have."""
    place: list[str | int] = []
    *_, last = details["loc"] or (None,)
    absent = details["type"] in ("missing", "invalid_key")
    for part in details["loc"]:
        if isinstance(mapping, Mapping) and (part in mapping or (absent and part == last)):
            place.append(str(part))
            mapping = mapping.get(part)
        elif isinstance(mapping, list | tuple) and isinstance(part, int):
            place.append(part)
            mapping = mapping[part]
    return tuple(place)


def _line(model: type[BaseModel], place: Place, found: list[ErrorDetails], where: str) -> str:
    name = where
    for part in place:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    found = [details for details in found if details["type"] == "value_error"] or found
    kind, got = found[0]["type"], found[0]["input"]
    if kind in ("extra_forbidden", "invalid_key"):
        return f"unknown key {name}; {one_of(str(place[-1]), _section(model, place[:-1]).model_fields)}"
    if kind == "missing":
        return f"{name} is missing; add it"
    if kind == "value_error":
        separator = "" if not name else "." if isinstance(got, Mapping) else " "
        return f"{name}{separator}{found[0]['ctx']['error']}"
    if kind != "literal_error" and kind not in WANTED:
        return f"{name}: {found[0]['msg']}, got {short(got)}"
    wanted = " or ".join(map(_wanted, found))
    number_as_text = kind in ("int_type", "float_type") and isinstance(got, str) and re.match(r"[-+.\d]", got)
    hint = "; YAML reads 3e-4 and quoted numbers as text, write 0.0003" if number_as_text else ""
    shown = list(got) if isinstance(got, tuple) else got
    return f"{name or 'configuration'} must be {wanted}, got {short(shown)}{hint}"


def _wanted(details: ErrorDetails) -> str:
    if details["type"] == "literal_error":
        names = re.findall(r"'([^']*)'", details["ctx"]["expected"])
        return f"one of {', '.join(names)}" if len(names) > 1 else names[0]
    return WANTED[details["type"]].format(**details.get("ctx", {}))


def _section(model: type[BaseModel], place: Place) -> type[BaseModel]:
    """Model of the section at a place below ``model``."""
    for part in place:
        if isinstance(part, str):
            model = next(_models(model.model_fields[part].annotation))
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Sections inside an annotation, whatever lists, unions and bounds surround them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
