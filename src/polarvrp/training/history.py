"""History of a training: one row per epoch, averaged from the sums that its steps returned."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from polarvrp.files import write_rows, write_text
from polarvrp.training.clock import PHASES
from polarvrp.training.objectives import MARGINS

SCHEMA = pa.schema(
    [
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("stage", pa.int32()),
        pa.field("learning_rate", pa.float64()),
        pa.field("loss", pa.float64()),
        pa.field("sampled_cost", pa.float64()),
        pa.field("greedy_cost", pa.float64()),
        pa.field("best_cost", pa.float64()),
        pa.field("validation_cost", pa.float64()),
        pa.field("validation_gap_percent", pa.float64()),
        pa.field("seconds", pa.float64()),
        *(pa.field(f"seconds_{phase}", pa.float64()) for phase in PHASES),
        pa.field("seconds_validate", pa.float64()),
        pa.field("instances_per_second", pa.float64()),
        pa.field("peak_memory_gb", pa.float64()),
        pa.field("refined_tours", pa.int64()),
        pa.field("refinement_improvement_percent", pa.float64()),
        pa.field("refinement_likelihood_change", pa.float64()),
        pa.field("refinement_weight", pa.float64()),
        pa.field("preferred_pairs", pa.int64()),
        pa.field("preferred_cost_gap", pa.float64()),
        pa.field("preferred_policy_gap", pa.float64()),
        *(pa.field(name, pa.int64()) for name in MARGINS if "near_ties" in name),
    ]
)
"""Columns of ``history.parquet``. ``seconds`` is the wall time of the steps, validation apart; costs are means over
the epoch's instances; ``greedy_cost`` is that of POLAR's extra tour, null in epochs with several depots, where that
tour is never legal; the improvement is a mean over refined tours; the change of log-likelihood is that from the
original to the refined tour, their mean; the weight is that of the loss with refined tours, null without a ramp.
Preferred pairs and near-ties are numbers, their gaps means; all null where no tours are compared."""


def epoch_row(
    epoch: int,
    stage: int,
    learning_rate: float,
    sums: Mapping[str, float],
    validation: Mapping[str, float],
    peak_memory_gb: float,
) -> dict[str, Any]:
    """Row of a finished epoch.

    Args:
        epoch: From 1, over all stages.
        stage: From 1.
        learning_rate: In that epoch.
        sums: Results of ``PendingStep.read`` added up over the epoch, and ``seconds``.
        validation: ``cost``, ``gap_percent`` and ``seconds``, or nothing.
        peak_memory_gb: Largest memory in use so far.
    """
    instances = sums["instances"]
    refined = int(sums.get("refined_tours", 0))
    greedy_cost = sums.get("greedy_cost", math.inf)
    row: dict[str, Any] = {
        "epoch": epoch,
        "stage": stage,
        "learning_rate": learning_rate,
        "loss": sums["loss"] / instances,
        "sampled_cost": sums["sampled_cost"] / instances,
        "greedy_cost": greedy_cost / instances if math.isfinite(greedy_cost) else None,
        "best_cost": sums["best_cost"] / instances,
        "validation_cost": validation.get("cost"),
        "validation_gap_percent": validation.get("gap_percent"),
        "seconds": sums["seconds"],
        "seconds_validate": validation.get("seconds"),
        "instances_per_second": instances / sums["seconds"],
        "peak_memory_gb": peak_memory_gb,
        "refined_tours": refined,
        "refinement_improvement_percent": 100 * sums["refinement_improvement"] / refined if refined else None,
        "refinement_likelihood_change": sums["refinement_likelihood_change"] / refined if refined else None,
        "refinement_weight": sums["refinement_weight"] / instances if "refinement_weight" in sums else None,
    }
    return row | _margins(sums) | {f"seconds_{phase}": sums[f"seconds_{phase}"] for phase in PHASES}


def _margins(sums: Mapping[str, float]) -> dict[str, Any]:
    """Columns of the preferred pairs, null without any."""
    pairs = int(sums.get("preferred_pairs", 0))
    if pairs == 0:
        return dict.fromkeys(MARGINS)
    gaps = {name: sums[name] / pairs for name in MARGINS if name.endswith("gap")}
    return gaps | {name: int(sums[name]) for name in MARGINS if name not in gaps}


def write_jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """One JSON object a line, rewritten as a whole so that each epoch stands there once."""
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def write_history(path: Path, rows: Sequence[Mapping[str, Any]], provenance: Mapping[str, Any]) -> None:
    """Write ``history.parquet``."""
    write_rows(path, rows, SCHEMA, provenance)
