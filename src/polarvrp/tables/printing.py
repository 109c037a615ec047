"""Tables as people read them: long frames spread to rows and columns of text, written as Markdown and HTML."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd
from pandas.io.formats.style import Styler

from polarvrp.catalog.experiments import Experiment
from polarvrp.tables.formats import MISSING, Form
from polarvrp.tables.frames import SCALE
from polarvrp.tables.labels import own_labels
from polarvrp.tables.means import SPREAD

LONGEST_NUMBER = 24
"""Characters of a printed number with its deviation; what is longer is a sentence."""

_MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\*|<>"})


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """One table to print.

    Attributes:
        caption: What is compared, against what, and what is emphasised; plain text.
        text: Text of each cell; columns have two levels, a group that neighbours share and a label.
        best: Which cells are emphasised, bool, of the same shape and labels.
        heads: Number of leading columns that name a row; the first of several names a block of rows.
        summary: Number of last rows that sum up the others.
        warning: Line that must not be overlooked, empty for none.
    """

    caption: str
    text: pd.DataFrame
    best: pd.DataFrame
    heads: int = 1
    summary: int = 0
    warning: str = ""

    @property
    def sides(self) -> str:
        """To which side each column is set: names of rows and sentences to the left, numbers to the right."""
        longest = self.text.map(len).max()
        return "".join(
            "l" if place < self.heads or length > LONGEST_NUMBER else "r" for place, length in enumerate(longest)
        )

    @property
    def breaks(self) -> list[int]:
        """Positions of the rows that begin a block, but for the first."""
        names = list(self.text.iloc[:, 0]) if self.heads > 1 else [""] * len(self.text)
        changes = {place for place, (above, name) in enumerate(pairwise(names), 1) if name != above}
        return sorted(changes | ({len(names) - self.summary} if self.summary else set()) - {0})


@dataclass(frozen=True, slots=True)
class Axis:
    """Rows or columns of a printed table.

    Attributes:
        keys: Columns of the long frame that tell them apart.
        labels: What is printed for each key, in order: of a row its heads, of a column its group and its label.
    """

    keys: Sequence[str]
    labels: Mapping[Any, tuple[str, ...]]

    @classmethod
    def of(cls, key: str, names: Iterable[str], *group: str) -> "Axis":
        """Rows, or columns of one ``group``, that are printed as one column of the long frame names them."""
        return cls([key], {name: (*group, name) for name in names})


def written(frame: pd.DataFrame, measure: str, column: str, form: Form, among: Sequence[str] = ()) -> pd.DataFrame:
    """A long frame with the text of one of its columns; values that print like the smallest are emphasised.

    Args:
        frame: Any rows, with the standard deviations of ``over_seeds`` or without; where it has a bool column
            ``competes``, only rows with it are compared.
        measure: Name of what is written.
        column: The values.
        form: How they are written.
        among: Columns that tell competitions apart, none for no competition.

    Returns:
        The frame with columns ``measure``, ``text`` and ``best``.
    """
    text = frame[column].map(form).astype(object)
    best = pd.Series(data=False, index=frame.index)
    if among and not frame.empty:
        entered = frame[column].where(frame["competes"]) if "competes" in frame else frame[column]
        least = entered.groupby([frame[key] for key in among]).transform("min")
        best = entered.notna() & (text == least.map(form))
    if f"{column}{SPREAD}" in frame:
        spread = frame[f"{column}{SPREAD}"].where(frame[column].notna())  # none beside a mean that one seed leaves open
        text = text.where(spread.isna(), text.str.replace("(%| GB)$", "", regex=True) + " ± " + spread.map(form))
    return frame.assign(measure=measure, text=text, best=best)


def seeds_said(seeds: Iterable[int]) -> str:
    """Sentence on the seeds behind some numbers, led by a space; nothing on seed 0 alone."""
    kept = sorted(set(seeds))
    if kept in ([], [0]):
        return ""
    if len(kept) == 1:
        return f" Seed {kept[0]}."
    return f" Mean ± standard deviation over the seeds {', '.join(map(str, kept))}."


def measures(cells: Iterable[pd.DataFrame]) -> list[str]:
    """Names of what several results of ``written`` hold."""
    return [str(cell["measure"].iloc[0]) for cell in cells]


def captioned(frame: pd.DataFrame, experiment: Experiment, details: str, facts: str = "") -> str:
    """Caption of a table: title with details, caption of the record, facts about these results, scale."""
    parts = (f"{experiment.title}{details}.", experiment.caption, facts, f"Scale {frame[SCALE].iloc[0]}.")
    return " ".join(part.strip() for part in parts if part)


def print_table(
    caption: str, cells: Sequence[pd.DataFrame], heads: Sequence[str], rows: Axis, columns: Axis, summary: int = 0
) -> PrintedTable:
    """Written cells spread to a table; a dash where there is none.

    Args:
        caption: As in ``PrintedTable``, likewise ``summary``.
        cells: Results of ``written``.
        heads: Heads of the columns that name a row.
        rows: Rows, top to bottom.
        columns: Columns, left to right.
        summary: Number of last rows that sum up the others.
    """
    long = pd.concat(cells)

    def wide(values: str, filler: str | bool) -> pd.DataFrame:
        frame = long.pivot(index=list(rows.keys), columns=list(columns.keys), values=values)
        frame = frame.reindex(index=pd.Index(rows.labels), columns=pd.Index(columns.labels))
        frame = frame.astype(object).where(frame.notna(), filler).reset_index(drop=True)
        frame.columns = pd.MultiIndex.from_tuples(columns.labels.values())
        return frame

    text, best = wide("text", MISSING), wide("best", False).astype(bool)
    for place, (head, names) in enumerate(zip(heads, zip(*rows.labels.values(), strict=True), strict=True)):
        text.insert(place, ("", head), names)
        best.insert(place, ("", head), value=False)
    return PrintedTable(caption, text, best, len(heads), summary)


def to_markdown(tables: Iterable[PrintedTable]) -> str:
    """GitHub-flavoured Markdown; the head of a group is repeated in each of its columns."""
    return "\n".join(_markdown(table) for table in tables)


def to_html(table: PrintedTable, name: str) -> str:
    """One ``<table>``, whose cells have classes.

    ``head`` are names of rows, ``words`` sentences, ``best`` emphasised cells, ``ours`` rows or columns of our method,
    ``block`` the first rows of blocks, ``summary`` the rows that sum up the others.

    Args:
        table: The table.
        name: Prefix of the identifiers, unlike that of any other table on the page.
    """
    classes = table.best.map({True: "best", False: ""}.get)
    classes.iloc[:, : table.heads] = "head"
    for place, side in enumerate(table.sides):
        if side == "l" and place >= table.heads:
            classes.iloc[:, place] += " words"
    classes.iloc[table.breaks] += " block"
    classes.iloc[len(classes) - table.summary :] += " summary"
    classes = classes.where(~_ours(table), classes + " ours")
    styler = Styler(flat(table.text), uuid=name, cell_ids=False).hide(axis="index")
    styler.format(escape="html").format_index(escape="html", axis=1)
    styler.set_td_classes(classes.set_axis(styler.columns, axis=1))
    return str(styler.to_html(table_attributes=f'class="printed heads-{table.heads}"'))


def _markdown(table: PrintedTable) -> str:
    text = blocks_named_once(table.text, table.heads).map(lambda cell: cell.translate(_MARKDOWN))
    text = text.mask(table.best, "**" + text + "**")
    text.columns = pd.Index(" ".join(filter(None, column)).translate(_MARKDOWN) for column in text.columns)
    sides = [{"l": "left", "r": "right"}[side] for side in table.sides]
    lines = [f"**{table.warning.translate(_MARKDOWN)}**", ""] if table.warning else []
    body = text.to_markdown(index=False, disable_numparse=True, colalign=sides)
    return "\n".join([*lines, table.caption.translate(_MARKDOWN), "", body, ""])


def blocks_named_once(text: pd.DataFrame, heads: int) -> pd.DataFrame:
    """The text with the name of a block in its first row only."""
    if heads == 1:
        return text
    text, first = text.copy(), text.columns[0]
    text[first] = text[first].mask(text[first] == text[first].shift(), "")
    return text


def _ours(table: PrintedTable) -> pd.DataFrame:
    """Cells in rows or columns that are named after our method."""
    names = own_labels()
    rows = table.text.iloc[:, : table.heads].map(lambda text: text.startswith(names)).any(axis=1)
    groups = table.text.columns.get_level_values(0).str.startswith(names)
    return pd.DataFrame(rows.to_numpy()[:, None] | groups, columns=table.text.columns)


def flat(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with one level of column heads where no column has a group."""
    grouped = frame.columns.get_level_values(0).str.len().any()
    return frame if grouped else frame.set_axis(frame.columns.get_level_values(1), axis=1)
