"""Studies as a user's own file makes them."""

import json
from pathlib import Path
from typing import Any

import yaml

from polarvrp.config.loading import load_study
from polarvrp.config.study import StudyConfig
from polarvrp.files import write_text
from polarvrp.study.layout import Layout

ROOT = Path(__file__).parents[2]


def study(tmp_path: Path, **own: Any) -> StudyConfig:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(own or {"scale": "quick"}))
    return load_study(path, ROOT / "config")


def trained(layout: Layout, run: str, known: str, seconds: float = 600.0) -> None:
    """Files of a model without one: what other code asks of it is that they are there, and its fingerprint."""
    write_text(layout.weights(run), "x" * 10)
    write_text(layout.metadata(run), json.dumps({"fingerprint": known, "total_seconds": seconds, "epochs": 300}))
