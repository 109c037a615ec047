"""Preference margins of a training by epoch: how decisive its preferred pairs were, in cost and to the policy.

The trainer adds up over the preferred pairs of each epoch (``training.objectives.preference_margins``); here the sums
become means and percentages of pairs.

Source: appendix on the preference-margin analysis.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.errors import DataError
from polarvrp.files import provenance, write_parquet

PAIRS = "preferred_pairs"

SCHEMA = pa.schema(
    [
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("epsilon_percent", pa.float64()),
        pa.field("value", pa.float64()),
        pa.field(PAIRS, pa.int64()),
        pa.field("refined_tours", pa.int64()),
    ]
)
"""Columns of ``preference_margins.parquet``, a row an epoch and metric: a mean over the preferred pairs of the epoch,
or the percentage of them that are near-ties at a tolerance."""


def preference_margins(history: pd.DataFrame) -> pd.DataFrame:
    """Margins of a training by epoch and metric.

    Args:
        history: A training's history, a row an epoch.

    Returns:
        Columns of ``SCHEMA``; metrics in the paper's order, those of costs first. Epochs without preferred pairs have
        no value.

    Raises:
        DataError: If the training compared no tours.
    """
    if PAIRS not in history or history[PAIRS].isna().all():
        by = " or ".join(record.name for record in PARADIGMS.values() if record.compares_pairs)
        raise DataError(f"this training compares no tours in pairs; name one by {by}")
    pairs = history[PAIRS].where(history[PAIRS] > 0)
    parts: list[tuple[str, float, pd.Series]] = []
    for space in ("cost", "policy"):
        parts.append((f"mean_{space}_gap", math.nan, history[f"preferred_{space}_gap"]))
        matches = [re.fullmatch(rf"{space}_near_ties_(\d+(?:_\d+)?)", str(column)) for column in history]
        shares = {float(match[1].replace("_", ".")): 100 * history[match[0]] / pairs for match in matches if match}
        parts += [(f"{space}_near_tie_percent", tolerance, shares[tolerance]) for tolerance in sorted(shares)]
    common = {name: history[name] for name in ("epoch", PAIRS, "refined_tours")}
    frames = [
        pd.DataFrame({**common, "metric": metric, "epsilon_percent": tolerance, "value": value})
        for metric, tolerance, value in parts
    ]
    margins: pd.DataFrame = pd.concat(frames, ignore_index=True)[SCHEMA.names]
    return margins


def write_margins(history: Path, stored: pa.Table, output: Path, subject: Mapping[str, Any]) -> None:
    """Write ``preference_margins.parquet`` of a training.

    Args:
        history: Its ``history.parquet``, for messages.
        stored: What that holds.
        output: File to write.
        subject: What it says that it is of; see ``outputs.require_output``.

    Raises:
        DataError: If the history holds no preferred pairs.
    """
    try:
        margins = preference_margins(stored.to_pandas())
    except DataError as error:
        raise DataError(f"{history}: {error}") from error
    table = pa.Table.from_pandas(margins, SCHEMA, preserve_index=False)
    write_parquet(output, table, {"history": provenance(stored), **subject})
