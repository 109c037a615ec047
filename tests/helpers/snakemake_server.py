"""Snakemake whose modules are imported once: it runs in forks of this process, one after the other.

A request is a line of JSON on standard input, the answer the exit code in a line on standard output.
"""

import importlib
import json
import os
import signal
import sys
from contextlib import suppress

from snakemake.cli import get_argument_parser, main

MODULES = (
    "polarvrp.config.loading",
    "polarvrp.study.at_hand",
    "polarvrp.study.experiments",
    "polarvrp.study.external",
    "polarvrp.study.instances",
    "polarvrp.study.needs",
    "smart_open",
    "snakemake.report",
)
"""What every plan of the project's workflow loads, with all that these load."""


def serve() -> None:
    """Answer until the input ends."""
    get_argument_parser()  # reads all plug-ins
    for name in MODULES:
        importlib.import_module(name)
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            run(**json.loads(line))
        _, status = os.waitpid(process, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def run(arguments: list[str], folder: str, environment: dict[str, str], output: str, timeout_s: int) -> None:
    """What ``python -m snakemake`` with these arguments would do in that folder and environment; it does not return.

    Args:
        arguments: As in ``sys.argv``, without the program.
        folder: The working folder.
        environment: All variables.
        output: File for what is printed.
        timeout_s: Seconds until it is killed.
    """
    os.chdir(folder)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for place, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), file, file)):
        os.dup2(descriptor, place)
    signal.alarm(timeout_s)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["snakemake", *arguments]
    sys.path[:0] = [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place not in sys.path]
    with suppress(ModuleNotFoundError):
        importlib.import_module("sitecustomize")
    main(arguments)


if __name__ == "__main__":
    serve()
