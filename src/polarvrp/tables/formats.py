"""Numbers as printed tables write them, and the line that tells demonstrations from results."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

from polarvrp.catalog.scales import SCALES

MISSING = "–"
"""Printed where there is no number."""

Form = Callable[[Any], str]
"""Text of a value."""


def scale_warning(scale: str) -> str:
    """Line that tells demonstrations from results, and other results from the paper's; empty at the paper's scale."""
    if SCALES[scale].is_demonstration:
        return f"Scale {scale}: shows that the pipeline works. Nothing here is a result."
    if SCALES[scale].is_papers:
        return ""
    return f"Scale {scale}: results of this scale, not to be compared with the paper's."


def number(form: str) -> Form:
    """Writer of numbers of a format such as ``{:.3f}%``, with a true minus sign; a dash where there is none."""

    def text(value: Any) -> str:
        return MISSING if _missing(value) else minus(form.format(value))

    return text


def minus(text: str) -> str:
    """A printed number with a true minus sign, and none before zero."""
    return re.sub(r"^-(?=0\.?0*(%|$))", "", text).replace("-", "−")


def duration(seconds: Any) -> str:
    """Seconds in the two largest units that matter."""
    if _missing(seconds):
        return MISSING
    if seconds < 59.5:
        return f"{seconds:.{2 if seconds < 1 else 1 if seconds < 10 else 0}f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}h {minutes:02d}m"


def plain(value: Any) -> str:
    """A number with up to three decimals."""
    return MISSING if _missing(value) else minus(f"{value:,.3f}".rstrip("0").rstrip("."))


def span(numbers: Iterable[int]) -> str:
    """Smallest and largest of some counts, once where they are equal."""
    low, high = min(kept := list(numbers)), max(kept)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


count = number("{:,}")
"""A count with separated thousands."""


def _missing(value: Any) -> bool:
    return bool(pd.isna(value))
