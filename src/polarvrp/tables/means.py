"""Means over seeds, variants and instances that exist only where every member has a number."""

import math
from collections.abc import Collection, Iterable, Sequence
from statistics import fmean

import pandas as pd

from polarvrp.tables.labels import stem_of

SPREAD = "_spread"
"""Ending of the columns of standard deviations over seeds."""


def complete_mean(values: Iterable[float]) -> float:
    """Mean of the values, the same in any order (their sum is exact); NaN when there are none, or one is missing."""
    numbers = list(values)
    return fmean(numbers) if numbers else math.nan


def average_over(
    frame: pd.DataFrame, over: str, members: Collection[str], keys: Sequence[str], column: str
) -> pd.Series:
    """Plain mean of a column over variants or instances, NaN unless each of them has a number.

    Args:
        frame: A long table in which a member and ``keys`` occur once together.
        over: Column of the members.
        members: What is averaged over.
        keys: Columns that tell averages apart.
        column: Column to average.

    Returns:
        Means indexed by ``keys``, in the order of the frame.
    """
    groups = frame[frame[over].isin(members)].groupby(list(keys), sort=False)[column]
    return groups.agg(complete_mean).where(groups.size() == len(members))


def seed_means(frame: pd.DataFrame, keys: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """Mean over the seeds of each method.

    Args:
        frame: A long table with column ``method``.
        keys: Columns that tell cells of one method apart.
        columns: Columns to average.

    Returns:
        Means, indexed by ``stem`` (the method without its seed) and ``keys``, in the order of the frame.
    """
    stems = frame.assign(stem=frame["method"].map(stem_of))
    return over_seeds(stems, ["stem", *keys], columns).set_index(["stem", *keys])[list(columns)]


def over_seeds(frame: pd.DataFrame, keys: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """Mean and standard deviation of the rows that differ in nothing but the seed of a training.

    Args:
        frame: A row a seed.
        keys: Columns that tell the cells apart.
        columns: Numbers to average.

    Returns:
        A row a cell in the order of the frame: keys, means, and the sample standard deviations in columns that end in
        ``SPREAD``, NaN where there is one seed only.
    """
    if frame.empty:
        return frame.reindex(columns=[*keys, *columns])
    groups = frame.astype(dict.fromkeys(columns, "float64")).groupby(list(keys), sort=False, dropna=False)[
        list(columns)
    ]
    return groups.agg(complete_mean).join(groups.std(ddof=1).add_suffix(SPREAD)).reset_index()
