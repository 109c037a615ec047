"""Snakemake as users call it, in a folder of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
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
    """The project's workflow with results in ``folder``."""

    folder: Path

    def command(self, *arguments: str | Path) -> list[str]:
        places = ["--snakefile", str(ROOT / "Snakefile"), "--directory", str(self.folder)]
        return [sys.executable, "-m", "snakemake", *map(str, arguments), *places]

    def __call__(self, *arguments: str | Path, timeout: int = 400) -> Run:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Run(done.returncode, done.stdout)

    def dry(self, *arguments: str | Path) -> Run:
        return self(*arguments, "--dry-run", "--quiet", "rules")


def environment() -> dict[str, str]:
    """That of the tests, with this interpreter's commands first, as in an activated environment."""
    paths: Sequence[str] = (str(Path(sys.executable).parent), os.environ["PATH"])
    return {**os.environ, "PATH": os.pathsep.join(paths)}
