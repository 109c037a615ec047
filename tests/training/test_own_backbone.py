"""A backbone from outside the package: one file with a registry entry, then every command and the workflow know it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.own_package import install_package

ROOT = Path(__file__).parents[2]
RUN = "nodewise-shared-polar-n6-s0"
SMALL = """
scale: quick
sizes:
  - {num_customers: 6, batch_size: 4, reference_seconds: 0.1}
transfer_size: 6
training: {epochs: 2, instances_per_epoch: 8, refinement_start_epoch: 1}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the package is installed, beside the study's configuration."""
    install_package(tmp_path)
    (tmp_path / "mine.yaml").write_text(SMALL)
    return tmp_path


def run(folder: Path, *words: str) -> str:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
        "WANDB_MODE": "disabled",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_described_trained_and_planned_under_its_name(folder: Path) -> None:
    described = json.loads(run(folder, "polarvrp", "describe", "nodewise", "shared"))
    # Embedding 1,536, one map of 128 x 129, plain decoder 66,304: the golden value of this backbone.
    assert described["parameters"] == 1536 + 128 * 129 + 66_304
    run(folder, "polarvrp", "train", RUN, "--configfile", "mine.yaml")
    assert (folder / "results" / "models" / RUN / "weights.safetensors").is_file()
    target = "results/models/nodewise-shared-rl-n10-s0/weights.safetensors"
    plan = run(folder, "snakemake", target, "-n", "--snakefile", str(ROOT / "Snakefile"), "--workflow-profile", "none")
    assert "train_policy" in plan
