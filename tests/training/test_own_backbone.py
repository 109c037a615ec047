"""A backbone from outside the package: one file with a registry entry, then commands and the workflow know it."""

import json
from pathlib import Path

import pytest

from helpers.own_package import install_package
from helpers.snakemake import Workflow
from polarvrp.cli.main import main

RUN = "nodewise-shared-polar-n6-s0"
SMALL = """
scale: quick
sizes:
  - {num_customers: 6, batch_size: 4, reference_seconds: 0.1}
transfer_size: 6
training: {epochs: 2, instances_per_epoch: 8, refinement_start_epoch: 1}
"""


def test_it_is_described_trained_and_planned_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variables = install_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert main(["describe", "nodewise", "shared"]) == 0
    # Embedding 1,536, one map of 128 x 129, plain decoder 66,304: the golden value of this backbone.
    assert json.loads(capsys.readouterr().out)["parameters"] == 1536 + 128 * 129 + 66_304
    (tmp_path / "mine.yaml").write_text(SMALL)
    assert main(["train", RUN, "--configfile", "mine.yaml"]) == 0
    assert (tmp_path / "results" / "models" / RUN / "weights.safetensors").is_file()
    plan = Workflow(tmp_path, variables).dry("results/models/nodewise-shared-rl-n10-s0/weights.safetensors")
    assert plan.jobs["train_policy"] == 1
