"""Tables in LaTeX: groups, panels, pages, and documents that compile."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.printed_tables import table
from polarvrp.catalog.experiments import tables
from polarvrp.tables.latex import PACKAGES, latex_text, to_latex
from polarvrp.tables.sources import Results


def latex_rows(text: str) -> list[list[str]]:
    """Cells of each line of the bodies of all ``tabular`` environments, heads included; checks that all rows fit."""
    rows = []
    text = re.sub(r"@\{\\hspace\{\w+\}\}", "", text)
    for columns, body in re.findall(r"\\begin\{tabular\}\{([lr]+)\}\n(.*?)\\end\{tabular\}", text, re.DOTALL):
        lines = [line.removesuffix(r"\\").strip() for line in body.splitlines() if line.endswith(r"\\")]
        for line in lines:
            cells = re.split(r"(?<!\\)&", line)
            spans = [re.match(r"\s*\\multicolumn\{(\d+)\}", cell) for cell in cells]
            assert sum(int(span[1]) if span else 1 for span in spans) == len(columns), line
            rows.append([cell.strip() for cell in cells])
    return rows


def well_formed(text: str) -> bool:
    """Whether braces and environments are closed in order, outside of comments and escapes."""
    text = re.sub(r"\\[\\{}%]", "", re.sub(r"(?m)^%.*$", "", text))
    depth, open_environments = 0, []
    for token in re.findall(r"\\(?:begin|end)\{\w+\}|[{}]", text):
        if token in "{}":
            depth += 1 if token == "{" else -1
        elif token.startswith(r"\begin"):
            open_environments.append(token[6:])
        elif not open_environments or open_environments.pop() != token[4:]:
            return False
        if depth < 0:
            return False
    return depth == 0 and not open_environments


def test_latex_groups_heads_and_escapes() -> None:
    text = to_latex([table([["CVRP", "!10.0", "2%"], ["Average", "–", "*"]], summary=1)])
    assert r"\caption{Gap of a\_b in \%}" in text
    assert " & \\multicolumn{2}{c}{n=10} \\\\\n\\cmidrule(lr){2-3}\n" in text
    assert (
        "CVRP & \\cellcolor[gray]{0.85} \\textbf{10.0} & 2\\% \\\\\n\\midrule\nAverage & -- & * \\\\\n\\bottomrule"
        in text
    )
    assert well_formed(text)
    assert latex_text("α ≤ 1−x_<1>") == r"$\alpha$ $\le$ 1$-$x\_\textless{}1\textgreater{}"


def test_a_long_table_of_blocks_is_set_in_two_panels() -> None:
    blocks = [[f"V{block}", f"M{row}", "1.0"] for block in range(10) for row in range(12)]
    columns = (("", "Variant"), ("", "Method"), ("n=10", "Obj."))
    text = to_latex([table(blocks, columns, heads=2)])
    assert text.count(r"\begin{table*}[p]") == 1 and r"\tiny" in text and well_formed(text)
    rows = [row for row in latex_rows(text) if row[-1] == "1.0"]
    assert len(rows) == 60 and rows[0] == ["V0", "M0", "1.0", "V5", "M0", "1.0"] and rows[1][0] == rows[1][3] == ""
    assert text.count(r"\cmidrule(lr){1-3}\cmidrule(lr){4-6}") == 4  # whole blocks, five in each panel


def test_a_latex_table_too_long_for_a_page_goes_on_in_another() -> None:
    blocks = [[f"V{block}", f"M{row}", "1.0"] for block in range(30) for row in range(12)]
    columns = (("", "Variant"), ("", "Method"), ("n=10", "Obj."))
    text = to_latex([table(blocks, columns, heads=2)])
    parts = text.split(r"\begin{table*}")[1:]
    assert len(parts) == 2 and all(part.count("max width=") == 1 for part in parts)
    assert [part.count(r"\addtocounter{table}{-1}\caption{Continued.}") for part in parts] == [0, 1]
    bodies = [[row for row in latex_rows(part) if row[2] == "1.0"] for part in parts]
    assert [len(body) for body in bodies] == [108, 72]  # whole blocks, 18 of 30 on the first page
    assert [body[0][::3] for body in bodies] == [["V0", "V9"], ["V18", "V24"]]
    assert well_formed(text)


def test_a_latex_table_too_wide_for_a_page_goes_on_in_another_between_groups() -> None:
    columns = (("", "Variant"), *((f"M{method}", label) for method in range(30) for label in ("Obj.", "Gap")))
    text = to_latex([table([["CVRP", *("1" for _ in range(60))]], columns)])
    heads = [row for row in latex_rows(text) if row[0] == "Variant"]
    assert [len(row) for row in heads] == [31, 31]
    assert all(row[1::2] == ["Obj."] * (len(row) // 2) for row in heads)


def test_narrow_tables_take_one_column_of_two() -> None:
    rows = [["CVRP", "10.0", "2%"]]
    assert r"\begin{table}[p]" in to_latex([table(rows)])
    wide = (("", "Variant"), *((f"M{method}", "Obj.") for method in range(12)))
    assert r"\begin{table*}[p]" in to_latex([table([["CVRP", *(["10.000"] * 12)]], wide)])


def in_latex(study: Results) -> dict[str, str]:
    """Text of each table of a study."""
    return {name: study.layout.table(name, "tex").read_text(encoding="utf-8") for name in tables()}


def test_every_table_has_rows_of_one_width(study: Results) -> None:
    for name, text in in_latex(study).items():
        assert well_formed(text) and len(latex_rows(text)) >= 3, name


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex; rows and braces are checked without")
@pytest.mark.parametrize("columns", ["onecolumn", "twocolumn"])
def test_every_table_compiles_and_fits_a_page(study: Results, tmp_path: Path, columns: str) -> None:
    parts = [part for text in in_latex(study).values() for part in re.split(r"(?=\\begin\{table)", text)[1:]]
    body = "\n\\clearpage\n".join(parts)
    document = f"\\documentclass[{columns}]{{article}}{PACKAGES}\\begin{{document}}\n{body}\n\\end{{document}}\n"
    (tmp_path / "all.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    log = (tmp_path / "all.log").read_text(encoding="latin-1").replace("\n", "")
    assert run.returncode == 0, log[-2000:]
    assert f"({len(parts)} pages" in log
    assert not re.findall(r"Overfull.{40}|too large.{40}", log)
