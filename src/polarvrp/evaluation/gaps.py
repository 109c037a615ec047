"""Gaps to a reference: the mean over instances of 100 (cost - reference) / reference, as the paper prints it.

An instance without a cost or without a reference is left out of every number and counted; nothing is filled in.
The gap of the two means is kept beside it, because readers who divide two printed objectives get that one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from polarvrp.errors import DataError
from polarvrp.problem.gaps import gap_percent

Costs: TypeAlias = Sequence[float | None] | NDArray[np.floating]
"""One an instance; missing ones are None or NaN."""


def shown_gap(percent: float) -> str:
    """A gap as a line prints it, without its unit: three decimals, and no minus before zero."""
    return f"{percent:z.3f}"


@dataclass(frozen=True, slots=True)
class GapSummary:
    """Costs of one set of instances against one reference.

    Attributes:
        objective: Mean cost of the counted instances, None when none is counted.
        gap_percent: Mean of the per-instance gaps in percent, None when none is counted.
        gap_of_means_percent: Gap of the mean cost to the mean reference in percent, None when none is counted.
        instances: Number of instances counted.
        left_out: Number of instances that lack a cost or a reference.
    """

    objective: float | None
    gap_percent: float | None
    gap_of_means_percent: float | None
    instances: int
    left_out: int


def instance_gaps_percent(costs: Costs, references: Costs) -> NDArray[np.float64]:
    """Gap of each instance in percent, NaN where its cost or its reference is missing.

    Args:
        costs: One an instance, ``[K]``; missing ones are None or NaN.
        references: Of the same instances in the same order, ``[K]``; missing ones are None or NaN.

    Raises:
        DataError: If the two differ in length, or a reference is not positive and finite.
    """
    cost = np.asarray(costs, dtype=np.float64)
    reference = np.asarray(references, dtype=np.float64)
    if cost.ndim != 1 or cost.shape != reference.shape:
        raise DataError(f"costs and references must be two equally long lists, got {cost.shape} and {reference.shape}")
    unusable = ~np.isnan(reference) & ~((reference > 0) & np.isfinite(reference))
    if unusable.any():
        index = int(np.flatnonzero(unusable)[0])
        raise DataError(
            f"reference costs must be positive, got {reference[index]} for instance {index}; solve it again"
        )
    return gap_percent(cost, reference)


def summarise_gaps(costs: Costs, references: Costs) -> GapSummary:
    """Mean cost, mean gap and gap of means over the instances that have both a cost and a reference.

    Args:
        costs: One an instance, ``[K]``; missing ones are None or NaN.
        references: Of the same instances in the same order, ``[K]``; missing ones are None or NaN.

    Raises:
        DataError: As ``instance_gaps_percent``.

    Source: Section "Experiments" of the paper; its average over variants is the plain mean of such means.
    """
    gaps = instance_gaps_percent(costs, references)
    counted = ~np.isnan(gaps)
    instances = int(counted.sum())
    if not instances:
        return GapSummary(None, None, None, 0, len(gaps))
    mean_cost = float(np.asarray(costs, dtype=np.float64)[counted].mean())
    mean_reference = float(np.asarray(references, dtype=np.float64)[counted].mean())
    return GapSummary(
        objective=mean_cost,
        gap_percent=float(gaps[counted].mean()),
        gap_of_means_percent=gap_percent(mean_cost, mean_reference),
        instances=instances,
        left_out=len(gaps) - instances,
    )
