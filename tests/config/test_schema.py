"""The schema for editors is current, accepts what ships, and marks what the models refuse."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from polarvrp.config.schema import as_yaml, config_schema

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "workflow/schemas/config.schema.yaml"
FILES = sorted((ROOT / "config").rglob("*.yaml"))


def refusals(content: Any) -> list[str]:
    return [error.json_path for error in Draft202012Validator(yaml.safe_load(SCHEMA.read_text())).iter_errors(content)]


def test_file_is_current() -> None:
    assert as_yaml(config_schema()) == SCHEMA.read_text(), (
        "write it anew: python -m polarvrp.config.schema workflow/schemas/config.schema.yaml"
    )


@pytest.mark.parametrize("file", FILES, ids=[str(file.relative_to(ROOT)) for file in FILES])
def test_editors_accept_every_file(file: Path) -> None:
    first_line = file.read_text().splitlines()[0]
    named = first_line.removeprefix("# yaml-language-server: $schema=")
    assert (file.parent / named).resolve() == SCHEMA
    assert refusals(yaml.safe_load(file.read_text())) == []


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ({"sclae": "paper"}, "$"),
        ({"scale": "tiny"}, "$.scale"),
        ({"training": {"learning_rate": "3e-4"}}, "$.training.learning_rate"),
        ({"training": {"learning_rates": 0.1}}, "$.training"),
        ({"sizes": [{"num_customers": 1, "batch_size": 1, "reference_seconds": 1.0}]}, "$.sizes[0].num_customers"),
        ({"seeds": [1, 1]}, "$.seeds"),
        ({"backbones": ["polarnte"]}, "$.backbones[0]"),
        ({"set_x": {"starts": "most"}}, "$.set_x.starts"),
    ],
)
def test_editors_mark_a_mistake(content: dict[str, Any], path: str) -> None:
    assert refusals(content) == [path]
