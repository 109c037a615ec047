"""Offline runs of W&B, read back from the files that it wrote."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any


@dataclass
class OfflineRun:
    """What one offline run holds.

    Attributes:
        run: Its record: ``run_id``, ``display_name``, ``project``, ``run_group``, ``job_type``, ``tags``.
        config: Its configuration.
        history: Its logged rows, files and tables as W&B describes them.
        summary: Its summary.
        artifacts: Names of the files in each artifact.
    """

    run: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    artifacts: dict[str, list[str]] = field(default_factory=dict)


def offline_runs(folder: Path) -> dict[str, OfflineRun]:
    """Every offline run below ``folder/wandb``, by id."""
    return {path.stem.removeprefix("run-"): _read(path) for path in sorted(folder.glob("wandb/offline-run-*/*.wandb"))}


def _read(path: Path) -> OfflineRun:
    found = OfflineRun()
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found.run = record.run
            _put(found.config, record.run.config.update)
        elif kind == "config":
            _put(found.config, record.config.update)
        elif kind == "history":
            found.history.append(_put({}, record.history.item))
        elif kind == "summary":
            _put(found.summary, record.summary.update)
        elif kind in ("artifact", "request"):
            artifact = record.artifact if kind == "artifact" else record.request.log_artifact.artifact
            if artifact.name:
                found.artifacts[artifact.name] = sorted(entry.path for entry in artifact.manifest.contents)
    return found


def _put(values: dict[str, Any], items: Iterable[Any]) -> dict[str, Any]:
    """Add values by name; one with parts goes into dictionaries."""
    for item in items:
        *outer, last = item.nested_key or [item.key]
        place = values
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = json.loads(item.value_json)
    return values


def records(path: Path) -> Iterator[Any]:
    """Records of an offline run's file: blocks of 32 KiB, 7 bytes of head before each whole or partial record."""
    record_type = import_module("wandb.proto.wandb_internal_pb2").Record
    data, position, parts = path.read_bytes(), 7, b""
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:
            position += 32768 - position % 32768
            continue
        length = int.from_bytes(data[position + 4 : position + 6], "little")
        kind = data[position + 6]
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):
            record = record_type()
            record.ParseFromString(parts)
            parts = b""
            yield record
