"""The state of a training as a folder of small files, to go on with it on another machine.

The folder holds shards ``state-001.safetensors`` and so on (parameters and buffers as they are, the optimiser's moments
in bfloat16), the networks of finished stages, and ``manifest.json``: run, specification, fingerprint, position with the
history so far, and a checksum of each file. Shards stay small enough for places that refuse large files.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from polarvrp.errors import CheckpointMismatchError, DataError
from polarvrp.files import atomic_folder, atomic_path, write_text
from polarvrp.study import canonical, fingerprint
from polarvrp.training.checkpoints import CheckpointStore, Position, read_newest
from polarvrp.training.history import write_jsonl
from polarvrp.training.locks import file_lock

FORMAT = 1
MANIFEST = "manifest.json"
SPECIFICATION = "specification.json"

LARGEST_FILE = 15 * 2**20
"""Bytes of a file of an exported state."""

LARGEST_STATE = 60 * 2**20
"""Bytes of an exported state."""

HEADER_ROOM = 2**18
"""Bytes left in each shard for its header."""

MOMENTS = ("optimizer.exp_avg.", "optimizer.exp_avg_sq.")
COMPANIONS = ("stage-*.safetensors", "wandb.json")
"""Files beside the checkpoints that a training needs to go on: finished stages, and its run at W&B."""


def write_specification(state: Path, spec: Mapping[str, Any]) -> None:
    """Keep the specification of a training beside its checkpoints, so that its state can be exported.

    Args:
        state: Folder of the run's states, one subfolder a specification.
        spec: ``study.train_spec``.
    """
    path = state / fingerprint(spec) / SPECIFICATION
    if not path.exists():
        write_text(path, canonical(spec) + "\n")


def export_state(run: str, state: Path, output: Path, wanted: str | None = None) -> dict[str, Any]:
    """Write the newest checkpoint of a run as a portable folder.

    Args:
        run: Name of the run.
        state: Folder of its states, ``results/checkpoints/{run}``; a trainer may be at work in it.
        output: Folder to write; an earlier export of the same training is replaced.
        wanted: Fingerprint of the specification, None where the run has but one.

    Returns:
        The manifest.

    Raises:
        DataError: If there is no state or more than one, it is too large, or ``output`` holds anything else or a
            newer state.
    """
    folder = _state_folder(run, state, wanted)
    spec = _read_specification(run, folder)
    position, tensors = read_newest(folder)
    if not tensors:
        raise DataError(f"{folder} holds no readable checkpoint; train {run} first")
    _require_replaceable(output, run, folder.name, position)
    with atomic_folder(output) as temporary:
        for number, shard in enumerate(_shards(_compact(tensors)), start=1):
            save_file(shard, temporary / f"state-{number:03d}.safetensors")
        for path in _companions(folder):
            shutil.copyfile(path, temporary / path.name)
        files = {path.name: _entry(path) for path in sorted(temporary.iterdir())}
        manifest = {
            "format": FORMAT,
            "run": run,
            "fingerprint": folder.name,
            "specification": spec,
            "position": asdict(position),
            "files": files,
        }
        write_text(temporary / MANIFEST, json.dumps(manifest | {"checksum": _digest(manifest)}, indent=1) + "\n")
        _require_small(run, temporary)
    return manifest


def import_state(folder: Path, run: str, spec: Mapping[str, Any], state: Path) -> Position:
    """Make an exported state the newest checkpoint of a run.

    Args:
        folder: Written by ``export_state``.
        run: Name that the run must have.
        spec: Specification that it must have been trained by.
        state: Folder of the run's states, ``results/checkpoints/{run}``.

    Returns:
        Where the training stands now: at the imported state, which may have been there already.

    Raises:
        CheckpointMismatchError: If the state is another run's or another specification's, or an older one than the
            checkpoint that is there.
        DataError: If the folder is no whole export, or a trainer is at work on the run.
    """
    manifest = _read_manifest(folder)
    if manifest["run"] != run:
        raise CheckpointMismatchError(f"{folder} holds a state of {manifest['run']}, not of {run}; name that run")
    if manifest["fingerprint"] != fingerprint(spec):
        raise CheckpointMismatchError(
            f"{folder} was trained by another specification "
            f"({_difference(manifest['specification'], json.loads(canonical(spec)))}); "
            f"give the same configuration"
        )
    position, tensors = _position(folder, manifest), _read_tensors(folder, manifest)
    target = state / manifest["fingerprint"]
    with file_lock(target / "lock", f"run {run}", wait=False):
        present, found = read_newest(target)
        if found and present.order > position.order:
            raise CheckpointMismatchError(
                f"{target} is at {describe(present, spec)}, {folder} at {describe(position, spec)}; remove the former "
                f"to go back"
            )
        if not found or present.order < position.order:
            _install(folder, manifest, position, tensors, target)
    return position


def describe(position: Position, spec: Mapping[str, Any]) -> str:
    """Where a training stands, in words; epochs count over all stages."""
    training = spec["training"]
    finished = position.stage * training["epochs"] + position.epoch - 1
    total = training["epochs"] * max(1, len(training.get("stages", ())))
    return f"epoch {finished} of {total}" + (f" and {position.step} steps" if position.step else "")


def _state_folder(run: str, state: Path, wanted: str | None) -> Path:
    folders = sorted(path.parent for path in state.glob("*/checkpoint-*"))
    names = list(dict.fromkeys(path.name for path in folders))
    if wanted is not None and wanted not in names:
        raise DataError(f"{state} has no state of specification {wanted}; there are {', '.join(names) or 'none'}")
    if not names:
        raise DataError(f"{state} holds no checkpoint; train {run} first")
    if wanted is None and len(names) > 1:
        raise DataError(
            f"{state} holds states of {len(names)} specifications; choose --fingerprint {' or '.join(names)}"
        )
    return state / (wanted or names[0])


def _read_specification(run: str, folder: Path) -> dict[str, Any]:
    """Specification beside the checkpoints, verified by the folder's name."""
    try:
        spec = json.loads((folder / SPECIFICATION).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{folder / SPECIFICATION} is missing or unreadable; `polarvrp train {run} --max-seconds 0` with its "
            f"configuration writes it"
        ) from error
    if not isinstance(spec, dict) or fingerprint(spec) != folder.name:
        raise DataError(f"{folder / SPECIFICATION} does not describe the folder it is in; remove it and train on")
    return spec


def _require_replaceable(output: Path, run: str, name: str, position: Position) -> None:
    """Refuse to write over anything but an earlier export of the same training."""
    if not output.is_dir() or not any(output.iterdir()):
        return
    if not (output / MANIFEST).is_file():
        raise DataError(f"{output} is not empty and holds no exported state; choose another folder")
    earlier = _read_manifest(output)
    if (earlier["run"], earlier["fingerprint"]) != (run, name):
        raise DataError(f"{output} holds a state of {earlier['run']} ({earlier['fingerprint']}); choose another folder")
    if _position(output, earlier).order > position.order:
        raise DataError(f"{output} holds a newer state of {run}; import it first, or choose another folder")


def _compact(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors with the optimiser's moments in bfloat16, which has the range of float32."""
    return {name: tensor.to(torch.bfloat16) if name.startswith(MOMENTS) else tensor for name, tensor in tensors.items()}


def _shards(tensors: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Tensors in their order, cut where a file would become too large."""
    shard: dict[str, Tensor] = {}
    size, room = 0, LARGEST_FILE - HEADER_ROOM
    for name, tensor in tensors.items():
        if tensor.nbytes > room:
            raise DataError(
                f"tensor {name} has {_mebibytes(tensor.nbytes)}, more than a file of an exported state holds"
            )
        if size + tensor.nbytes > room:
            yield shard
            shard, size = {}, 0
        shard[name] = tensor
        size += tensor.nbytes
    yield shard


def _companions(folder: Path) -> list[Path]:
    return sorted(path for pattern in COMPANIONS for path in folder.glob(pattern))


def _require_small(run: str, folder: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    for name, size in sizes.items():
        if size > LARGEST_FILE:
            raise DataError(f"{name} of {run} has {_mebibytes(size)}, more than {_mebibytes(LARGEST_FILE)}")
    total = sum(sizes.values())
    if total > LARGEST_STATE:
        raise DataError(f"the state of {run} has {_mebibytes(total)}, more than {_mebibytes(LARGEST_STATE)}")


def _read_manifest(folder: Path) -> dict[str, Any]:
    """Manifest of an exported state, verified by its checksum."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        checksum = manifest.pop("checksum")
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist; name a folder written by polarvrp export-state") from error
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise DataError(f"{path} is no whole manifest; export or copy the state again") from error
    if manifest.get("format") != FORMAT:
        raise DataError(f"{folder} has format {manifest.get('format')}, this version reads {FORMAT}; export it again")
    if checksum != _digest(manifest) or fingerprint(manifest["specification"]) != manifest["fingerprint"]:
        raise DataError(f"{path} was changed since it was written; export or copy the state again")
    return dict(manifest)


def _position(folder: Path, manifest: Mapping[str, Any]) -> Position:
    try:
        return Position(**manifest["position"])
    except TypeError as error:
        raise DataError(f"{folder} was written by another version of polarvrp; install that one here") from error


def _read_tensors(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Tensor]:
    """Tensors of all shards, moments in float32 again, once every file is there and whole."""
    for name, entry in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise DataError(f"{path} is missing; copy the whole folder again")
        if _entry(path) != entry:
            raise DataError(f"{path} is damaged or cut off; copy it again")
    tensors: dict[str, Tensor] = {}
    for name in sorted(name for name in manifest["files"] if name.startswith("state-")):
        try:
            tensors |= load_file(folder / name)
        except SafetensorError as error:
            raise DataError(f"{folder / name} is no safetensors file ({error}); export the state again") from error
    return {name: tensor.float() if name.startswith(MOMENTS) else tensor for name, tensor in tensors.items()}


def _install(
    folder: Path, manifest: Mapping[str, Any], position: Position, tensors: dict[str, Tensor], target: Path
) -> None:
    """Write everything that a trainer looks for, the checkpoint last."""
    for name in manifest["files"]:
        if not name.startswith("state-"):
            with atomic_path(target / name) as temporary:
                shutil.copyfile(folder / name, temporary)
    write_specification(target.parent, manifest["specification"])
    write_jsonl(target / "history.jsonl", position.history)
    CheckpointStore(target).put(position, tensors)


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """First value in which two specifications differ."""
    values, others = dict(_leaves(there)), dict(_leaves(here))
    name = next(key for key in sorted(values.keys() | others.keys()) if values.get(key) != others.get(key))
    return f"{name} is {values.get(name)} there and {others.get(name)} here"


def _leaves(spec: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in spec.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _entry(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(manifest).encode()).hexdigest()


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
