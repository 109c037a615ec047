"""All tables and figures of a study as one HTML page that needs nothing beside itself, and no network."""

import base64
import html
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from polarvrp.errors import DataError
from polarvrp.files import write_text

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
nav a { margin-right: 1rem; }
section { margin: 3rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.6rem; border-bottom: 1px solid #ddd; white-space: nowrap; }
th { border-bottom: 2px solid #888; vertical-align: bottom; }
img { max-width: 100%; }
.scale { background: #fff4ce; padding: 0.5rem 1rem; }
"""

_NOTES = {
    "quick": "Scale quick: this run proves that the pipeline works. Nothing on this page is a result.",
    "paper": "Scale paper: the full study.",
}

_RULE = re.compile(r"\|(\s*:?-+:?\s*\|)+")


def write_report(output: Path, tables: Sequence[Path], figures: Sequence[Path], scale: str) -> None:
    """Write the page.

    Args:
        output: HTML file.
        tables: Markdown files of tables, in order.
        figures: PNG files, in order.
        scale: Scale of the study, shown on top.

    Raises:
        DataError: If a table or figure is missing, or a table is no UTF-8 text or has rows of unequal length.
    """
    for path in (*tables, *figures):
        if not path.is_file():
            raise DataError(f"{path} does not exist; make it with: snakemake --cores all tables figures")
    sections = [(f"table-{path.stem}", f"Table: {_words(path)}", _markdown(path)) for path in tables]
    sections += [(f"figure-{path.stem}", f"Figure: {_words(path)}", _image(path)) for path in figures]
    links = " ".join(f'<a href="#{anchor}">{title}</a>' for anchor, title, _ in sections)
    bodies = "\n".join(f'<section id="{anchor}"><h2>{title}</h2>\n{body}</section>' for anchor, title, body in sections)
    write_text(
        output,
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>polarvrp: {scale}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f'<body><h1>polarvrp</h1><p class="scale">{_NOTES[scale]}</p>\n<nav>{links}</nav>\n{bodies}\n</body></html>\n',
    )


def _words(path: Path) -> str:
    return html.escape(path.stem.replace("_", " "))


def _image(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{html.escape(path.stem)}" src="data:image/png;base64,{data}">'


def _markdown(path: Path) -> str:
    """HTML of paragraphs and pipe tables, all that our Markdown files hold."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no UTF-8 text; build its table again or save it as UTF-8") from error
    parts, number = [], 1
    for is_row, group in groupby(text.splitlines(), key=lambda line: line.startswith("|")):
        lines = list(group)
        if is_row:
            parts.append(_table(path, number, lines))
        else:
            parts += [f"<p>{_inline(line)}</p>" for line in lines if line.strip()]
        number += len(lines)
    return "\n".join(parts)


def _table(path: Path, number: int, lines: Sequence[str]) -> str:
    """HTML of a pipe table whose first line has that number in its file."""
    rule = next((position for position, line in enumerate(lines) if _RULE.fullmatch(line.strip())), 0)
    sides = ["right" if cell.endswith(":") else "left" for cell in _cells(lines[rule])]
    for position, line in enumerate(lines):
        if len(_cells(line)) != len(sides):
            raise DataError(
                f"{path}, line {number + position}: a row has {len(_cells(line))} cells, its table {len(sides)} "
                f"columns; build the table again"
            )
    head = "".join(_row("th", _cells(line), sides) for line in lines[:rule])
    body = "\n".join(_row("td", _cells(line), sides) for line in lines[rule + 1 :])
    return f'<div class="wide"><table><thead>{head}</thead><tbody>\n{body}</tbody></table></div>'


def _cells(line: str) -> list[str]:
    """Cells between bars; a backslash keeps a bar in a cell."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def _row(tag: str, cells: Iterable[str], sides: Iterable[str]) -> str:
    pairs = zip(cells, sides, strict=True)
    return (
        "<tr>" + "".join(f'<{tag} style="text-align:{side}">{_inline(cell)}</{tag}>' for cell, side in pairs) + "</tr>"
    )


def _inline(text: str) -> str:
    """Text with ``**bold**`` parts and characters escaped by a backslash."""
    plain = [html.escape(re.sub(r"\\(.)", r"\1", part)) for part in re.split(r"(?<!\\)\*\*", text)]
    return "".join(f"<b>{part}</b>" if position % 2 else part for position, part in enumerate(plain))
