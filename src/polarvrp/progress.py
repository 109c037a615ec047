"""Progress of long work: a bar in a terminal, plain lines in a log."""

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

SECONDS_BETWEEN_LINES = 30.0


def progress(items: Iterable[Item], total: int, description: str, unit: str, done: int = 0) -> Iterator[Item]:
    """Yield ``items`` while showing how many of ``total`` are done and when the rest should be.

    Args:
        items: What is worked through.
        total: Number of all items, those already done included.
        description: What the work is, shown before the bar.
        unit: Name of one item, e.g. ``"instance"``.
        done: Number of items finished earlier.
    """
    if sys.stderr.isatty():
        from tqdm import tqdm

        yield from tqdm(items, total=total, initial=done, desc=description, unit=f" {unit}", leave=False)
        return
    logger = logging.getLogger(__name__)
    start_s = last_s = time.monotonic()
    for count, item in enumerate(items, start=done + 1):
        yield item
        now_s = time.monotonic()
        if now_s - last_s >= SECONDS_BETWEEN_LINES and count < total:
            last_s = now_s
            left_s = (now_s - start_s) / (count - done) * (total - count)
            logger.info("%s: %d of %d %ss, %.0f s left", description, count, total, unit, left_s)
