"""JSON schema of the configuration, by which editors complete keys and mark mistakes.

``python -m polarvrp.config.schema workflow/schemas/config.schema.yaml`` writes it anew.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml
from pydantic.json_schema import GenerateJsonSchema

from polarvrp.config.study import StudyConfig


class _Untitled(GenerateJsonSchema):
    """Leaves out titles that only repeat a key."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def config_schema() -> dict[str, Any]:
    """Schema of each file below ``config/``; a file may leave out what another one holds."""
    schema = StudyConfig.model_json_schema(schema_generator=_Untitled)
    del schema["required"]
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}


def as_yaml(schema: dict[str, Any]) -> str:
    """Text of a schema's file."""
    return yaml.safe_dump(schema, sort_keys=False, width=120, allow_unicode=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the JSON schema of the configuration.")
    parser.add_argument("output", type=Path, help="YAML file")
    parser.parse_args().output.write_text(as_yaml(config_schema()), encoding="utf-8")
