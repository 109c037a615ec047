"""The examples of docs/ run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

from matplotlib.image import imread

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"


def run(folder: Path, name: str, *options: str) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "WANDB_MODE": "disabled"}
    command = [sys.executable, str(EXAMPLES / name), *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"quickstart.py", "compare_on_one_variant.py"}


def test_quickstart_needs_no_trained_model_and_says_so(tmp_path: Path) -> None:
    printed = run(tmp_path, "quickstart.py")
    assert "the network below is UNTRAINED" in printed
    for method in ("untrained", "PyVRP"):
        assert re.search(rf"^{method}: 4 solutions, 4 feasible, mean cost \d+\.\d+$", printed, re.MULTILINE)
    gap = re.search(r"^mean gap to PyVRP: (\S+) %$", printed, re.MULTILINE)
    assert gap is not None and float(gap[1]) > 10  # it has learnt nothing
    assert list(tmp_path.iterdir()) == []


def test_comparison_trains_solves_and_draws(tmp_path: Path) -> None:
    options = ["--epochs", "1", "--instances", "3", "--seconds", "0.1", "--output", "routes.png"]
    printed = run(tmp_path, "compare_on_one_variant.py", *options)
    assert printed.count("3 solutions, 3 feasible") == 2
    assert "routes of instance" in printed
    picture = imread(tmp_path / "routes.png")
    assert picture.shape[:2] == (550, 1500)
    assert picture[..., :3].std() > 0.05  # not a blank page
    assert [path.name for path in tmp_path.iterdir()] == ["routes.png"]
