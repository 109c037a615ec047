"""The worked examples of CONTRIBUTING.md run as they stand.

Blocks of an example whose first line is ``# name`` become files of that name; the other Python blocks are executed, in
order, in one fresh interpreter.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.study.needs import NEEDS

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = TEXT.partition("\n# Worked examples\n")[2]
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", EXAMPLES, re.M | re.S))
NAMED = re.compile(r"# (\S+\.(?:py|yaml))\n")

PACKAGE = ROOT / "src" / "polarvrp"
CONSTRAINT = TEXT.partition("\n## A constraint\n")[2].partition("\n# Worked examples\n")[0]
PLACES = re.findall(r"^\d+\. (.*?)(?=^\d+\. |^\n)", CONSTRAINT, re.M | re.S)
CONSTRAINT_ARRAYS = {"backhaul_class", "demand_backhaul", "distance_limit", "open_route", "time_windows"}


def blocks(section: str) -> list[tuple[str, str]]:
    """Language and text of each block."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", SECTIONS[section], re.M | re.S)


def test_there_is_an_example_of_each_thing() -> None:
    assert list(SECTIONS) == ["A backbone", "A paradigm", "An encoder", "An experiment", "A table"]


@pytest.mark.parametrize("section", SECTIONS)
def test_worked_example(section: str, tmp_path: Path) -> None:
    script = ""
    for language, text in blocks(section):
        if named := NAMED.match(text):
            (tmp_path / named[1]).write_text(text, encoding="utf-8")
        else:
            assert language == "python", f"a block of {language} is not tested: {text}"
            script += text
    assert script, "an example shows what it adds at work"
    (tmp_path / "config").symlink_to(ROOT / "config")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{tmp_path}"}
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_workflow_plans_the_added_experiment(tmp_path: Path) -> None:
    for _, text in blocks("An experiment"):
        if named := NAMED.match(text):
            (tmp_path / named[1]).write_text(text, encoding="utf-8")
    code = "import sys, encoder_cost; from snakemake.cli import main; main(sys.argv[1:])"
    target = "results/tables/encoder_cost.parquet"
    options = ["--snakefile", str(ROOT / "Snakefile"), "--workflow-profile", "none", "--configfile", "mine.yaml"]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{tmp_path}"}
    command = [sys.executable, "-c", code, "--dry-run", target, *options]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^build_encoder_cost +1$", done.stdout, re.M)
    assert re.search(r"^train_policy +3$", done.stdout, re.M)


def test_every_need_of_an_experiment_stands_where_the_page_says_and_no_other() -> None:
    assert "`NEEDS` of `study/needs.py`" in TEXT
    assert set(NEEDS) == {need for record in EXPERIMENTS.values() for need in record.needs}


@pytest.mark.parametrize("section", SECTIONS)
def test_code_of_an_example_is_laid_out_as_the_rest(section: str, tmp_path: Path) -> None:
    for number, (language, text) in enumerate(blocks(section)):
        if language == "python":
            (tmp_path / f"block{number}.py").write_text(text, encoding="utf-8")
    for words in (["format", "--check"], ["check", "--ignore", "I001,F401"]):
        command = [sys.executable, "-m", "ruff", *words, "--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "command", ["ruff check", "ruff format --check", "mypy", "snakefmt --check Snakefile workflow"]
)
def test_the_list_of_checks_is_that_of_the_makefile(command: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"| `{command}` |" in TEXT
    assert re.search(rf"&& {re.escape(command)}$", makefile, re.M)


def modules_of(place: str) -> set[Path]:
    """Modules of the package that a place of a constraint names, alone or by their folder."""
    named = [PACKAGE / name for name in re.findall(r"`(?!tests/)(\w+/[\w./]+)`", place)]
    return {module for path in named for module in ([path] if path.suffix == ".py" else path.glob("*.py"))}


def names_in(module: Path) -> set[str]:
    """Attributes, keywords and texts in the code of a module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        match node:
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)) | ast.Constant(value=str(name)):
                found.add(name)
    return found


def test_names_of_the_places_of_a_constraint_stand_in_their_files() -> None:
    assert len(PLACES) == 14
    for place in PLACES:
        code = "\n".join(module.read_text(encoding="utf-8") for module in modules_of(place))
        assert [name for name in re.findall(r"`(\w+)`", place) if not re.search(rf"\b{name}\b", code)] == [], place


def test_every_module_that_reads_a_constraint_is_a_place_of_one() -> None:
    reading = {module for module in PACKAGE.rglob("*.py") if CONSTRAINT_ARRAYS & names_in(module)}
    assert reading - {module for place in PLACES for module in modules_of(place)} == set()
