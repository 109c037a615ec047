"""Commands where the home folder cannot be written to, as on some clusters and in some containers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.library_texts import PLAIN
from helpers.snakemake import Workflow
from helpers.tiny_training import RUN, tiny_spec
from polarvrp.problem.sets import write_set
from polarvrp.study.specs import canonical

ROOT = Path(__file__).parents[2]
SCRIPT = "import json, sys; from polarvrp.cli.main import main; sys.exit(sum(map(main, json.loads(sys.argv[1]))))"
SPEC = canonical(tiny_spec(epochs=1, instances_per_epoch=4, refinement_start_epoch=0))
COMMANDS = [
    [*("train", RUN, "--spec", SPEC, "--workers", "1"), *("--validation", "set.npz", "--results", "results")],
    ["solve", "tiny.vrp", "--model", RUN, "--seconds", "0.05", "--output", "solved", "--plot"],
]


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder; the home is a file, in which not even root can make a folder."""
    (tmp_path / "home").write_text("no folder")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in [name for name in os.environ if name.startswith(("XDG_", "WANDB_", "MPL"))]:
        monkeypatch.delenv(name)
    (work := tmp_path / "work").mkdir()
    return work


def test_commands_need_no_home(homeless: Path) -> None:
    """A training with its offline run of W&B and local search, and a picture by matplotlib."""
    (homeless / "tiny.vrp").write_text(PLAIN)
    write_set(homeless / "set.npz", "CVRP", 8, 2, seed=4321)
    words = [sys.executable, "-c", SCRIPT, json.dumps(COMMANDS)]
    done = subprocess.run(words, cwd=homeless, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (homeless / "solved" / "tiny.png").stat().st_size > 0
    assert list(homeless.glob("results/wandb/offline-run-*/*.wandb"))
    assert (homeless.parent / "home").read_text() == "no folder"


def test_snakemake_works_as_the_readme_says(homeless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caches are its own matter, and stop it, unless they lie elsewhere."""
    assert "export XDG_CACHE_HOME=" in (ROOT / "README.md").read_text(encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(homeless / "cache"))
    run = Workflow(homeless).dry("results/datasets/test/CVRP-n10.npz")
    assert run.code == 0 and run.jobs["generate_dataset"] == 1
