"""Outputs that a user names: never in the place of an input or of other work, and refused before any work is done."""

import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from polarvrp.errors import ConfigError, DataError
from polarvrp.files import exists, is_folder, provenance, read_parquet, resolved

MARK = "polarvrp-subject:"
"""Before what a text or a picture says about itself, see ``marked``."""

SHOWN_INSTANCES = 3
"""Of those that would be lost, in messages."""

SEARCHED = 2**16
"""Bytes at either end of a file in which a mark is looked for."""


def require_output(
    path: Path,
    suffixes: str | tuple[str, ...],
    subject: Mapping[str, Any],
    inputs: Iterable[Path] = (),
    stated: Callable[[Path], Mapping[str, Any] | None] | None = None,
) -> None:
    """Refuse an output that would take the place of something else, or that cannot be written.

    Every command calls this for each file whose path the user chose, once it knows what it will write and before it
    computes: ``require_output(options.output, ".png", {"plot": "X-n101-k25"}, inputs=[options.instance])``. For a
    folder that the user chose it is called for each file in it. Writing the same again is allowed, so what is written
    must say its subject, where ``stated_subject`` finds it:

    * Parquet: keys of the provenance that ``files.write_parquet`` stores; ``.npz``: keys of the comment;
      ``.safetensors``: keys of the metadata of ``model.saving.save_policy``; JSON and YAML: keys of the file itself;
    * all others, text or picture: ``marked(subject)`` anywhere in a comment near either end of the file, such as the
      entry ``Comment`` of PNG and ``Keywords`` of PDF metadata.

    Args:
        path: What the user named.
        suffixes: Endings that it may have.
        subject: What the file will be about; a file there must not contradict it, and state some of it.
        inputs: Files that the command reads.
        stated: Reads what a file there says about itself instead of ``stated_subject``.

    Raises:
        ConfigError: If the ending is another one, or the output is an input.
        DataError: If another file is there, or nothing can be written.
    """
    suffixes = (suffixes,) if isinstance(suffixes, str) else suffixes
    if path.suffix.lower() not in suffixes:
        raise ConfigError(f"--output must end in {' or '.join(suffixes)}, got {path}")
    for given in inputs:
        if resolved(path) == resolved(given) or _is_same_file(path, given):
            raise ConfigError(f"--output must name another file than the inputs, got {path}")
    if is_folder(path):
        raise DataError(f"{path} is a folder; name a file to write")
    if exists(path):
        _require_same(path, subject, (stated or stated_subject)(path))
    _require_writable(path)


def require_kept(
    path: Path, held_by: Callable[[Path], Iterable[Any]], written: Collection[Any], noun: str = ""
) -> None:
    """Refuse to write a file of fewer rows over a finished one: an instance that it holds must be written again.

    Args:
        path: What the user named; nothing may be there yet.
        held_by: Reads the instances of such a file.
        written: Instances of what will be written.
        noun: What numbers of instances follow in messages, such as ``"instance "``; names stand alone.

    Raises:
        DataError: If an instance would be gone.
    """
    held = list(held_by(path)) if exists(path) else []
    lost = [instance for instance in held if instance not in written]
    if lost:
        named = f"{noun}{', '.join(map(str, lost[:SHOWN_INSTANCES]))}{', ...' if lost[SHOWN_INSTANCES:] else ''}"
        count = f"{len(held)} instance{'s' if len(held) > 1 else ''}"
        raise DataError(f"{path} holds {count}, of which {len(lost)} would be lost ({named}); choose another --output")


def marked(subject: Mapping[str, Any]) -> str:
    """What a text or a picture says about itself, on one line, for a comment."""
    return MARK + json.dumps(dict(subject), sort_keys=True)


def stated_subject(path: Path) -> dict[str, Any] | None:
    """What a file says about itself; None if it says nothing or cannot be read."""
    try:
        match path.suffix:
            case ".parquet":
                said: Any = provenance(read_parquet(path))
            case ".npz":
                with zipfile.ZipFile(path) as archive:
                    said = json.loads(archive.comment)
            case ".safetensors":
                with path.open("rb") as file:
                    header = json.loads(file.read(min(int.from_bytes(file.read(8), "little"), 2**30)))
                said = json.loads(header["__metadata__"]["polarvrp"])["metadata"]
            case ".json":
                said = json.loads(path.read_bytes())
            case ".yaml":
                import yaml

                said = yaml.safe_load(path.read_bytes())
            case _:
                said = _found_mark(path)
    except Exception:  # whatever a foreign file makes a parser raise, it says nothing that could be understood
        return None
    return said if isinstance(said, dict) else None


def _found_mark(path: Path) -> Any:
    content = path.read_bytes()
    for part in (content[:SEARCHED], content[-SEARCHED:]):
        _, found, rest = part.partition(MARK.encode())
        if found:
            return json.JSONDecoder().raw_decode(rest.decode(errors="replace"))[0]
    return None


def _require_same(path: Path, subject: Mapping[str, Any], found: Mapping[str, Any] | None) -> None:
    """A file that is there is of the subject.

    Raises:
        DataError: If it is of another one, or does not say.
    """
    advice = "move it away or choose another --output"
    if found is None or not subject.keys() & found.keys():
        raise DataError(f"{path} exists and does not say what it holds; {advice}")
    changed = [
        f"{key} {found[key]} instead of {subject[key]}"
        for key in subject
        if found.get(key, subject[key]) != subject[key]
    ]
    if changed:
        raise DataError(f"{path} holds something else ({', '.join(changed)}); {advice}")


def _require_writable(path: Path) -> None:
    """A file of this name can be made where it is to be.

    Raises:
        DataError: If not.
    """
    folder = path.absolute().parent
    while not exists(folder):
        folder = folder.parent
    try:
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{path.stem}-", suffix=path.suffix)
        os.close(handle)
        Path(name).unlink()
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}); choose another path") from error


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one is not there, or closed
        return False
