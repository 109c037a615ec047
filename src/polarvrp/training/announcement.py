"""What a training says before its first step: where it computes, and whether that is what its scale is made for."""

import logging
from collections.abc import Mapping
from typing import Any

from polarvrp.catalog.scales import SCALES

logger = logging.getLogger(__name__)


def announce(run: str, facts: Mapping[str, Any], workers: int, scale: str | None) -> None:
    """Log where a training computes; a warning where scale paper trains without a GPU.

    Args:
        run: Name of the run.
        facts: ``training_facts``.
        workers: Processes of local search; 1 works in this process.
        scale: Of its study, None where it is not known.
    """
    search = "this process" if workers == 1 else f"{workers} processes"
    logger.info(
        "%s: trains on %s, engine %s, products in %s, local search in %s",
        run,
        facts["device"],
        facts["engine"],
        facts["precision"],
        search,
    )
    if scale in SCALES and SCALES[scale].is_papers and facts["card"] is None:
        logger.warning(
            "%s: scale %s is made for a GPU and trains on a CPU here; scale laptop is made for CPUs", run, scale
        )
