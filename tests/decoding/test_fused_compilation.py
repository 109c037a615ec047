"""The rollout kernels compile for a GPU, at full size and within its shared memory; no GPU is needed for that."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

from helpers.instances import mixed
from helpers.kernel_compilation import SHARED_MEMORY_LIMIT, compile_launches, record_launches
from helpers.model_samples import policy_of
from polarvrp.decoding.fused.kernels import rollout as kernels
from polarvrp.decoding.fused.rollout import fused_replay, fused_rollout
from polarvrp.decoding.rollout import multi_start
from polarvrp.decoding.sampling import Sampler
from polarvrp.environment.environment import Environment

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kernels.py"

OPTIONS = (
    ("--num-customers", "50", "--heads", "gated"),
    ("--num-customers", "100", "--num-depots", "3", "--heads", "reld"),
    ("--num-customers", "100", "--heads", "gated", "--greedy"),
)
CALLS = """
import json, runpy, sys
script, calls = sys.argv[1], json.loads(sys.argv[2])
for options in calls:
    sys.argv[:] = [script, *options]
    runpy.run_path(script, run_name="__main__")
"""
"""Of the script, with each of the options."""


def test_kernels_compile_for_compute_capability_90(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-c", CALLS, str(SCRIPT), json.dumps(OPTIONS)]
    run = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    lines = [line for line in run.stdout.splitlines() if not line.startswith("kernel")]
    assert [line.split()[:2] for line in lines] == [
        ["gated", "51"],
        ["replay", "51"],
        ["reld", "103"],
        ["replay", "103"],
        ["gated", "101"],
        ["replay", "101"],
    ]
    for line in lines:
        registers, stack, shared = (int(number) for number in re.findall(r"\d+", line)[-3:])
        assert registers <= 255
        assert stack < 1024  # what does not fit into registers is read and written once a step
        assert shared <= SHARED_MEMORY_LIMIT


def test_launchers_hand_over_every_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of()
    environment = Environment(mixed(("CVRP", "OVRPBLTW"), 4))
    embeddings = policy.encode(environment.instances).embeddings
    launches = record_launches(monkeypatch, kernels)
    sampler = Sampler(torch.Generator().manual_seed(3), first=7)
    fused_rollout(policy, embeddings, environment, multi_start(environment), sampler, record_length=32)
    fused_replay(environment, torch.zeros(2, 1, 9, dtype=torch.int64), 0, 32)
    assert [entry["kernel"] for entry in compile_launches(launches)] == ["rollout", "replay"]
