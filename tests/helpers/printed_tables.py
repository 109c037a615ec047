"""Printed tables made by hand."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from polarvrp.tables.printing import PrintedTable

HEADS = (("", "Variant"), ("n=10", "Obj."), ("n=10", "Gap"))


def table(rows: list[list[str]], columns: Sequence[tuple[str, str]] = HEADS, **attributes: Any) -> PrintedTable:
    """A printed table whose cells are emphasised where they begin with an exclamation mark."""
    text = pd.DataFrame(rows, columns=pd.MultiIndex.from_tuples(columns))
    best = text.map(lambda cell: cell.startswith("!"))
    return PrintedTable("Gap of a_b in %", text.map(lambda cell: cell.removeprefix("!")), best, **attributes)
