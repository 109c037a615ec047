"""Base of all sections of a configuration, and the types that several of them share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    ValidationError,
)
from pydantic.annotated_handlers import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_after_validator_function

from polarvrp.config.mistakes import mistakes
from polarvrp.errors import ConfigError, one_of

Item = TypeVar("Item")


class Section(BaseModel):
    """A frozen section of a configuration: no unknown keys, no text for numbers, no number for true.

    Rules on one key raise a ``ValueError`` whose message goes on after the key's name; rules between keys one whose
    message begins with the name of a key.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], where: str = "") -> Self:
        """Section with the values of ``mapping``; absent keys take their defaults.

        Args:
            mapping: Values by field, sections inside as mappings or models, lists as lists or tuples.
            where: Dotted name of the section, for messages.

        Raises:
            ConfigError: If a key is unknown or missing, or a value has the wrong type, is out of bounds or contradicts
                another; one line for each mistake.
        """
        try:
            return cls.model_validate(mapping)
        except ValidationError as error:
            raise ConfigError("\n".join(mistakes(error, cls, mapping, where))) from None

    def replace(self, **changes: Any) -> Self:
        """This section with other values in some of its fields, checked again.

        Raises:
            ConfigError: As :meth:`from_mapping`.
        """
        return self.from_mapping({**dict(self), **changes})


def _as_tuple(value: Any) -> Any:
    """Lists, as YAML and JSON have them, become the tuples of a frozen section."""
    return tuple(value) if isinstance(value, list) else value


class Unique:
    """Annotation of a list: no value occurs twice."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self._require, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "uniqueItems": True}

    @staticmethod
    def _require(values: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
        if len(set(values)) < len(values):
            raise ValueError(f"names something twice, got {', '.join(map(str, values))}; drop one")
        return values


@dataclass(frozen=True, eq=False)
class Known:
    """Annotation of a name: one of those that ``names`` gives whenever a name is checked."""

    names: Callable[[], Collection[str]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self._require, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "enum": list(self.names())}

    def _require(self, name: str) -> str:
        if name not in self.names():
            raise ValueError(f"is {name!r}, which does not exist; {one_of(name, self.names())}")
        return name


Several = Annotated[tuple[Item, ...], BeforeValidator(_as_tuple)]
"""A list."""

Distinct = Annotated[Several[Item], Unique()]
"""A list without repetitions."""
