"""The rollout kernels compile for a GPU, at full size and within its shared memory; no GPU is needed for that."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kernels.py"
SHARED_MEMORY = 227 * 1024
"""Of a program on compute capability 9.0."""


@pytest.mark.parametrize(
    ("options", "kernels"),
    [
        (("--num-customers", "50", "--heads", "gated"), 2),
        (("--num-customers", "100", "--num-depots", "3", "--heads", "reld"), 2),
        (("--num-customers", "100", "--heads", "gated", "--greedy"), 2),
    ],
)
def test_kernels_compile_for_compute_capability_90(options: tuple[str, ...], kernels: int, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, str(SCRIPT), *options]
    run = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()[1:]
    assert len(lines) == kernels
    for line in lines:
        registers, stack, shared = (int(number) for number in re.findall(r"\d+", line)[-3:])
        assert registers <= 255
        assert stack < 1024  # what does not fit into registers is read and written once a step
        assert shared <= SHARED_MEMORY
