"""Locks between processes: one trainer per run, one process per GPU. The system drops them when a process dies."""

import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from polarvrp.errors import ConfigError, DataError
from polarvrp.files import try_lock, writing
from polarvrp.machine import has_gpu_driver, keep_freed_memory, reason_for_no_card

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LOOKS = 1.0
"""How often a process that waits for a GPU looks whether one is free."""


@contextmanager
def file_lock(path: Path, meaning: str, wait: bool = True) -> Iterator[None]:
    """Hold an exclusive lock on ``path``.

    Args:
        path: Made if missing, with its folder.
        meaning: What the lock stands for, for messages.
        wait: Whether to wait, with one log line, while another process holds it.

    Raises:
        DataError: If another process holds it and there is no waiting, or the file cannot be made.
    """
    with writing(path, "choose another folder"):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("w")
    with handle:
        if not try_lock(handle, path):
            if not wait:
                raise DataError(f"another process holds {meaning} ({path}); stop it first")
            logger.info("waiting for another process that holds %s (%s)", meaning, path)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def leased_device() -> Iterator[torch.device]:
    """A GPU that no other process leases, the first to be free; the CPU where torch shows none, said if there is one.

    It is the current device of this thread meanwhile: kernels are launched there, wherever their arguments lie. Where
    the CPU computes, the process keeps the memory that it frees.

    A card is locked by its own identity, whatever number it has in ``CUDA_VISIBLE_DEVICES``. A process of ``torchrun``
    takes the card of its ``LOCAL_RANK`` and no other.

    Raises:
        ConfigError: If ``LOCAL_RANK`` names no card.
    """
    if not torch.cuda.is_available():
        if has_gpu_driver():
            logger.warning("a GPU driver is loaded, but the CPU computes: %s", reason_for_no_card())
        keep_freed_memory()
        yield torch.device("cpu")
        return
    waiting = False
    while True:
        for index in _candidates(torch.cuda.device_count()):
            path = _lock_of(index)
            with path.open() as handle:
                if try_lock(handle, path):
                    with torch.cuda.device(index):
                        yield torch.device("cuda", index)
                    return
        if not waiting:
            waiting = True
            _log_waiting(_candidates(torch.cuda.device_count()))
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _candidates(count: int) -> Sequence[int]:
    """Numbers of the cards that this process may take."""
    rank = os.environ.get("LOCAL_RANK")
    if rank is None:
        return range(count)
    if not rank.isdecimal() or int(rank) >= count:
        raise ConfigError(f"LOCAL_RANK is {rank}, but this machine shows {count} GPUs; start as many processes as GPUs")
    return (int(rank),)


def _log_waiting(indices: Sequence[int]) -> None:
    if "LOCAL_RANK" in os.environ:
        logger.info("waiting for GPU %d: another process holds it", indices[0])
    else:
        logger.info("waiting for a GPU: other processes hold all %d", len(indices))


def _lock_of(index: int) -> Path:
    """Lock file of a card; one that another user made is only read, which is enough to lock it."""
    path = Path(tempfile.gettempdir()) / f"polarvrp-gpu-{torch.cuda.get_device_properties(index).uuid}.lock"
    if not path.exists():
        path.touch()
        path.chmod(0o644)  # whatever the user's mask takes from others, they must be able to read it
    return path
