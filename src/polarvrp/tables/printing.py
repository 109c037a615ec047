"""Tables as people read them: long frames spread to rows and columns of text, written as Markdown, LaTeX and HTML."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import ceil
from typing import Any

import pandas as pd
from pandas.io.formats.style import Styler

from polarvrp.catalog.experiments import Experiment
from polarvrp.tables.formats import MISSING, Form
from polarvrp.tables.frames import SCALE
from polarvrp.tables.labels import OURS
from polarvrp.tables.means import SPREAD

ROWS_PER_PAGE = 56
"""Rows of a LaTeX table before it goes on in another; in ``\\scriptsize`` they fill a page."""

COLUMNS_PER_PAGE = 22
"""Columns of numbers of a LaTeX table before it goes on in another; more would have to shrink beyond reading."""

_EMPHASIS = "cellcolor: [gray]{0.85}; textbf: --rwrap;"

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "–": "--",
        "·": r"$\cdot$",
        "×": r"$\times$",
        "−": r"$-$",
        "≤": r"$\le$",
        "±": r"$\pm$",
        "α": r"$\alpha$",
        "κ": r"$\kappa$",
    }
)
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
        spread = frame[f"{column}{SPREAD}"]
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

    ``head`` are names of rows, ``best`` emphasised cells, ``ours`` rows or columns of our method, ``block`` the first
    rows of blocks, ``summary`` the rows that sum up the others.

    Args:
        table: The table.
        name: Prefix of the identifiers, unlike that of any other table on the page.
    """
    classes = table.best.map({True: "best", False: ""}.get)
    classes.iloc[:, : table.heads] = "head"
    classes.iloc[table.breaks] += " block"
    classes.iloc[len(classes) - table.summary :] += " summary"
    classes = classes.where(~_ours(table), classes + " ours")
    styler = Styler(_flat(table.text), uuid=name, cell_ids=False).hide(axis="index")
    styler.format(escape="html").format_index(escape="html", axis=1)
    styler.set_td_classes(classes.set_axis(styler.columns, axis=1))
    return str(styler.to_html(table_attributes=f'class="printed heads-{table.heads}"'))


def to_latex(tables: Iterable[PrintedTable]) -> str:
    """LaTeX ``table`` environments that fit a page; a table too long or too wide for one goes on in another."""
    packages = r"% \usepackage{adjustbox,booktabs}\usepackage[table]{xcolor}"
    return "\n".join([packages, *(part for table in tables for part in _latex_parts(table))])


def latex_text(text: str) -> str:
    """``text`` with every character that LaTeX would read as a command replaced."""
    return text.translate(_LATEX)


def _markdown(table: PrintedTable) -> str:
    text = _blocks_named_once(table.text, table.heads).map(lambda cell: cell.translate(_MARKDOWN))
    text = text.mask(table.best, "**" + text + "**")
    text.columns = pd.Index(" ".join(filter(None, column)).translate(_MARKDOWN) for column in text.columns)
    sides = ["left" if place < table.heads else "right" for place in range(text.shape[1])]
    lines = [f"**{table.warning.translate(_MARKDOWN)}**", ""] if table.warning else []
    body = text.to_markdown(index=False, disable_numparse=True, colalign=sides)
    return "\n".join([*lines, table.caption.translate(_MARKDOWN), "", body, ""])


def _latex_parts(table: PrintedTable) -> Iterator[str]:
    """Environments of one table, each of a part of its rows and columns."""
    warning = rf"\textbf{{{latex_text(table.warning)}}} " if table.warning else ""
    caption = rf"\caption{{{warning}{latex_text(table.caption)}}}\smallskip"
    for rows in _row_parts(table):
        for columns in _column_parts(table):
            yield "\n".join(
                [
                    r"\begin{table}[p]",
                    r"\centering\scriptsize\setlength{\tabcolsep}{3pt}",
                    caption,
                    r"\begin{adjustbox}{max width=\linewidth}",
                    _tabular(table, rows, columns),
                    r"\end{adjustbox}",
                    r"\end{table}",
                    "",
                ]
            )
            caption = r"\addtocounter{table}{-1}\caption{Continued.}\smallskip"


def _tabular(table: PrintedTable, rows: range, columns: list[int]) -> str:
    """Environment ``tabular`` of some rows and columns, by pandas, with the rules that it does not draw."""
    text = _blocks_named_once(table.text.iloc[rows.start : rows.stop], table.heads).map(latex_text)
    text = _flat(text.iloc[:, columns].rename(columns=latex_text))
    best = table.best.iloc[rows.start : rows.stop, columns].set_axis(text.columns, axis=1)
    styler = text.style.hide(axis="index").apply(lambda _: best.map({True: _EMPHASIS, False: ""}.get), axis=None)
    sides = "".join("l" if column < table.heads else "r" for column in columns)
    lines = styler.to_latex(column_format=sides, hrules=True, multicol_align="c").splitlines()
    if text.columns.nlevels > 1:
        lines.insert(lines.index(r"\toprule") + 2, _group_rules(text.columns))
    body = lines.index(r"\midrule") + 1
    for place in reversed([place - rows.start for place in table.breaks if place in rows[1:]]):
        lines.insert(body + place, r"\midrule")
    return "\n".join(lines)


def _group_rules(columns: pd.Index) -> str:
    """A rule below the head of each group of columns."""
    rules, start = [], 1
    for group, members in groupby(columns, key=lambda column: column[0]):
        end = start + len(list(members))
        rules += [rf"\cmidrule(lr){{{start}-{end - 1}}}"] if group else []
        start = end
    return "".join(rules)


def _row_parts(table: PrintedTable) -> Iterator[range]:
    """Rows page by page, cut between blocks where there are any."""
    start, total = 0, len(table.text)
    while start < total:
        end = min(start + ROWS_PER_PAGE, total)
        if end < total:
            end = max((place for place in table.breaks if start < place <= end), default=end)
        yield range(start, end)
        start = end


def _column_parts(table: PrintedTable) -> Iterator[list[int]]:
    """Columns page by page, cut between groups; the names of rows on each."""
    names = list(range(table.heads))
    numbers = range(table.heads, table.text.shape[1])
    most = ceil(len(numbers) / max(ceil(len(numbers) / COLUMNS_PER_PAGE), 1))
    part: list[int] = []
    for _, members in groupby(numbers, key=lambda place: table.text.columns[place][0] or place):
        group = list(members)
        if part and len(part) + len(group) > most + 1:
            yield names + part
            part = []
        part += group
    yield names + part


def _blocks_named_once(text: pd.DataFrame, heads: int) -> pd.DataFrame:
    """The text with the name of a block in its first row only."""
    if heads == 1:
        return text
    text, first = text.copy(), text.columns[0]
    text[first] = text[first].mask(text[first] == text[first].shift(), "")
    return text


def _ours(table: PrintedTable) -> pd.DataFrame:
    """Cells in rows or columns that are named after our method."""
    rows = table.text.iloc[:, : table.heads].map(lambda text: text.startswith(OURS)).any(axis=1)
    groups = table.text.columns.get_level_values(0).str.startswith(OURS)
    return pd.DataFrame(rows.to_numpy()[:, None] | groups, columns=table.text.columns)


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with one level of column heads where no column has a group."""
    grouped = frame.columns.get_level_values(0).str.len().any()
    return frame if grouped else frame.set_axis(frame.columns.get_level_values(1), axis=1)
