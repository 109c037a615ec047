"""Studies as a user's own file makes them."""

from pathlib import Path
from typing import Any

import yaml

from polarvrp.config.loading import load_study
from polarvrp.config.study import StudyConfig

ROOT = Path(__file__).parents[2]


def study(tmp_path: Path, **own: Any) -> StudyConfig:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(own or {"scale": "quick"}))
    return load_study(path, ROOT / "config")
