"""A table as people read it: grouped columns, bold cells, rules between blocks; written as Markdown or LaTeX."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

MISSING = "–"
"""Printed where there is no number."""

_LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
    "·": r"$\cdot$",
    "−": r"$-$",
    "≤": r"$\le$",
    "α": r"$\alpha$",
    "κ": r"$\kappa$",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        label: Head of the column.
        group: Head above it, shared by neighbouring columns of equal group.
        numeric: Whether to align to the right.
    """

    label: str
    group: str = ""
    numeric: bool = True


@dataclass(frozen=True, slots=True)
class Cell:
    """One printed value, bold when it is the best of those it competes with."""

    text: str = MISSING
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table to print.

    Attributes:
        caption: What is compared, against what, and what bold means; plain text.
        columns: Heads.
        blocks: Blocks of rows, each row as long as ``columns``; a rule separates blocks.
        warning: Line that must not be overlooked, empty for none.
    """

    caption: str
    columns: Sequence[Column]
    blocks: Sequence[Sequence[Sequence[Cell]]] = field(default_factory=tuple)
    warning: str = ""


def to_markdown(sheets: Iterable[Sheet]) -> str:
    """GitHub-flavoured Markdown; the head of a group is repeated in each of its columns."""
    return "\n".join(_markdown_sheet(sheet) for sheet in sheets)


def to_latex(sheets: Iterable[Sheet]) -> str:
    """LaTeX ``longtable`` environments for packages booktabs and longtable."""
    head = r"% \usepackage{booktabs,longtable}"
    return "\n".join([head, *(_latex_sheet(sheet) for sheet in sheets)])


def _markdown_sheet(sheet: Sheet) -> str:
    heads = [f"{column.group} {column.label}".strip() for column in sheet.columns]
    lines = [f"**{_markdown_text(sheet.warning)}**", ""] if sheet.warning else []
    lines += [_markdown_text(sheet.caption), "", _markdown_row(_markdown_text(head) for head in heads)]
    lines.append(_markdown_row("---:" if column.numeric else ":---" for column in sheet.columns))
    for block in sheet.blocks:
        for row in block:
            lines.append(
                _markdown_row(f"**{_markdown_text(c.text)}**" if c.bold else _markdown_text(c.text) for c in row)
            )
    return "\n".join([*lines, ""])


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown_text(text: str) -> str:
    for character in "\\*|<>":
        text = text.replace(character, f"\\{character}")
    return text


def _latex_sheet(sheet: Sheet) -> str:
    width = len(sheet.columns)
    alignment = "".join("r" if column.numeric else "l" for column in sheet.columns)
    caption = latex_text(sheet.caption)
    if sheet.warning:
        caption = rf"\textbf{{{latex_text(sheet.warning)}}} {caption}"
    head = _latex_head(sheet.columns)
    lines = [
        r"{\scriptsize\setlength{\tabcolsep}{3pt}",
        rf"\begin{{longtable}}{{{alignment}}}",
        rf"\caption{{{caption}}}\\",
        *head,
        r"\endfirsthead",
        *head,
        r"\endhead",
        rf"\midrule\multicolumn{{{width}}}{{r}}{{continued on the next page}}\\",
        r"\endfoot",
        r"\bottomrule",
        r"\endlastfoot",
    ]
    for position, block in enumerate(sheet.blocks):
        lines += [r"\midrule"] if position else []
        lines += [" & ".join(_latex_cell(cell) for cell in row) + r" \\" for row in block]
    return "\n".join([*lines, r"\end{longtable}", "}", ""])


def _latex_head(columns: Sequence[Column]) -> list[str]:
    lines = [r"\toprule"]
    if any(column.group for column in columns):
        spans, rules, start = [], [], 1
        for group, members in groupby(columns, key=lambda column: column.group):
            size = len(list(members))
            spans.append(rf"\multicolumn{{{size}}}{{c}}{{{latex_text(group)}}}")
            rules += [rf"\cmidrule(lr){{{start}-{start + size - 1}}}"] if group else []
            start += size
        lines += [" & ".join(spans) + r" \\", "".join(rules)]
    labels = (
        latex_text(column.label) if not column.numeric else rf"\multicolumn{{1}}{{c}}{{{latex_text(column.label)}}}"
        for column in columns
    )
    return [*lines, " & ".join(labels) + r" \\", r"\midrule"]


def _latex_cell(cell: Cell) -> str:
    return rf"\textbf{{{latex_text(cell.text)}}}" if cell.bold else latex_text(cell.text)


def latex_text(text: str) -> str:
    """``text`` with every character that LaTeX would read as a command replaced."""
    return "".join(_LATEX_ESCAPES.get(character, character) for character in text)
