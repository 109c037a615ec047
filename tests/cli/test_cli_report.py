"""``polarvrp report`` needs tables to report."""

from pathlib import Path

import pytest

from polarvrp.cli.main import main


def test_no_tables_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "report.html"
    assert main(["report", "--output", str(output)]) == 2
    assert "which tables?" in capsys.readouterr().err
    assert not output.exists()


def test_tables_stand_in_the_page(tmp_path: Path) -> None:
    table, output = tmp_path / "one.md", tmp_path / "report.html"
    table.write_text("A caption.\n\n| Variant | Gap |\n| :--- | ---: |\n| CVRP | 1.234% |\n")
    assert main(["report", "--tables", str(table), "--output", str(output)]) == 0
    assert "1.234%" in output.read_text()
