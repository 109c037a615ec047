"""Weights of trained models: where they lie, by any of their names, and a digest of their tensors; free of torch."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from polarvrp.catalog.scales import SCALES
from polarvrp.errors import DataError
from polarvrp.files import is_file, is_folder
from polarvrp.study.layout import Layout
from polarvrp.study.shipped import PREFIX, WEIGHTS, shipped_folder


def find_weights(model: str, layout: Layout) -> Path:
    """File of a model's weights.

    Args:
        model: Path of its weights or of their folder; its run, then found among the results; or the name of a model
            that ships with the package.
        layout: Of the results.

    Raises:
        DataError: If there is no such file.
    """
    given, path = Path(model), weights_at(model)
    if path is not None:
        return path
    if is_file(layout.weights(model)):
        return layout.weights(model)
    if model.startswith(PREFIX):
        return shipped_folder(model) / WEIGHTS
    if is_folder(given):
        raise DataError(f"{given} is a folder without {WEIGHTS}; name a model's folder, its file or its run")
    other = next((other for other in map(Layout.of_scale, SCALES) if is_file(other.weights(model))), None)
    advice = (
        "; train it with `polarvrp train`"
        if other is None
        else f", but {other.model(model)} is one of another scale; name it by that path"
    )
    raise DataError(f"no model {model!r}: neither a file nor a run under {layout.model('')}{advice}")


def weights_at(model: str) -> Path | None:
    """File of weights that a model names by its path or that of its folder; None where its name is none of a file."""
    given = Path(model)
    return next((path for path in (given, given / WEIGHTS) if is_file(path)), None)


def weights_digest(path: Path) -> str:
    """SHA-256 of the tensors of a safetensors file, their names, types and shapes; what else it says does not count.

    Raises:
        DataError: If it is truncated or no such file.
    """
    status = path.stat()
    return _digest(path.resolve(), status.st_mtime_ns, status.st_size)


def weights_header(path: Path) -> dict[str, Any]:
    """What a safetensors file says of itself: name, type and shape of its tensors, and ``__metadata__``.

    Raises:
        DataError: If it is truncated or no such file.
    """
    try:
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            end = max(
                (tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"), default=0
            )
            if end > path.stat().st_size - file.tell():
                raise ValueError("ends within its tensors")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, MemoryError, OverflowError) as error:
        raise DataError(f"{path} is truncated or no safetensors file ({error}); copy or train it again") from error
    return dict(header)


@lru_cache(maxsize=32)
def _digest(path: Path, _changed_ns: int, _size: int) -> str:
    """Digest of a file in one of its states: the workflow asks for it with every specification."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            for name in sorted(header):
                first, end = header[name]["data_offsets"]
                file.seek(8 + length + first)
                data = file.read(end - first)
                if len(data) < end - first:
                    raise ValueError(f"ends within {name}")
                digest.update(json.dumps([name, header[name]["dtype"], header[name]["shape"]]).encode())
                digest.update(data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, MemoryError, OverflowError) as error:
        raise DataError(f"{path} is truncated or no safetensors file ({error}); copy or train it again") from error
    return digest.hexdigest()
