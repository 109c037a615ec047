"""The report: one page, tables and figures in order, text escaped, nothing loaded from elsewhere."""

import base64
import html.parser
from pathlib import Path

import pytest

from polarvrp.cli.main import main

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
MARKDOWN = r"""**Scale quick: nothing here is a result.**

Gap \* by variant \<n\>.

| Variant | A\|B | Gap |
| :--- | ---: | ---: |
| CVRP | 1 | **2 \< 3** |
| OVRP | – | 4 |
"""


class Page(html.parser.HTMLParser):
    """Cells, paragraphs and addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img"):
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in self.open:
            self.texts[tag][-1] += data


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    table, figure = tmp_path / "zero_shot.md", tmp_path / "zero_shot.png"
    table.write_text(MARKDOWN)
    figure.write_bytes(PNG)
    return table, figure


def test_report_shows_tables_and_figures(tmp_path: Path, files: tuple[Path, Path]) -> None:
    output = tmp_path / "report.html"
    words = ["report", "--tables", str(files[0]), "--figures", str(files[1]), "--output", str(output)]
    assert main(words) == 0
    page = Page(output.read_text())
    assert page.open == []
    assert page.texts["h2"] == ["Table: zero shot", "Figure: zero shot"]
    assert page.texts["th"] == ["Variant", "A|B", "Gap"]
    assert page.texts["td"] == ["CVRP", "1", "2 < 3", "OVRP", "–", "4"]
    assert "2 < 3" in page.texts["b"]
    assert "Gap * by variant <n>." in page.texts["p"]
    assert base64.b64encode(PNG).decode() in page.addresses[-1]
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in page.addresses)


@pytest.mark.parametrize(
    ("scale", "note"), [("quick", "Nothing on this page is a result"), ("paper", "the full study")]
)
def test_report_says_its_scale(tmp_path: Path, scale: str, note: str) -> None:
    output = tmp_path / "report.html"
    assert main(["report", "--scale", scale, "--output", str(output)]) == 0
    assert note in output.read_text()


def test_missing_table_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--tables", str(tmp_path / "set_x.md"), "--output", str(tmp_path / "report.html")]) == 2
    error = capsys.readouterr().err
    assert "set_x.md does not exist; make it with" in error and len(error.splitlines()) == 1
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"| A | B |\n| --- | --- |\n| caf\xe9 | 1 |\n", "is no UTF-8 text"),
        (b"\n| A | B |\n| --- | --- |\n| 1 | 2 | 3 |\n", "line 4: a row has 3 cells, its table 2 columns"),
        (b"| A | B |\n| --- |\n| 1 | 2 |\n", "line 1: a row has 2 cells, its table 1 columns"),
    ],
)
def test_a_damaged_table_is_named(
    tmp_path: Path, content: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table, output = tmp_path / "mine.md", tmp_path / "report.html"
    table.write_bytes(content)
    assert main(["report", "--tables", str(table), "--output", str(output)]) == 2
    error = capsys.readouterr().err
    assert str(table) in error
    assert message in error
    assert error.count("\n") == 1
    assert not output.exists()
