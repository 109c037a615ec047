"""Rows and records of one's own: planned, trained, evaluated and printed like those that ship."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from helpers.own_package import install_package

ROOT = Path(__file__).parents[2]
STUDY = """
scale: quick
variants: [CVRP, OVRPBLTW, VRPMB]
sizes:
  - {num_customers: 6, batch_size: 4, reference_seconds: 0.05}
transfer_size: 6
backbones: [polarnet, {name: nodewise, encoder: shared, paradigm: po, label: Nodewise}]
experiments: [in_distribution, zero_shot, set_x]
datasets: {test_instances: 2, validation_instances: 2}
training: {epochs: 2, instances_per_epoch: 4, refinement_start_epoch: 1, validation_instances: 1}
evaluation: {augmentations: 1}
set_x: {instances: 1, starts: 2}
"""
METHOD = "nodewise-shared-po-s0"
RECORDS = """
import sys
from dataclasses import replace

from polarvrp.catalog.encoders import ENCODERS, Encoder
from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.catalog.paradigms import PARADIGMS

PARADIGMS["mine"] = replace(PARADIGMS["po"], name="mine", label="Mine")
ENCODERS["wide"] = Encoder(name="wide", label="Wide", architecture="polarvrp.model.architectures:with_deep_stack")
EXPERIMENTS["by_paradigm"] = replace(EXPERIMENTS["training_paradigms"], name="by_paradigm", title="Once more")

from snakemake.cli import main

main(sys.argv[1:])
"""

pytestmark = pytest.mark.workflow


def run(folder: Path, *words: str) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    environment |= {"WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1"}
    places = ["--snakefile", str(ROOT / "Snakefile"), "--workflow-profile", "none"]
    command = [sys.executable, *words, *places]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return done.stdout + done.stderr


def test_a_row_of_ones_own_is_trained_evaluated_and_printed_in_every_main_table(tmp_path: Path) -> None:
    install_package(tmp_path)
    (tmp_path / "mine.yaml").write_text(STUDY)
    run(tmp_path, "-m", "snakemake", "--cores", "2", "--configfile", "mine.yaml")
    for name in ("in_distribution", "zero_shot", "set_x"):
        rows = pq.read_table(tmp_path / f"results/tables/{name}.parquet").to_pylist()
        mine = [row for row in rows if row["method"] == METHOD]
        assert mine and all(row.get("objective", row.get("cost")) > 0 for row in mine), name
        for suffix in ("md", "tex"):
            assert "Nodewise" in (tmp_path / f"results/tables/{name}.{suffix}").read_text(), (name, suffix)
    assert (tmp_path / "results/report.html").read_text().count("Nodewise") >= 3


def test_records_of_ones_own_are_planned(tmp_path: Path) -> None:
    (tmp_path / "config").symlink_to(ROOT / "config")
    (tmp_path / "with_records.py").write_text(RECORDS)
    (tmp_path / "mine.yaml").write_text(
        "scale: quick\nexperiments: [training_paradigms, encoder_settings, by_paradigm]\n"
    )
    plan = run(tmp_path, "with_records.py", "all", "--dry-run", "--configfile", "mine.yaml")
    trained = set(re.findall(r"results/models/([^/]+)/weights.safetensors", plan))
    assert {"polarnet-ple-mine-n10-s0", "polarnet-wide-polar-n10-s0"} <= trained
    assert {"build_by_paradigm", "draw_by_paradigm"} <= set(
        re.findall(r"^(?:rule|localrule) (\w+):", plan, re.MULTILINE)
    )
