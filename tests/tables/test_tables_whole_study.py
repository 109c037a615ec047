"""Tables and figures as wide and long as the paper's: nothing is clipped, and documents of them compile.

In one file, since what they show takes long to make and is made once for all tests of a file.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.latex_texts import latex_rows, well_formed
from helpers.results_folder import whole_study
from polarvrp.catalog.experiments import EXPERIMENTS, tables
from polarvrp.study import shipped
from polarvrp.tables.build import build_tables
from polarvrp.tables.figures import draw_figure
from polarvrp.tables.latex import PACKAGES
from polarvrp.tables.sources import Results

WITHOUT_LEGEND = {"gate_weights", "sample_routes"}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Every table, as wide and long as the paper's; not to be changed."""
    folder = tmp_path_factory.mktemp("study")
    results = Results(whole_study(folder / "results").root, "quick")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipped, "SHIPPED", folder / "ships nothing")
        build_tables(results)
    return results


@pytest.mark.parametrize("name", sorted({name for name in EXPERIMENTS if EXPERIMENTS[name].figure} - WITHOUT_LEGEND))
def test_nothing_is_clipped(study: Results, name: str) -> None:
    """All methods of the paper have a place in the legend, and the legend has one in the picture."""
    figure = draw_figure(study, EXPERIMENTS[name])
    figure.draw_without_rendering()
    box, picture = figure.legends[0].get_window_extent(), figure.bbox
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= picture.width and box.y1 <= picture.height
    for axes in figure.axes:
        around = axes.get_tightbbox()
        assert around is not None and around.x0 >= -1 and around.y0 >= box.y1 - 1 and around.x1 <= picture.width + 1


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
