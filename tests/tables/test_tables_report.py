"""The report: one page, tables and figures in order, text escaped, nothing loaded from elsewhere."""

import base64
import html.parser
import re
from pathlib import Path

import pytest

from helpers.results_folder import ResultsFolder
from polarvrp.cli.main import main

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
RUN = "polarnet-ple-polar-n10-s0"


class Page(html.parser.HTMLParser):
    """Texts by tag, classes of cells and addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.classes: dict[str, list[list[str]]] = {}
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag not in ("meta", "img"):
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")
            self.classes.setdefault(tag, []).append((attributes.get("class") or "").split())
        self.addresses += [attributes[name] or "" for name in ("src", "href") if name in attributes]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in self.open:
            self.texts[tag][-1] += data


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two tables and a figure."""
    folder = ResultsFolder(tmp_path / "results")
    folder.evaluate(RUN, 3.0, variants=("VRPMB",))
    folder.evaluate("cada-shared-rl-n10-s0", 4.0, variants=("VRPMB",))
    folder.train(RUN)
    assert main(["tables", "zero_shot", "training_cost", "--results", str(folder.root)]) == 0
    (folder.root / "figures").mkdir()
    (folder.root / "figures" / "zero_shot.png").write_bytes(PNG)
    return folder.root


def page_of(root: Path, *words: str) -> Page:
    assert main(["report", *words, "--results", str(root)]) == 0
    return Page((root / "report.html").read_text(encoding="utf-8"))


def test_report_shows_what_was_built_and_loads_nothing(root: Path) -> None:
    page = page_of(root)
    assert page.open == []
    assert page.texts["h2"] == ["Zero-shot performance on variants unseen in training", "Training cost"]
    assert [text for text in page.texts["th"] if text][:4] == ["PyVRP", "CaDA", "Ours", "Variant"]
    assert page.texts["td"][:7] == ["VRPMB", "10.00", "*", "10.40", "4.00%", "10.30", "3.00%"]
    assert base64.b64encode(PNG).decode() in page.addresses[-1]
    assert page.addresses[:2] == ["#zero_shot", "#training_cost"]
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in page.addresses)
    assert not re.search(r"https?://|@import|url\(", (root / "report.html").read_text(encoding="utf-8"))


def test_best_cells_and_ours_stand_out_and_averages_stay_below(root: Path) -> None:
    page = page_of(root, "zero_shot")
    cells = list(zip(page.texts["td"], page.classes["td"], strict=True))
    assert {text for text, names in cells if "best" in names} == {"10.30", "3.00%"}
    assert {text for text, names in cells if "ours" in names} == {"10.30", "3.00%", "–"}
    assert [text for text, names in cells if "summary" in names and "head" in names] == ["Average"]
    (script,) = page.texts["script"]
    assert "aria-sort" in script and "table.printed" in script


def test_captions_of_tables_and_figures_are_shown(root: Path) -> None:
    page = page_of(root, "zero_shot")
    assert any("Gaps are against our PyVRP costs (*)" in text for text in page.texts["p"])
    assert page.texts["figcaption"] == [
        "Gap of every compared method on each unseen variant by the rules of the problem, a panel a size."
    ]


def test_report_says_its_scale(root: Path) -> None:
    assert any("Nothing here is a result" in text for text in page_of(root).texts["p"][:1])
    ResultsFolder(root).solve("polarnet-ple-polar-n50-s0", "CVRP", 50, [11.0])
    main(["tables", "in_distribution", "--results", str(root), "--scale", "paper"])
    page = page_of(root, "--scale", "paper")
    assert page.texts["p"][0] == "Scale paper: the full study."
    assert page.texts["h2"][0] == "Performance on the training variants"
    assert not any("Nothing here is a result" in text for text in page.texts["p"])


def test_text_of_users_is_escaped(root: Path) -> None:
    labels = '{"cada-shared-rl": "<script>alert(1)</script>"}'
    assert main(["tables", "zero_shot", "--results", str(root), "--labels", labels]) == 0
    page = page_of(root)
    assert "<script>alert(1)</script>" in page.texts["th"] and len(page.texts["script"]) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["zeroshot"], "unknown experiment 'zeroshot'; there are in_distribution, zero_shot"),  # a typo
        (["set_x"], "set_x.parquet does not exist; make it with: polarvrp tables set_x"),  # a table not built yet
        (["training_curves"], "training_curves.png does not exist; make it with: polarvrp figures"),  # not drawn yet
        (["zero_shot", "--scale", "paper"], "zero_shot.parquet is of scale quick, not paper"),  # of another scale
        (["--scale", "paper"], "holds no tables or figures of scale paper; make them with: snakemake"),  # none at all
    ],
)
def test_what_cannot_be_shown_is_named(
    root: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *words, "--results", str(root)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (root / "report.html").exists()


def test_a_damaged_table_is_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = root / "tables" / "zero_shot.parquet"
    path.write_bytes(path.read_bytes()[:100])
    assert main(["report", "--results", str(root)]) == 2
    error = capsys.readouterr().err
    assert f"{path} is no complete Parquet file" in error and error.count("\n") == 1
    assert not (root / "report.html").exists()
