"""Damaged files over every reader: each is read as it was, or refused by one line of the project's own, within a bound.

``python benchmarks/fuzz.py --mutations 10000 --workers 2`` makes a valid file of every kind that is read, changes each
at random (flipped bits, cut, swapped, repeated and overwritten stretches, numbers put to extremes), and reads it in a
process of its own. It prints a line a kind and each fault with the seed that repeats it; the exit code is 1 if there is
any. What counts as a fault: another exception, more than one line, a process that dies, more seconds of processor than
the bound, and, of kinds that carry digests, values that are read as others than were written.
"""

import argparse
import json
import logging
import random
import re
import runpy
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from polarvrp.config.loading import load_study
from polarvrp.config.model import ModelConfig
from polarvrp.errors import PolarvrpError, lines_of
from polarvrp.files import write_text
from polarvrp.problem.instances import instance_digests
from polarvrp.references.partial import PartialFile, StoredRow
from polarvrp.solutions.rows import SolutionRow
from polarvrp.workers import TaskFailure, WorkerPool

SECONDS_ALLOWED = 20.0
"""Of processor, for one file: on a busy machine the clock says nothing."""

SECONDS_UNTIL_KILLED = 600.0
"""By the clock, for a process that hangs; a new one first imports torch."""

EXTREMES = (b"-1", b"0", b"1e309", b"1e19", b"nan", b"inf", b"99999999999999999999", b"0.5", b"", b"\xff", b"x" * 5000)
RUN = "polarnet-ple-polar-n6-s0"
IDENTITY = {"seed": 1}
WRITE_INSTANCES = Path(__file__).parents[1] / "docs/examples/write_instances.py"
LIBRARY_TEXTS: dict[str, str] = runpy.run_path(str(WRITE_INSTANCES))["generated_files"](num_customers=3, seed=1)
SOLUTION = "Route #1: 1 2\nRoute #2: 3\nCost 20\n"
ROW = SolutionRow("CVRP", 6, 0, "pyvrp", 3.5, (1, 2, 0, 3, 4, 5, 6), 2, 0.5, 0.0, 1, 1.0, 10**7, 5, "pyvrp 0.14.1")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file.

    Attributes:
        place: Of the file, below a folder of its own.
        write: Makes that folder valid.
        read: Reads it; what it returns is compared.
        digested: Whether a change must be found out, and not only what cannot be read.
    """

    place: str
    write: Callable[[Path], object]
    read: Callable[[Path], Any]
    digested: bool = False


def _write_set(folder: Path) -> None:
    from polarvrp.problem.sets import write_set

    write_set(folder / "set.npz", "MDOVRPBLTW", 6, 2, 1)


def _read_set(folder: Path) -> Any:
    from polarvrp.problem.datasets import read_instances

    return instance_digests(read_instances(folder / "set.npz"))


def _write_solutions(folder: Path) -> None:
    from polarvrp.solutions.solutions import write_solutions

    write_solutions(folder / "x.parquet", [ROW] * 50, "solver", {"threads": 1, "fingerprints": {"0": "ab" * 8}})


def _read_solutions(folder: Path) -> Any:
    from polarvrp.files import provenance
    from polarvrp.solutions.solutions import read_solutions, solution_rows

    table = read_solutions(folder / "x.parquet")
    return solution_rows(table), provenance(table)


def _write_foreign(folder: Path) -> None:
    """A file of solutions as another program writes it, without a digest."""
    import pyarrow.parquet as pq

    _write_solutions(folder)
    pq.write_table(pq.read_table(folder / "x.parquet").replace_schema_metadata(None), folder / "x.parquet")


def _write_set_x(folder: Path) -> None:
    from polarvrp.evaluation.set_x import write_set_x

    row = {"instance": "X-n101-k25", "best_known": 27591, "cost": 28000, "gap_percent": 1.5, "published_cost": 28001}
    write_set_x(folder / "x.parquet", [row | {"published_gap_percent": 1.5, "seconds": 1.0, "actions": [1, 2]}], {})


def _read_set_x(folder: Path) -> Any:
    from polarvrp.solutions.checking import read_set_x

    return read_set_x(folder / "x.parquet")


def _write_history(folder: Path) -> None:
    from polarvrp.training.history import write_history

    write_history(folder / "history.parquet", [{"epoch": epoch, "loss": 0.5} for epoch in (1, 2)], {"spec": {"a": 1}})


def _read_history(folder: Path) -> Any:
    from polarvrp.training.recorded import read_training

    return read_training(folder)


def _write_unfinished(folder: Path) -> None:
    from polarvrp.training.history import write_jsonl
    from polarvrp.training.recorded import write_description
    from polarvrp.training.wandb_runs import Description

    write_jsonl(folder / "history.jsonl", [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}])
    write_description(folder, Description(run=RUN, spec={"model": {}}, scale="quick", facts={"device": "cpu"}))


def _read_unfinished(folder: Path) -> Any:
    from polarvrp.training.recorded import read_unfinished

    read_unfinished(folder)


def _write_weights(folder: Path) -> None:
    from polarvrp.model.registry import build_policy
    from polarvrp.model.saving import save_policy

    config = ModelConfig(encoder="shared", width=16, heads=2, layers=1, feedforward_width=16)
    save_policy(folder / "weights.safetensors", build_policy(config, 0), {"run": RUN, "fingerprint": "f"})


def _read_weights(folder: Path) -> Any:
    from polarvrp.model.saving import load_policy

    policy, header = load_policy(folder / "weights.safetensors")
    return {name: tensor.tolist() for name, tensor in policy.state_dict().items()}, header["metadata"]


def _read_weights_header(folder: Path) -> Any:
    from polarvrp.study.weights import weights_digest, weights_header

    weights_header(folder / "weights.safetensors")
    weights_digest(folder / "weights.safetensors")


def _read_state_dictionary(folder: Path) -> Any:
    from polarvrp.model.conversion import read_state

    read_state(folder / "weights.safetensors")


def _write_torch(folder: Path) -> None:
    import torch

    torch.save({"state_dict": {"a.weight": torch.zeros(3)}}, folder / "x.ckpt")


def _read_torch(folder: Path) -> Any:
    from polarvrp.model.conversion import read_state

    read_state(folder / "x.ckpt")


def _write_checkpoints(folder: Path) -> None:
    import torch

    from polarvrp.training.checkpoints import CheckpointStore, Position

    store, model = CheckpointStore(folder), torch.nn.Linear(3, 3)
    torch.nn.init.ones_(model.weight)
    for step in (1, 2):
        store.save(Position(step=step), model, torch.optim.AdamW(model.parameters()))


def _read_checkpoints(folder: Path) -> Any:
    """The step: the newest where nothing is damaged, else the one before it, never the beginning."""
    from polarvrp.training.checkpoints import read_newest

    position, tensors = read_newest(folder)
    if position.step == 1 and tensors["model.weight"].eq(1).all():
        return 2  # the older one, whole
    return position.step


def _write_metadata(folder: Path) -> None:
    write_text(folder / f"models/{RUN}/metadata.json", json.dumps({"run": RUN, "spec": {"model": {}}, "epochs": 3}))


def _read_metadata(folder: Path) -> Any:
    from polarvrp.study.runs import parse_run
    from polarvrp.tables.sources import Results

    results, run = Results(folder, "quick"), parse_run(RUN)
    results.metadata(run)
    results.recorded(run, "epochs")


CONFIG = Path(__file__).parents[1] / "config"


def _write_config(folder: Path) -> None:
    own = {"scale": "quick", "datasets": {"test_instances": 4}, "training": {"epochs": 2}, "backbones": ["polarnet"]}
    own["sizes"] = [{"num_customers": 10, "batch_size": 4, "reference_seconds": 0.5}]
    write_text(folder / "mine.yaml", yaml.safe_dump(own))


def _read_config(folder: Path) -> Any:
    load_study(folder / "mine.yaml", CONFIG)


def _write_partial(folder: Path) -> None:
    with PartialFile(folder / "x.parquet", IDENTITY, SolutionRow) as partial:
        for number in range(3):
            partial.append(StoredRow(f"print {number}", ROW))


def _read_partial(folder: Path) -> Any:
    with PartialFile(folder / "x.parquet", IDENTITY, SolutionRow) as partial:
        assert all(stored.row == ROW for stored in partial.rows.values())


def _library(name: str, text: str) -> Kind:
    def read(folder: Path) -> Any:
        from polarvrp.problem.library_files import read_library
        from polarvrp.problem.library_prices import check_routes
        from polarvrp.problem.tours import Route
        from polarvrp.problem.vrplib import to_instances

        library = read_library(folder / name)
        to_instances(library)
        check_routes(library, [Route(0, (customer,)) for customer in range(library.num_depots, len(library.demands))])

    return Kind(name, lambda folder: write_text(folder / name, text), read)


def _read_sol(folder: Path) -> Any:
    from polarvrp.problem.vrplib import read_sol

    read_sol(folder / "x.sol")


def _read_foreign(folder: Path) -> Any:
    from polarvrp.solutions.foreign import read_foreign

    read_foreign(folder / "x.parquet")


KINDS = {
    "set of instances": Kind("set.npz", _write_set, _read_set, digested=True),
    "solutions": Kind("x.parquet", _write_solutions, _read_solutions, digested=True),
    "solutions of others": Kind("x.parquet", _write_foreign, _read_solutions),
    "solutions to import": Kind("x.parquet", _write_foreign, _read_foreign),
    "costs on Set-X": Kind("x.parquet", _write_set_x, _read_set_x, digested=True),
    "history": Kind("history.parquet", _write_history, _read_history, digested=True),
    "history so far": Kind("history.jsonl", _write_unfinished, _read_unfinished),
    "description": Kind("description.json", _write_unfinished, _read_unfinished),
    "weights": Kind("weights.safetensors", _write_weights, _read_weights, digested=True),
    "header of weights": Kind("weights.safetensors", _write_weights, _read_weights_header),
    "state dictionary": Kind("weights.safetensors", _write_weights, _read_state_dictionary),
    "checkpoint of torch": Kind("x.ckpt", _write_torch, _read_torch),
    "metadata": Kind(f"models/{RUN}/metadata.json", _write_metadata, _read_metadata),
    "configuration": Kind("mine.yaml", _write_config, _read_config),
    "solved so far": Kind("x.parquet.partial", _write_partial, _read_partial),
    **{name: _library(name, text) for name, text in LIBRARY_TEXTS.items()},
    ".sol": Kind("x.sol", lambda folder: write_text(folder / "x.sol", SOLUTION), _read_sol),
    **{
        f"checkpoint, {name}": Kind(
            f"checkpoint-00-00001-00000002/{name}", _write_checkpoints, _read_checkpoints, digested=True
        )
        for name in ("state.safetensors", "state.json", "digests.json")
    },
}


def mutated(content: bytes, draw: random.Random) -> bytes:
    """A file's content with one to three changes."""
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        start, length = draw.randrange(len(changed) + 1), draw.choice((1, 2, 8, 64, 1000))
        numbers = [match.span() for match in re.finditer(rb"[-+]?\d+(\.\d+)?", bytes(changed[:20000]))]
        match draw.randrange(8):
            case 0 | 1 if changed:
                changed[min(start, len(changed) - 1)] ^= 1 << draw.randrange(8)
            case 2:
                del changed[start:]
            case 3:
                del changed[start : start + length]
            case 4:
                changed[start:start] = changed[start : start + length]
            case 5:
                changed[start : start + length] = draw.randbytes(length)
            case 6 if numbers:
                first, end = draw.choice(numbers)
                changed[first:end] = draw.choice(EXTREMES)
            case _:
                lines = bytes(changed).split(b"\n")
                draw.shuffle(lines)
                changed = bytearray(b"\n".join(lines))
    return bytes(changed)


def fault_of(task: tuple[str, int]) -> str:
    """What is wrong with reading one changed file.

    Args:
        task: Name of a kind and a seed.

    Returns:
        ``read`` or ``refused`` if nothing is, else the fault.
    """
    logging.disable()  # warnings of damaged checkpoints are what is wanted
    name, seed = task
    kind = KINDS[name]
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        kind.write(folder)
        wanted = kind.read(folder)
        path = folder / kind.place
        path.write_bytes(mutated(path.read_bytes(), random.Random(f"{name} {seed}")))
        started_s = time.process_time()
        try:
            found = kind.read(folder)
        except PolarvrpError as error:
            lines = lines_of("read", error).splitlines()
            allowed = 1 if kind.place != "mine.yaml" else 50  # a line a mistake
            return "refused" if 1 <= len(lines) <= allowed else f"said {len(lines)} lines, {str(error)[:300]!r}"
        except Exception as error:
            return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        if time.process_time() - started_s > SECONDS_ALLOWED:
            return f"took {time.process_time() - started_s:.0f} s of processor"
        return "read as another value" if kind.digested and found != wanted else "read"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mutations", type=int, default=10_000, help="over all kinds (default: 10000)")
    parser.add_argument("--seed", type=int, default=0, help="first seed; a fault names its own")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), metavar="KIND")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    each = -(-options.mutations // len(options.kinds))
    tasks = [(name, options.seed + number) for number in range(each) for name in options.kinds]
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in options.kinds}
    faults = 0
    started_s = time.monotonic()
    with WorkerPool(fault_of, options.workers) as pool:
        for place, outcome in pool.run(tasks, hard_limit_s=SECONDS_UNTIL_KILLED):
            name, seed = tasks[place]
            found = f"process: {outcome.reason}" if isinstance(outcome, TaskFailure) else outcome
            outcomes[name][found if found in ("read", "refused") else "faults"] += 1
            if found not in ("read", "refused"):
                faults += 1
                print(f"{name}, seed {seed}: {found}", flush=True)
    for name, counts in outcomes.items():
        print(f"{name:<32}{counts['refused']:>7} refused{counts['read']:>7} read{counts['faults']:>5} faults")
    print(f"{len(tasks)} changed files, {faults} faults, {time.monotonic() - started_s:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
