"""Work as somebody whom closed files and folders stop: root is not."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder outside those of pytest, which only who runs it can enter."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@contextmanager
def as_ordinary_user(folder: Path) -> Iterator[None]:
    """Be no root meanwhile; what ``folder`` holds, itself included, becomes one's own."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, -1, follow_symlinks=False)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
