"""What the profile for SLURM submits, by the real plugin; SLURM's own commands are stubs that note their words."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from helpers.snakemake import Workflow
from helpers.stub_commands import StubCommands

ROOT = Path(__file__).parents[2]
STUDY = """
scale: paper
variants: [CVRP]
sizes:
  - {num_customers: 50, batch_size: 256, reference_seconds: 10.0}
transfer_size: 50
"""
SBATCH = """#!/usr/bin/env bash
exec 9> lock; flock 9
echo "$*" >> submissions.txt
wc -l < submissions.txt
"""
SSHARE = """#!/usr/bin/env bash
echo account
"""
NOTHING = """#!/usr/bin/env bash
"""
PLACES = 2

pytestmark = pytest.mark.workflow


def submissions(workflow: Workflow, *targets: str) -> list[str]:
    """Words of each call of sbatch until all places are taken."""
    stubs = StubCommands(workflow.folder, {}).environment()
    (workflow.folder / "study.yaml").write_text(STUDY)
    for name, script in {"sbatch": SBATCH, "sshare": SSHARE}.items() | dict.fromkeys(
        ("sacct", "sacctmgr", "scancel", "scontrol", "sinfo", "squeue"), NOTHING
    ).items():
        path = workflow.folder / "stub" / name
        path.write_text(script)
        path.chmod(0o755)
    options = ("--workflow-profile", ROOT / "profiles/slurm", "--jobs", str(PLACES), "--configfile", "study.yaml")
    written, printed = workflow.folder / "submissions.txt", workflow.folder / "printed.txt"
    with printed.open("w") as output:
        process = subprocess.Popen(
            workflow.command(*targets, *options),
            cwd=workflow.folder,
            env=stubs,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        deadline_s = time.monotonic() + 60
        try:
            while not written.exists() or len(written.read_text().splitlines()) < PLACES:
                assert process.poll() is None and time.monotonic() < deadline_s, printed.read_text()
                time.sleep(0.05)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return written.read_text().splitlines()


def test_one_place_is_kept_for_a_training_on_a_gpu_and_chunks_share_a_job(workflow: Workflow) -> None:
    pytest.importorskip("snakemake_executor_plugin_slurm")
    model = "results/models/mtpomo-shared-rl-n50-s0/weights.safetensors"
    calls = submissions(workflow, "results/references/test/pyvrp/CVRP-n50.parquet", model)
    training, chunks = sorted(calls, key=lambda call: "train_policy:run=" not in call)
    assert {"--gpus=1", "--cpus-per-task=16"} <= set(training.split()) and "-p gpu" in training
    assert "--target-jobs 'train_policy:run=mtpomo-shared-rl-n50-s0'" in training
    together = len(re.findall("'solve_reference_chunk:", chunks))
    assert 1 < together <= 8 and f"--cpus-per-task={together} " in chunks
    assert "--gpus" not in chunks and "-p cpu" in chunks
    assert (workflow.folder / "results/datasets/test/CVRP-n50.npz").exists(), "made on the submitting machine"


def test_each_rule_that_uses_a_gpu_has_its_cores_and_its_partition() -> None:
    texts = [(ROOT / f"workflow/rules/{name}.smk").read_text() for name in ("training", "evaluation")]
    rules = [name for text in texts for name in re.findall(r"^(?:rule|use rule \w+ as) (\w+)", text, re.MULTILINE)]
    profile = yaml.safe_load((ROOT / "profiles/slurm/profile.yaml").read_text())
    assert set(rules) == set(profile["set-threads"]) == set(profile["set-resources"])
    assert {entry["slurm_partition"] for entry in profile["set-resources"].values()} == {"'gpu'"}
