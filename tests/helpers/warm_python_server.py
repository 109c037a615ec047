"""Python whose heavy modules are imported once: command lines run in forks of this process, side by side.

Its only word is the address of its socket, in a folder of its own; both go, and it ends, with its standard input.
"""

import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import warnings
from pathlib import Path
from typing import Any, NoReturn

MODULES = (
    "polarvrp.api",
    "polarvrp.cli.main",
    "polarvrp.evaluation.set_x",
    "polarvrp.references.chunks",
    "polarvrp.tables.build",
    "polarvrp.tables.figures",
    "polarvrp.tables.report",
    "polarvrp.training.trainer",
    "wandb",
)
"""What commands load, with all that these load."""


def serve(address: str) -> None:
    """Answer until the input ends."""
    for name in MODULES:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                answer(connection)
            connection.close()
    Path(address).unlink()
    Path(address).parent.rmdir()


def answer(connection: socket.socket) -> NoReturn:
    """Run what is asked for in a further process, and tell its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as request:
        asked = json.loads(request.readline())
    job = os.fork()
    if job == 0:
        connection.close()
        run(descriptors, **asked)
    _, status = os.waitpid(job, 0)
    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def run(descriptors: list[int], arguments: list[str], folder: str, environment: dict[str, str]) -> NoReturn:
    """What ``python`` with these arguments would do in that folder and environment."""
    for place, descriptor in enumerate(descriptors):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place not in sys.path]
    if arguments[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        arguments = arguments[2:]
    match arguments:
        case ["-m", "polarvrp", *words]:
            sys.argv = ["polarvrp", *words]
            from polarvrp.cli.main import run as polarvrp

            polarvrp()
        case ["-c", script, *words]:
            sys.argv, sys.path[:0] = ["-c", *words], [""]
            names: dict[str, Any] = {"__name__": "__main__"}
            exec(compile(script, "<string>", "exec"), names)
        case [script, *words]:
            sys.argv, sys.path[:0] = [script, *words], [str(Path(script).parent)]
            runpy.run_path(script, run_name="__main__")
    sys.exit()


if __name__ == "__main__":
    serve(sys.argv[1])
