"""Entry point: finds the command's module, parses, runs, and turns user errors into a line each and exit code 2."""

import argparse
import errno
import importlib
import keyword
import logging
import os
import sys
from itertools import pairwise
from typing import NoReturn

from polarvrp import __version__
from polarvrp.errors import ConfigError, PolarvrpError, is_out_of_memory, lines_of, one_of

COMMANDS = {
    "generate": "write a test or validation set",
    "reference": "solve a set or library files with PyVRP or OR-Tools",
    "train": "train one run, or go on with it",
    "evaluate": "solve sets with a trained policy",
    "evaluate-set-x": "solve CVRPLIB Set-X with a trained policy",
    "solve": "solve files of one's own, by a network and PyVRP",
    "plot": "draw a solution",
    "analyse": "look into a trained model or its training",
    "check": "verify stored solutions exactly",
    "import": "take in others' solutions, checked and priced exactly",
    "describe": "parts and parameter count of a network as JSON",
    "convert-weights": "make others' weights a model here",
    "models": "list shipped and local models with sizes, variants and gaps",
    "doctor": "check the machine: card, versions, rates, every kernel",
    "status": "say what of a study is done, runs, failed or is missing, and how long the rest takes",
    "tables": "build tables from the results that exist",
    "figures": "draw figures from the tables that exist",
    "report": "put tables and figures into one HTML page",
    "pack-model": "make a finished run a model that ships with the package",
    "shipped-results": "print the results of a shipped model beside the paper's",
    "sync-wandb": "upload trainings, test results and tables to W&B",
}

EXIT_INTERRUPTED = 130
"""What shells report for a program that Ctrl-C ended; a training saves its state instead and exits with 75."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk that is full; files have a name in them, standard output has none."""

EXIT_BROKEN_PIPE = 141
"""What shells report for a program whose reader went away."""


def main(arguments: list[str]) -> int:
    """Run one command.

    Args:
        arguments: The words after ``polarvrp``.

    Returns:
        Exit code: 0 success, 1 a check failed, 2 bad input, 75 stopped in between and resumable, 130 interrupted, 141
        the reader of what is printed went away.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)
    chosen = next((word for word in arguments if word in COMMANDS), None)
    source = "polarvrp" if chosen is None else f"polarvrp {chosen}"
    try:
        code = _execute(arguments, chosen)
        sys.stdout.flush()
        return code
    except PolarvrpError as error:
        print(lines_of(source, error), file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read what is printed has seen enough
        _drop_output()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        if error.filename is None and error.errno not in FULL:
            raise
        print(f"{source}: {_refused(error)}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        print(f"{source}: not enough memory ({_short(error)}); ask for less at a time", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{source}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


class _Parser(argparse.ArgumentParser):
    """A parser that refuses in one line, as everything else does."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; {self.prog} --help says what there is")


def _execute(arguments: list[str], chosen: str | None) -> int:
    """Parse and run; only the chosen command's module is imported."""
    _require_words(arguments)
    if chosen is None and arguments and not arguments[0].startswith("-"):
        raise ConfigError(f"there is no command {arguments[0]}; {one_of(arguments[0], COMMANDS)}")
    parser = _Parser(prog="polarvrp", description="Neural solvers for 48 routing variants.")
    parser.add_argument("--version", action="version", version=f"polarvrp {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    modules = {}
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if name == chosen:
            module = f"{name}_" if keyword.iskeyword(name) else name.replace("-", "_")
            modules[name] = importlib.import_module(f"polarvrp.cli.{module}")
            modules[name].add_arguments(subparser)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        subparsers.choices[options.command].error(f"unknown: {' '.join(unknown)}")
    return int(modules[options.command].execute(options))


def _require_words(arguments: list[str]) -> None:
    """Refuse an empty word, such as a shell makes of a variable that is not set: as a path it would be this folder.

    Raises:
        ConfigError: If there is one.
    """
    for before, word in pairwise(["", *arguments]):
        option, sign, value = word.partition("=")
        if option.startswith("--") and sign and not value:
            raise ConfigError(f"{option} is empty; give it a value or leave it out")
        if not word:
            name = before if before.startswith("--") else "an argument"
            raise ConfigError(f"{name} is empty; give it a value or leave it out")


def _refused(error: OSError) -> str:
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}; check the path"
    _drop_output()
    return f"what it prints cannot be written ({error.strerror}); free space"


def _drop_output() -> None:
    """What is still to be printed would be refused again, at exit at the latest."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or "none left"


def run() -> None:
    """Console script."""
    sys.exit(main(sys.argv[1:]))
