"""Trainings as their files tell them, complete or not."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from polarvrp.errors import DataError
from polarvrp.files import provenance, read_parquet, write_text
from polarvrp.study.metadata import recorded
from polarvrp.study.shipped import metadata_path
from polarvrp.training.wandb_runs import Description

DESCRIPTION = "description.json"
FACTS = ("parameters", "device", "card", "engine", "precision")

Rows = list[dict[str, Any]]


def write_description(state: Path, description: Description) -> None:
    """Write into a training's state what it is, for those who look at it before it is complete."""
    write_text(state / DESCRIPTION, json.dumps(asdict(description), indent=1))


def read_training(folder: Path) -> tuple[Description, Rows]:
    """Description and history of a finished training.

    Args:
        folder: Folder of the model, with ``history.parquet``.

    Raises:
        DataError: If the history is missing, truncated or names no specification.
    """
    path = folder / "history.parquet"
    table = read_parquet(path, "train the run first")
    spec = provenance(table).get("spec")
    if not isinstance(spec, dict):
        raise DataError(f"{path} names no specification; delete it and train the run again")
    known = recorded(metadata_path(folder))
    facts = {name: known[name] for name in FACTS if known.get(name) is not None}
    return Description(run=folder.name, spec=spec, scale=known.get("scale"), facts=facts), table.to_pylist()


def read_unfinished(state: Path) -> tuple[Description, Rows] | None:
    """Description and history so far of a training that is not complete; None before its first epoch ended.

    Args:
        state: Folder of its state.

    Raises:
        DataError: If the state does not say what it is.
    """
    try:
        text = (state / "history.jsonl").read_text(encoding="utf-8")
        rows = [json.loads(line) for line in text.splitlines()]
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise DataError(f"{state / 'history.jsonl'} is damaged; the training's next epoch writes it anew") from error
    known = recorded(state / DESCRIPTION)
    if not known:
        raise DataError(f"{state} does not say what it is, an earlier version left it; go on training first")
    try:
        return Description(**known), rows
    except TypeError as error:
        raise DataError(f"{state / DESCRIPTION} is damaged; go on training first") from error
