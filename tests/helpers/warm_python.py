"""Python that has loaded torch, pandas and the solvers already: for tests of what commands do, not how they start."""

import atexit
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from helpers.snakemake import environment
from helpers.warm_python_client import ask

SERVER, CLIENT = (Path(__file__).with_name(f"warm_python_{part}.py") for part in ("server", "client"))
COLD = ("evaluate-set-x", "report")
"""Commands that no other test starts by the usual interpreter."""

COMMAND = """#!/bin/sh
case $3 in
  {cold}) exec "{python}" "$@" ;;
  *) exec "{python}" -IS "{client}" "{address}" "$@" ;;
esac
"""


def run_warm(arguments: Sequence[str], folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """``python`` with these arguments in a folder, with some variables beside or instead of the environment's."""
    with ExitStack() as files:
        nothing = files.enter_context(Path(os.devnull).open())
        printed, said = (files.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(2))
        descriptors = [file.fileno() for file in (nothing, printed, said)]
        code = ask(start_server(), arguments, str(folder), environment() | variables, descriptors)
        for file in (printed, said):
            file.seek(0)
        return subprocess.CompletedProcess(arguments, code, printed.read(), said.read())


def warm_commands(folder: Path) -> dict[str, str]:
    """Put a ``python`` that is warm into ``folder/warm``.

    Returns:
        Environment variables with which the workflow's jobs find it.
    """
    command = folder / "warm" / "python"
    command.parent.mkdir()
    places = {"python": sys.executable, "client": CLIENT, "address": start_server()}
    command.write_text(COMMAND.format(cold="|".join(COLD), **places), encoding="utf-8")
    command.chmod(0o755)
    return {"PATH": os.pathsep.join([str(command.parent), environment()["PATH"]])}


@functools.cache
def start_server() -> str:
    """Address of a process that ends with this one."""
    address = str(Path(tempfile.mkdtemp(prefix="warm-"), "socket"))  # addresses are short
    command = [sys.executable, "-P", str(SERVER), address]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=one_thread)
    atexit.register(server.communicate)
    assert server.stdout is not None and server.stdout.readline() == "ready\n"
    return address
