"""A backbone from outside the package: one file with a registry entry, then every command and the workflow know it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE = """
from torch import nn

from polarvrp.model.conditioning import Conditioning
from polarvrp.model.decoder import PointerDecoder
from polarvrp.model.embedding import NodeEmbedding
from polarvrp.model.heads import PlainHead
from polarvrp.model.linear import Linear
from polarvrp.model.policy import Encoding, Policy
from polarvrp.model.registry import RegisteredBackbone


class Nodewise(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.map = Linear(width, width)

    def forward(self, x, prompt, rotation):
        return Encoding(self.map(x), x.new_zeros(()))


def build(config):
    head = PlainHead(Linear(config.width, config.width))
    decoder = PointerDecoder(config.width, config.heads, state="full", map_logit_keys=False, head=head)
    embedding = NodeEmbedding(config.width, "limit", bias=True)
    return Policy(config, embedding, Conditioning(()), Nodewise(config.width), decoder)


BACKBONE = RegisteredBackbone(("shared",), build)
"""
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
    """Where a package with a backbone is installed, beside the study's configuration."""
    (tmp_path / "nodewise.py").write_text(MODULE)
    installed = tmp_path / "nodewise-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: nodewise\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[polarvrp.backbones]\nnodewise = nodewise:BACKBONE\n")
    (tmp_path / "config").symlink_to(ROOT / "config")
    (tmp_path / "mine.yaml").write_text(SMALL)
    return tmp_path


def run(folder: Path, *words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(folder), "WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1"}
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
