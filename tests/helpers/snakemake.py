"""Snakemake as users call it, in a folder of its own."""

import atexit
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Run:
    """Exit code and what was printed."""

    code: int
    output: str

    @property
    def jobs(self) -> dict[str, int]:
        """Jobs by rule, as a dry run counts them."""
        table = self.output.partition("Job stats:")[2].partition("\n\n")[0]
        return {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)}

    @property
    def nothing_to_do(self) -> bool:
        return self.code == 0 and "Nothing to be done" in self.output


@dataclass(frozen=True)
class Workflow:
    """The project's workflow with results in ``folder``, run with environment variables of its own."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def command(self, *arguments: str | Path) -> list[str]:
        """For a process of its own, to be killed or watched."""
        return [sys.executable, "-m", "snakemake", *self._words(arguments)]

    def __call__(self, *arguments: str | Path) -> Run:
        return snakemake(self._words(arguments), self.folder, self.variables)

    def dry(self, *arguments: str | Path) -> Run:
        return self(*arguments, "--dry-run", "--quiet", "rules")

    def _words(self, arguments: Sequence[str | Path]) -> list[str]:
        return [*map(str, arguments), "--snakefile", str(ROOT / "Snakefile"), "--directory", str(self.folder)]


def snakemake(arguments: Sequence[str], folder: Path, variables: dict[str, str], timeout_s: int = 400) -> Run:
    """Run ``snakemake`` in a folder, with some variables beside or instead of the environment's."""
    server = start_server()
    assert server.stdin is not None and server.stdout is not None
    with tempfile.NamedTemporaryFile() as output:
        request = {
            "arguments": arguments,
            "folder": str(folder),
            "environment": environment() | variables,
            "output": output.name,
            "timeout_s": timeout_s,
        }
        server.stdin.write(f"{json.dumps(request)}\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return Run(code, Path(output.name).read_text(encoding="utf-8"))


@functools.cache
def start_server() -> subprocess.Popen[str]:
    """Where Snakemake's modules are imported once; it ends with this process."""
    command = [sys.executable, "-P", str(Path(__file__).with_name("snakemake_server.py"))]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)
    return server


def environment() -> dict[str, str]:
    """That of the tests, with this interpreter's commands first, as in an activated environment."""
    paths: Sequence[str] = (str(Path(sys.executable).parent), os.environ["PATH"])
    return {**os.environ, "PATH": os.pathsep.join(paths)}
