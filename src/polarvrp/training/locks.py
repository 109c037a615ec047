"""Locks between processes: one trainer per run, one per GPU. The system drops them when a process dies."""

import fcntl
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import torch

logger = logging.getLogger(__name__)


@contextmanager
def file_lock(path: Path, meaning: str) -> Iterator[None]:
    """Hold an exclusive lock on ``path``, waiting with one log line while another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        if not _try_lock(handle):
            logger.info("waiting for another process that holds %s (%s)", meaning, path)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def leased_device() -> Iterator[torch.device]:
    """A GPU that no other trainer uses, waiting for one if need be; the CPU where there is no GPU."""
    if not torch.cuda.is_available():
        yield torch.device("cpu")
        return
    count = torch.cuda.device_count()
    paths = [Path(tempfile.gettempdir()) / f"polarvrp-cuda-{index}.lock" for index in range(count)]
    for index, path in enumerate(paths):
        with path.open("w") as handle:
            if _try_lock(handle):
                yield torch.device("cuda", index)
                return
    with file_lock(paths[0], "GPU 0"):
        yield torch.device("cuda", 0)


def _try_lock(handle: IO[str]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
