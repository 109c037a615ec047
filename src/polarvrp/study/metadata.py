"""What a training recorded about itself, ``metadata.json`` beside its weights; imports nothing heavy."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from polarvrp.errors import DataError
from polarvrp.files import reading


def recorded(path: Path) -> dict[str, Any]:
    """What a training recorded, for what can be told without it; nothing where it did not, or not legibly."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def require_recorded(path: Path, keys: Iterable[str], advice: str) -> dict[str, Any]:
    """What a training recorded, for what cannot be told without it.

    Args:
        path: The file.
        keys: That it must have.
        advice: What to do if it is missing or unusable.

    Raises:
        DataError: If it is missing, unreadable, no JSON object or lacks a key.
    """
    damage = f"is no metadata of a training; {advice}"
    with reading(path, advice, damage):
        content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise DataError(f"{path} {damage}")
    lacking = [key for key in keys if key not in content]
    if lacking:
        raise DataError(f"{path} says no {', '.join(lacking)}; {advice}")
    return content
