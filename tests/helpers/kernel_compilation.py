"""Compiles launches of Triton kernels for a Hopper GPU, without one, and reads what they need of it.

A test swaps kernels for recorders, runs the code that launches them, and has what they recorded compiled in a process
of its own, because kernels of the test's process are interpreted.
"""

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SHARED_MEMORY_LIMIT = 227 * 1024
COMPUTE_CAPABILITY = 90
OPTIONS = ("num_warps", "num_stages", "maxnreg")
POINTERS = {"bfloat16": "*bf16", "float32": "*fp32", "int64": "*i64", "int32": "*i32", "bool": "*i1"}


@dataclass(frozen=True)
class Recorder:
    """Stands in for a kernel and notes how it is launched, once for each kind of launch."""

    module: str
    kernel: str
    argument_names: tuple[str, ...]
    launches: list[dict[str, Any]]

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self._launch

    def _launch(self, *arguments: Any, **named: Any) -> None:
        options = {name: named.pop(name) for name in OPTIONS if name in named}
        given = dict(zip(self.argument_names, arguments, strict=False))
        signature = {name: _type_of(value) for name, value in given.items()}
        launch = {
            "module": self.module,
            "kernel": self.kernel,
            "signature": signature | dict.fromkeys(named, "constexpr"),
            "constants": named,
            "options": options,
        }
        if launch not in self.launches:
            self.launches.append(launch)


def record_launches(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> list[dict[str, Any]]:
    """Swap all kernels of a module that are launched for recorders; where their launches will be noted."""
    launches: list[dict[str, Any]] = []
    for name, kernel in vars(module).copy().items():
        if hasattr(kernel, "arg_names") and kernel.fn.__module__ == module.__name__:
            monkeypatch.setattr(module, name, Recorder(module.__name__, name, tuple(kernel.arg_names), launches))
    return launches


def compile_launches(launches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Kernel, registers, spilled bytes and shared memory of each launch."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command, given = [sys.executable, __file__], json.dumps(launches)
    done = subprocess.run(command, input=given, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    resources: list[dict[str, Any]] = json.loads(done.stdout)
    return resources


def _type_of(value: Any) -> str:
    if isinstance(value, int):
        return "i32"
    return POINTERS[str(value.dtype).removeprefix("torch.")]


def _resources(launch: dict[str, Any]) -> dict[str, Any]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(importlib.import_module(launch["module"]), launch["kernel"])
    signature = launch["signature"]
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*")
    }
    source = ASTSource(kernel, {name: signature[name] for name in kernel.arg_names}, launch["constants"], aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", COMPUTE_CAPABILITY, 32), options=launch["options"])
    with tempfile.TemporaryDirectory() as folder:
        assembly = Path(folder, "kernel.ptx")
        assembly.write_text(compiled.asm["ptx"])
        command = [triton.knobs.nvidia.ptxas.path, "-v", f"--gpu-name=sm_{COMPUTE_CAPABILITY}a", assembly]
        report = subprocess.run([*command, "-o", Path(folder, "binary")], capture_output=True, text=True, check=True)
    registers = re.search(r"Used (\d+) registers", report.stderr)
    spills = re.search(r"(\d+) bytes spill stores", report.stderr)
    assert registers and spills, report.stderr
    return {
        "kernel": launch["kernel"],
        "constants": launch["constants"],
        "warps": launch["options"].get("num_warps", 4),
        "registers": int(registers[1]),
        "spilled": int(spills[1]),
        "shared": compiled.metadata.shared,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps([_resources(launch) for launch in json.load(sys.stdin)]))
