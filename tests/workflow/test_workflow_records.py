"""Records of one's own are planned like those that ship; a row of one's own is in test_workflow_smoke.py."""

import os
import re
from pathlib import Path

import pytest

from helpers.snakemake import Workflow

RECORDS = """
from dataclasses import replace

from polarvrp.catalog.encoders import ENCODERS, Encoder
from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.catalog.paradigms import PARADIGMS

PARADIGMS["mine"] = replace(PARADIGMS["po"], name="mine", label="Mine")
ENCODERS["wide"] = Encoder(name="wide", label="Wide", architecture="polarvrp.config.architectures:with_deep_stack")
EXPERIMENTS["by_paradigm"] = replace(EXPERIMENTS["training_paradigms"], name="by_paradigm", title="Once more")
"""

pytestmark = pytest.mark.workflow


def test_records_of_ones_own_are_planned(workflow: Workflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "sitecustomize.py").write_text(RECORDS)
    (tmp_path / "mine.yaml").write_text(
        "scale: quick\nexperiments: [training_paradigms, encoder_settings, by_paradigm]\n"
    )
    plan = workflow("all", "--dry-run", "--configfile", "mine.yaml")
    trained = set(re.findall(r"results/models/([^/]+)/weights.safetensors", plan.output))
    assert {"polarnet-ple-mine-n10-s0", "polarnet-wide-polar-n10-s0"} <= trained
    assert {"build_by_paradigm", "draw_by_paradigm"} <= set(plan.jobs)
