"""What the Makefile pins: all versions, or on a machine whose torch is kept all but those that torch decides."""

import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PINNED = ROOT / "constraints.txt"
DECIDED_BY_TORCH = {"torch", "triton", "setuptools"}


@pytest.mark.parametrize(("torch", "left_out"), [("2.11.0", DECIDED_BY_TORCH), ("2.8.0", set())])
def test_a_torch_that_is_kept_decides_what_it_asks_for(tmp_path: Path, torch: str, left_out: set[str]) -> None:
    """Torch 2.11 wants setuptools < 82 and triton 3.6.0: any other pin of them would replace it by the pinned torch."""
    metadata = tmp_path / "packages" / f"torch-{torch}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n")
    interpreter = tmp_path / "venv" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text(f'#!/bin/sh\nPYTHONPATH={metadata.parents[1]} exec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    made = tmp_path / "venv" / "constraints.txt"
    subprocess.run(["make", f"VENV={tmp_path / 'venv'}", str(made)], cwd=ROOT, check=True)
    assert names(PINNED) - names(made) == left_out


@pytest.mark.parametrize("triton", ["3.6.0", "3.7.1"])
def test_pins_admit_the_triton_of_each_torch(triton: str) -> None:
    """Torch 2.13.0 from PyPI requires triton 3.7.1, and what compiles for Hopper was read off with 3.6.0."""
    pinned = {requirement.name: requirement for requirement in requirements(PINNED)}
    assert triton in pinned["triton"].specifier
    assert str(pinned["torch"].specifier) == "==2.13.0"


def requirements(path: Path) -> list[Requirement]:
    """Lines of a file of constraints."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [Requirement(line) for line in lines if line]


def names(path: Path) -> set[str]:
    """Packages that a file of constraints names."""
    return {requirement.name for requirement in requirements(path)}
