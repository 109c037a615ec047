"""The page that lists the paper's tables, figures and claims names targets and files that the workflow knows."""

import re
from pathlib import Path

import pytest

from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.tables.claims import claims

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
PAPER = ROOT.parent / "shared" / "paper" / "paper.tex"


def rows() -> list[list[str]]:
    """Cells of every table of the page, without heads."""
    lines = re.findall(r"^\|(.+)\|$", PAGE, re.MULTILINE)
    tables = re.split(r"^\|.+\|\n\|[-|]+\|\n", PAGE, flags=re.MULTILINE)[1:]
    cells = [re.findall(r"^\|(.+)\|$", table, re.MULTILINE) for table in tables]
    assert sum(map(len, cells)) + 2 * len(tables) == len(lines)
    return [[cell.strip() for cell in line.split("|")] for table in cells for line in table]


def test_every_target_is_one_of_the_workflow() -> None:
    rules = (ROOT / "workflow" / "rules" / "targets.smk").read_text(encoding="utf-8")
    targets = set(re.findall(r"^rule (\w+):", rules, re.MULTILINE))
    named = {name for row in rows() for cell in row for name in re.findall(r"^`(\w+)`$", cell)}
    assert named <= targets, named - targets


def test_every_file_is_one_that_an_experiment_makes() -> None:
    tables = {f"results/tables/{name}.parquet" for name, record in EXPERIMENTS.items() if record.rows}
    figures = {f"results/figures/{name}.png" for name, record in EXPERIMENTS.items() if record.figure}
    named = set(re.findall(r"`(results/[\w/.]+)`", PAGE))
    assert named <= tables | figures, named - tables - figures
    assert tables - named == set(), "a table has no row on the page"


def test_the_target_of_a_table_makes_it_and_little_else() -> None:
    for row in (row for row in rows() if len(row) == 3):
        for table in re.findall(r"`results/tables/(\w+)\.parquet`", row[-1]):
            of_group = {"ablation": "`ablations`", "analysis": "`analyses`"}.get(EXPERIMENTS[table].group)
            own = f"`{table}`" if table in ("zero_shot", "set_x") else "its file"
            assert row[-2] == (of_group or own), (table, row[-2])


def test_every_claim_of_the_comparison_is_on_the_page_and_no_other() -> None:
    known = {claim.row for claim in claims()}
    named = {row[2].strip("`") for row in rows() if len(row) == 4}
    assert named == known


@pytest.mark.skipif(not PAPER.is_file(), reason="needs the paper's source")
def test_every_labelled_table_and_figure_of_the_paper_is_on_the_page() -> None:
    labels = set(re.findall(r"\\label\{((?:tab|fig):\w+)\}", PAPER.read_text(encoding="utf-8")))
    absent = {label for label in labels if f"`{label}`" not in PAGE}
    assert len(labels) > 10 and absent == set()
