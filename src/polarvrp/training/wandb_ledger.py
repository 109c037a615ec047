"""What was written to W&B before, so that nothing is written twice."""

import hashlib
import json
from pathlib import Path
from typing import Any

from polarvrp.errors import DataError
from polarvrp.files import write_text
from polarvrp.training.wandb_runs import Mode


class Ledger:
    """Runs of one name, in ``wandb/ledger/{mode}/{name}.json``: id to digest of what they hold.

    Args:
        directory: Folder that holds ``wandb/``.
        name: Of the runs.
        mode: Whether they are offline runs or were uploaded.

    Raises:
        DataError: If the file is no ledger, or the name, which files of results say, would lie in another folder.
    """

    def __init__(self, directory: Path, name: str, mode: Mode) -> None:
        if Path(name).name != name:
            raise DataError(f"{name!r} is no name of a run of W&B; the files that say so are damaged, make them again")
        self._name = name
        self._path = directory / "wandb" / "ledger" / mode / f"{name}.json"
        text = self._path.read_bytes() if self._path.exists() else b"{}"
        try:
            self._entries: dict[str, str] = dict(json.loads(text))
        except (ValueError, TypeError) as error:
            raise DataError(f"{self._path} is no ledger; delete it, {name} may be uploaded twice") from error

    def new_id(self) -> str:
        """Id of the next run: the name, then the name with ``-r2`` and so on."""
        count = len(self._entries)
        return f"{self._name}-r{count + 1}" if count else self._name

    def holds(self, content: Any) -> bool:
        """Whether a run holds this, which JSON can write."""
        return _digest(content) in self._entries.values()

    def add(self, identity: str, content: Any) -> None:
        """Remember what a run holds."""
        self._entries[identity] = _digest(content)
        write_text(self._path, json.dumps(self._entries, indent=1))


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
