"""``polarvrp solve``: users' own files, by a network and PyVRP under a time limit."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polarvrp.cli.arguments import add_library_arguments, library_convention
from polarvrp.errors import ConfigError, DataError, is_out_of_memory, printable
from polarvrp.files import exists, file_digest, is_folder, resolved
from polarvrp.outputs import marked, require_output, stated_subject

if TYPE_CHECKING:
    from polarvrp.evaluation.models import Model
    from polarvrp.library.inputs import InputFile
    from polarvrp.library.results import Outcome
    from polarvrp.problem.library_instances import LibraryInstance

NO_MODEL = "none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="instances (VRPLIB form, Solomon's or Cordeau's text), folders, patterns",
    )
    parser.add_argument(
        "--model",
        metavar="RUN_OR_PATH",
        help="builds the tours that PyVRP starts from: a run, a path, a shipped model, or none for PyVRP alone "
        "(default: the shipped model whose size is nearest, if there is one)",
    )
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="for each file (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="of PyVRP (default: 0)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder of the .sol files and solutions.parquet")
    parser.add_argument("--plot", action="store_true", help="also a picture of each solution, into --output")
    parser.add_argument("--json", action="store_true", help="print a JSON object a file instead of text")
    add_library_arguments(parser)


def execute(options: argparse.Namespace) -> int:
    """Solve file after file; 0 if all are, 1 if a solution was refused by the check, 2 if a file was bad."""
    from polarvrp.library.inputs import input_files

    _require_sound(options)
    files = input_files(options.files)
    if options.output is not None:
        _require_outputs(files, options)
    outcomes: list[Outcome] = []
    job = _Job(options)
    try:
        for file in files:
            if options.output is not None and outcomes:
                job.write(outcomes, is_last=False)  # for a process that is killed over what follows
            outcomes.append(job.solve(file))
    finally:
        if options.output is not None and outcomes:
            job.write(outcomes, is_last=True)
    return _verdict(outcomes)


class _Job:
    """A call of the command: its options, and the models it has loaded."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.models: dict[str, Model] = {}
        self.settings: dict[str, Any] = {"limit_seconds": options.seconds, "seed": options.seed, "models": {}}
        if options.model not in (None, NO_MODEL):
            self._load(options.model)

    def solve(self, file: InputFile) -> Outcome:
        """One file, with what is said about it."""
        from polarvrp.library.results import (
            Outcome,
            describe_answer,
            describe_instance,
            describe_steps,
            json_object,
            untrained_features,
        )
        from polarvrp.library.solving import solve_library
        from polarvrp.problem.known_solutions import known_solution
        from polarvrp.problem.library_files import read_library

        library: LibraryInstance | None = None
        try:
            library = read_library(file.path, *library_convention(self.options))
            self._say(f"{file.path}: {describe_instance(library)}")
            name = self._model_name(library)
            model = self._load(name) if name else None
            if model is None:
                self._say(f"  {self._why_no_model()}: PyVRP alone")
            solved = solve_library(library, model, self.options.seconds, self.options.seed)
        except (DataError, MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                problem = "not enough memory for a file of this size"
            elif isinstance(error, DataError):
                problem = str(error)
            else:
                raise
            outcome = Outcome(file, library, problem=problem)
            print(f"polarvrp solve: {printable(_with_path(file.path, problem))}", file=sys.stderr)
        else:
            untrained = untrained_features(library, model) if model else ()
            known = known_solution(file.path, library)
            outcome = Outcome(file, library, solved, known, untrained, solved.problem)
            for line in [*describe_steps(outcome, name), describe_answer(outcome)]:
                self._say(f"  {line}")
            self._write_solution(outcome)
        if self.options.json:
            print(json.dumps(json_object(outcome, self.settings)), flush=True)
        return outcome

    def write(self, outcomes: list[Outcome], is_last: bool) -> None:
        """The table of all files so far, with those of earlier calls."""
        from polarvrp.library.results import SOLUTIONS, write_outcomes

        rows = write_outcomes(self.options.output, outcomes, self.settings)
        if is_last:
            self._say(f"{self.options.output / SOLUTIONS}: {rows} rows")

    def _model_name(self, library: LibraryInstance) -> str | None:
        from polarvrp.study.shipped import nearest_shipped

        if self.options.model is not None:
            return None if self.options.model == NO_MODEL else str(self.options.model)
        return nearest_shipped(library.num_customers)

    def _why_no_model(self) -> str:
        return "no model wanted" if self.options.model == NO_MODEL else "no model named, and this version ships none"

    def _load(self, name: str) -> Model:
        from polarvrp.evaluation.models import load_trained
        from polarvrp.library.solving import warm_up
        from polarvrp.machine import keep_freed_memory

        if name not in self.models:
            self.models[name] = load_trained(name)
            if self.models[name].device.type == "cpu":
                keep_freed_memory()
            warm_up(self.models[name])
            self.settings["models"][name] = self.models[name].origin
        return self.models[name]

    def _write_solution(self, outcome: Outcome) -> None:
        from polarvrp.problem.vrplib import convention_stated, write_sol

        folder, solved, library = self.options.output, outcome.solved, outcome.library
        if folder is None or solved is None or library is None or outcome.problem is not None:
            return
        path = folder / f"{outcome.file.stem}.sol"
        origin = _origin(outcome.file, path)
        comment = marked(_subject(outcome.file) | origin | convention_stated(library))
        write_sol(path, solved.routes, solved.cost, comment)
        self._say(f"  {path}")
        if self.options.plot:
            from polarvrp.library.plot import save_plot, title_of

            title = title_of(library, solved.routes)
            save_plot(path.with_suffix(".png"), library, solved.routes, title, {"plot": path.stem} | origin)
            self._say(f"  {path.with_suffix('.png')}")

    def _say(self, line: str) -> None:
        if not self.options.json:
            print(printable(line), flush=True)


def _require_sound(options: argparse.Namespace) -> None:
    from polarvrp.solvers.solve import LARGEST_SEED

    if not 0 < options.seconds < float("inf"):
        raise ConfigError(f"--seconds must be above 0 and finite, got {options.seconds:g}")
    if not 0 <= options.seed <= LARGEST_SEED:
        raise ConfigError(f"--seed must be in [0, {LARGEST_SEED}], got {options.seed}")
    if options.plot and options.output is None:
        raise ConfigError("--plot needs --output, the folder of the pictures")


def _require_outputs(files: list[InputFile], options: argparse.Namespace) -> None:
    """Refuse to write over an instance, others' solution beside it, or what no earlier call wrote of the same file."""
    from polarvrp.library.results import COMMAND, SOLUTIONS
    from polarvrp.problem.known_solutions import known_solution_path

    folder: Path = options.output
    if exists(folder) and not is_folder(folder):
        raise ConfigError(f"--output {folder} is a file; name a folder")
    for name in (str(file.whole_path) for file in files):
        if name.encode(errors="replace").decode() != name:
            raise ConfigError(f"{printable(name)} has a name that is no UTF-8, as {SOLUTIONS} needs it; rename it")
    known = [(known_solution_path(file.path), _subject(file)) for file in files]
    others = [path for path, ours in known if path is not None and not _says(path, ours)]
    inputs = [*(file.path for file in files), *others]
    require_output(folder / SOLUTIONS, ".parquet", COMMAND, inputs)
    for file in files:
        path = folder / f"{file.stem}.sol"
        require_output(path, ".sol", _subject(file), inputs)
        if options.plot:
            require_output(path.with_suffix(".png"), ".png", {"plot": path.stem}, inputs)
    if exists(folder / SOLUTIONS):  # a folder whose table is gone, as when the workflow solves anew, is given up
        _require_same_origins(files, options)


def _subject(file: InputFile) -> dict[str, str]:
    """What a solution says that it is of."""
    return {"solution": file.stem.name}


def _origin(file: InputFile, written: Path) -> dict[str, str]:
    """Where a file lies, from the folder of what is written of it, and what it holds; nothing of pipes."""
    try:
        if not file.path.is_file():
            return {}
        digest = file_digest(file.path)
    except OSError:  # nor of what cannot be read, and so is not solved
        return {}
    return {"file": os.path.relpath(file.whole_path, resolved(written.parent)), "sha256": digest}


def _require_same_origins(files: list[InputFile], options: argparse.Namespace) -> None:
    """Refuse to replace what was written of other files of the same names, which lie elsewhere and hold something else.

    So a file may be edited, or moved as it is; what states no file, as that of earlier versions, is replaced.
    """
    for file in files:
        for suffix in (".sol", ".png") if options.plot else (".sol",):
            path = options.output / f"{file.stem}{suffix}"
            said = stated_subject(path) or {}
            ours = _origin(file, path) if "file" in said else {}
            if ours and all(said.get(key) != ours[key] for key in ours):
                other = resolved(path.parent / str(said["file"]))
                advice = "choose another --output or rename the file"
                raise DataError(printable(f"{path} is of {other}, not of {file.path}; {advice}"))


def _says(path: Path, subject: dict[str, str]) -> bool:
    """Whether a file is one of ours of that subject, and so may be written again."""
    return subject.items() <= (stated_subject(path) or {}).items()


def _with_path(path: Path, message: str) -> str:
    return message if message.startswith(str(path)) else f"{path}: {message}"


def _verdict(outcomes: list[Outcome]) -> int:
    """Exit code; of several files with mistakes the bad ones are listed once more."""
    bad = [outcome for outcome in outcomes if outcome.solved is None]
    refused = [outcome for outcome in outcomes if outcome.solved is not None and outcome.problem is not None]
    if bad and len(outcomes) > 1:
        names = ", ".join(printable(str(outcome.file.path)) for outcome in bad)
        good = len(outcomes) - len(bad) - len(refused)
        print(f"polarvrp solve: {good} of {len(outcomes)} files solved; bad: {names}", file=sys.stderr)
    if bad:
        return 2
    return 1 if refused else 0
