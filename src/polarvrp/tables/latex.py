"""Printed tables as LaTeX that fits its page, in one column or two."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import ceil

import pandas as pd

from polarvrp.tables.printing import PrintedTable, blocks_named_once, flat

PACKAGES = r"\usepackage{adjustbox,booktabs}\usepackage[table]{xcolor}"
"""What a document needs for these tables."""

ROWS_PER_PAGE = 110
"""Rows below each other before a table goes on in another; in ``\\tiny`` they fill a page."""

ROWS_PER_PANEL = 56
"""Rows below each other before a table of blocks is set in two panels side by side."""

WIDTH_OF_PAGE = 220
"""Characters beside each other before a table goes on in another; more would have to shrink beyond reading."""

WIDTH_OF_COLUMN = 64
"""Characters beside each other that fit one of two columns of text."""

_LINE, _LINE_OF_COLUMN = 75, 42
"""Characters of a line of text, of a page and of a column; lines of a caption take height from their table."""

_SEPARATION = 2
"""Characters that the room between two columns of a table takes."""

_EMPHASIS = "cellcolor: [gray]{0.85}; textbf: --rwrap;"
_AGAIN = "{}"
"""Prints nothing; told apart by it, a second panel may have the heads of the first."""

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
        "†": r"$\dagger$",
        "‡": r"$\ddagger$",
        "α": r"$\alpha$",
        "ε": r"$\varepsilon$",
        "θ": r"$\theta$",
        "κ": r"$\kappa$",
        "Δ": r"$\Delta$",
    }
)


def to_latex(tables: Iterable[PrintedTable]) -> str:
    """LaTeX environments that fit a page each.

    Narrow ones are ``table``, which takes one column of a paper in two columns; wide ones are ``table*``, which takes
    both. Long tables of blocks are set in two panels; what is too long or too wide even so goes on in another table.
    """
    return "\n".join([f"% {PACKAGES}", *(part for table in tables for part in _environments(table))])


def latex_text(text: str) -> str:
    """``text`` with every character that LaTeX would read as a command replaced."""
    return text.translate(_LATEX)


def _environments(table: PrintedTable) -> Iterator[str]:
    """Environments of one table, each of a part of its rows and columns."""
    warning = rf"\textbf{{{latex_text(table.warning)}}} " if table.warning else ""
    caption = rf"\caption{{{warning}{latex_text(table.caption)}}}\smallskip"
    widths = _widths(table)
    for columns in _column_parts(table, widths):
        width = sum(widths[column] for column in columns)
        for panels in _row_parts(table, 2 * width <= WIDTH_OF_PAGE):
            kind = "table" if len(panels) == 1 and width <= WIDTH_OF_COLUMN else "table*"
            size = r"\scriptsize" if max(map(len, panels)) <= ROWS_PER_PANEL else r"\tiny"
            lines = ceil(len(caption) / (_LINE if kind == "table*" else _LINE_OF_COLUMN))
            limits = rf"max width=\linewidth, max totalheight={0.93 - 0.024 * lines:.3f}\textheight"
            yield "\n".join(
                [
                    rf"\begin{{{kind}}}[p]",
                    rf"\centering{size}\setlength{{\tabcolsep}}{{3pt}}",
                    caption,
                    rf"\begin{{adjustbox}}{{{limits}}}",
                    _tabular(table, panels, columns),
                    r"\end{adjustbox}",
                    rf"\end{{{kind}}}",
                    "",
                ]
            )
            caption = r"\addtocounter{table}{-1}\caption{Continued.}\smallskip"


def _widths(table: PrintedTable) -> list[int]:
    """Characters that each column takes."""
    texts = (table.text.iloc[:, place].str.len().max() for place in range(table.text.shape[1]))
    heads = [len(column[1]) for column in table.text.columns]
    return [max(int(text), head) + _SEPARATION for text, head in zip(texts, heads, strict=True)]


def _column_parts(table: PrintedTable, widths: Sequence[int]) -> Iterator[list[int]]:
    """Columns page by page, cut between groups; the names of rows on each."""
    names = list(range(table.heads))
    room = WIDTH_OF_PAGE - sum(widths[: table.heads])
    numbers = range(table.heads, table.text.shape[1])
    pages = max(-(-sum(widths[table.heads :]) // room), 1)
    most = sum(widths[table.heads :]) / pages
    part: list[int] = []
    for _, members in groupby(numbers, key=lambda place: table.text.columns[place][0] or place):
        group = list(members)
        if part and sum(widths[place] for place in part) >= most:
            yield names + part
            part = []
        part += group
    yield names + part


def _row_parts(table: PrintedTable, fits_twice: bool) -> Iterator[list[range]]:
    """Rows page by page, in one panel or two, cut between blocks where there are any."""
    start, total = 0, len(table.text)
    panels = 2 if fits_twice and table.heads > 1 and total > ROWS_PER_PANEL else 1
    while start < total:
        end = min(start + panels * ROWS_PER_PAGE, total)
        if end < total:
            end = max((place for place in table.breaks if start < place <= end), default=end)
        inner = [place for place in table.breaks if start < place < end]
        if panels == 2 and inner:
            middle = min(inner, key=lambda place: abs(2 * place - start - end))
            yield [range(start, middle), range(middle, end)]
        else:
            yield [range(start, end)]
        start = end


def _tabular(table: PrintedTable, panels: Sequence[range], columns: list[int]) -> str:
    """Environment ``tabular`` of panels side by side, by pandas, with the rules that it does not draw."""
    parts = [_panel(table, rows, columns, _AGAIN * number) for number, rows in enumerate(panels)]
    text = pd.concat([text for text, _ in parts], axis=1).fillna("")
    best = pd.concat([marks for _, marks in parts], axis=1).eq(other=True)
    styler = text.style.hide(axis="index").apply(lambda _: best.map({True: _EMPHASIS, False: ""}.get), axis=None)
    sides = "".join(table.sides[column] for column in columns)
    form = r"@{\hspace{2em}}".join([sides] * len(panels))
    lines = styler.to_latex(column_format=form, hrules=True, multicol_align="c").splitlines()
    if text.columns.nlevels > 1:
        lines.insert(lines.index(r"\toprule") + 2, _group_rules(text.columns))
    return "\n".join(_with_block_rules(lines, table, panels, len(columns)))


def _panel(table: PrintedTable, rows: range, columns: list[int], ending: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """LaTeX of some cells, and which are emphasised; all heads with ``ending``."""
    text = blocks_named_once(table.text.iloc[rows.start : rows.stop], table.heads).map(latex_text)
    text = flat(text.iloc[:, columns].rename(columns=latex_text)).rename(columns=lambda name: name + ending)
    text = text.reset_index(drop=True)
    best = table.best.iloc[rows.start : rows.stop, columns].reset_index(drop=True)
    return text, best.set_axis(text.columns, axis=1)


def _with_block_rules(lines: list[str], table: PrintedTable, panels: Sequence[range], width: int) -> list[str]:
    """Lines of a ``tabular`` with a rule above each block, as wide as its panel."""
    body = lines.index(r"\midrule") + 1
    rules: dict[int, str] = {}
    for number, rows in enumerate(panels):
        for place in (place - rows.start for place in table.breaks if place in rows[1:]):
            rule = rf"\cmidrule(lr){{{number * width + 1}-{(number + 1) * width}}}"
            rules[place] = r"\midrule" if len(panels) == 1 else rules.get(place, "") + rule
    for place in sorted(rules, reverse=True):
        lines.insert(body + place, rules[place])
    return lines


def _group_rules(columns: pd.Index) -> str:
    """A rule below the head of each group of columns."""
    rules, start = [], 1
    for group, members in groupby(columns, key=lambda column: column[0]):
        end = start + len(list(members))
        rules += [rf"\cmidrule(lr){{{start}-{end - 1}}}"] if group.removesuffix(_AGAIN) else []
        start = end
    return "".join(rules)
