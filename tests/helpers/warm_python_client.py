"""Hands a command line over to ``warm_python_server.py`` and ends as it ends: a ``python`` that starts in milliseconds.

Its words are the address of that process and then what ``python`` is given.
"""

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def ask(
    address: str,
    arguments: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    descriptors: Sequence[int] = (0, 1, 2),
) -> int:
    """Run a command line there.

    Args:
        address: Of the server's socket.
        arguments: As ``python`` takes them.
        folder: The working folder.
        environment: All variables.
        descriptors: Standard input, output and error.

    Returns:
        The exit code.
    """
    request = {"arguments": arguments, "folder": folder, "environment": dict(environment)}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [b"\n"], descriptors)
        connection.sendall(json.dumps(request).encode() + b"\n")
        return int(connection.recv(16))


if __name__ == "__main__":
    sys.exit(ask(sys.argv[1], sys.argv[2:], str(Path.cwd()), os.environ))
