"""What documents name exists: files, modules, links and commands; the code in the README runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from polarvrp.cli.main import COMMANDS
from polarvrp.config.model import ModelConfig
from polarvrp.config.schema import config_schema
from polarvrp.model.registry import build_policy
from polarvrp.model.saving import save_policy

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "polarvrp"
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "config/README.md",
    "results/README.md",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))),
)
FOLDERS = ("src", "tests", "docs", "config", "benchmarks", "workflow", *(path.name for path in SOURCE.iterdir()))


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page: str) -> None:
    """Paths from the project's or the package's folder; patterns and results that are still to be made aside."""
    named = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./]*\w)`", text_of(page))
    assert [path for path in named if not any((folder / path).exists() for folder in (ROOT, SOURCE))] == []


@pytest.mark.parametrize("page", PAGES)
def test_modules_that_a_page_names_exist(page: str) -> None:
    named = re.findall(r"`(?:python -m )?polarvrp\.(\w+\.\w+(?:\.\w+)*)`", text_of(page))
    paths = [SOURCE / name.replace(".", "/") for name in named]
    assert [path for path in paths if not (path.is_dir() or path.with_suffix(".py").is_file())] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_within_the_project_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    links = [link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text_of(page)) if "://" not in link]
    assert [link for link in links if not (folder / link).exists()] == []


def anchors_of(page: Path) -> set[str]:
    """What GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_to_a_heading_lead_to_one(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(([^):#]*)#([^)]+)\)", text_of(page))
    assert [link for link in links if link[1] not in anchors_of(path.parent / link[0] if link[0] else path)] == []


def test_the_page_of_the_configuration_names_every_key() -> None:
    """But for adapters, which no configuration may name."""
    schema = config_schema()
    sections = [schema, *schema["$defs"].values()]
    keys = {key for section in sections for key in section.get("properties", {})} - {"adapters"}
    page = text_of("config/README.md")
    assert [key for key in sorted(keys) if not re.search(rf"(`|\.|{{|, ){key}(`|:|\.\w)", page)] == []


def test_the_readme_names_every_command_and_no_other() -> None:
    named = set(re.findall(r"^(?:torchrun .* )?polarvrp +([a-z-]+)", text_of("README.md"), re.M))
    assert named == COMMANDS.keys(), "the list of commands in README.md lacks one or has one too many"


def test_the_library_section_of_the_readme_runs(tmp_path: Path) -> None:
    """With an untrained network under the name of the trained one."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", text_of("README.md"), re.M | re.S)
    run = "polarnet-ple-polar-n50-s0"
    policy = build_policy(ModelConfig(width=32, heads=4, layers=1, feedforward_width=32), seed=0)
    save_policy(tmp_path / "results" / "models" / run / "weights.safetensors", policy, {"run": run})
    block = block.replace("instances=10", "instances=2").replace("seconds=1)", "seconds=0.2)")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-c", block]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 solutions, 2 feasible" in done.stdout and done.stdout.endswith("6983414\n")
