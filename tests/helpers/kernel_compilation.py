"""Compiles launches of Triton kernels for a Hopper GPU, without one, and reads what they need of it.

A test swaps kernels for recorders, runs the code that launches them, and has what they recorded compiled and launched
into a stand-in for the driver, in a process of its own, because kernels of the test's process are interpreted.
"""

import importlib
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

SHARED_MEMORY_LIMIT = 227 * 1024
ALIGNMENT = 16
"""Bytes; Triton compiles code of its own for pointers that are so aligned."""


@dataclass(frozen=True)
class Pointer:
    """What is kept of a tensor."""

    dtype: torch.dtype
    offset: int

    def tensor(self) -> torch.Tensor:
        """One like it."""
        memory = torch.zeros(4 * ALIGNMENT, dtype=torch.uint8)
        begin = (self.offset - memory.data_ptr()) % ALIGNMENT
        return memory[begin : begin + 2 * ALIGNMENT].view(self.dtype)


@dataclass(frozen=True)
class Launch:
    """One kind of launch.

    Attributes:
        module: Of the kernel.
        kernel: Its name.
        grid: Programs.
        arguments: By place, pointers in the place of tensors.
        named: Constants of compilation and options.
    """

    module: str
    kernel: str
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    named: dict[str, Any]


@dataclass(frozen=True)
class Recorder:
    """Stands in for a kernel and notes how it is launched, once for each kind of launch."""

    module: str
    kernel: str
    launches: list[Launch]

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*arguments: Any, **named: Any) -> None:
            found = Launch(self.module, self.kernel, grid, kept(arguments), named)
            if found not in self.launches:
                self.launches.append(found)

        return launch


def kept(value: Any) -> Any:
    """An argument with pointers for tensors."""
    if isinstance(value, torch.Tensor):
        return Pointer(value.dtype, value.data_ptr() % ALIGNMENT)
    return _of_parts(value, kept)


def restored(value: Any) -> Any:
    """An argument with tensors for pointers."""
    return value.tensor() if isinstance(value, Pointer) else _of_parts(value, restored)


def _of_parts(value: Any, function: Callable[[Any], Any]) -> Any:
    if not isinstance(value, tuple):
        return value
    parts = [function(part) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def record_launches(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> list[Launch]:
    """Swap all kernels of a module that are launched for recorders; where their launches will be noted."""
    launches: list[Launch] = []
    for name, kernel in vars(module).copy().items():
        if hasattr(kernel, "arg_names") and kernel.fn.__module__ == module.__name__:
            monkeypatch.setattr(module, name, Recorder(module.__name__, name, launches))
    return launches


def compile_launches(launches: list[Launch]) -> list[dict[str, Any]]:
    """Kernel, registers, spilled bytes and shared memory of each launch, once it was handed its arguments."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler, as Triton's launchers do")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", f"import {__name__} as compilation; compilation.main()"]
    done = subprocess.run(command, input=pickle.dumps(launches), env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    resources: list[dict[str, Any]] = json.loads(done.stdout)
    for entry in resources:
        found = "{kernel}: {registers} registers, {spilled} bytes spilled, {shared} bytes shared\n"
        sys.stdout.write(found.format(**entry))
    return resources


def _resources(driver: Any, launch: Launch) -> dict[str, Any]:
    import triton

    kernel = getattr(importlib.import_module(launch.module), launch.kernel)
    compiled = driver.launched(kernel, launch.grid, restored(launch.arguments), launch.named)
    with tempfile.TemporaryDirectory() as folder:
        assembly = Path(folder, "kernel.ptx")
        assembly.write_text(compiled.asm["ptx"])
        command = [triton.knobs.nvidia.ptxas.path, "-v", "--gpu-name=sm_90a", assembly]
        report = subprocess.run([*command, "-o", Path(folder, "binary")], capture_output=True, text=True, check=True)
    registers = re.search(r"Used (\d+) registers", report.stderr)
    spills = re.search(r"(\d+) bytes spill stores", report.stderr)
    assert registers and spills, report.stderr
    return {
        "kernel": launch.kernel,
        "registers": int(registers[1]),
        "spilled": int(spills[1]),
        "shared": compiled.metadata.shared,
    }


def main() -> None:
    """Of the process that compiles: launches in, resources out."""
    from helpers.stand_in_driver import StandInDriver

    launches = pickle.load(sys.stdin.buffer)
    with tempfile.TemporaryDirectory() as folder:
        driver = StandInDriver(Path(folder))
        sys.stdout.write(json.dumps([_resources(driver, launch) for launch in launches]))
