"""Works killed at random moments: the same command goes on, and ends with what it would have made undisturbed.

``python benchmarks/kill.py --moments 50`` makes a training, references of a set and of library files, an evaluation, a
table and a small Snakemake run once undisturbed. Then it starts one of them anew, kills its whole process group by
SIGKILL at a random moment, gives the same command again (to Snakemake after ``--unlock``), and compares all but times.
Files that the killed process left must be as a finished one writes them. One line a moment; the exit code is 1 if one
went wrong.
"""

import argparse
import contextlib
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from safetensors.numpy import load_file

from polarvrp.cli.main import main as command_line
from polarvrp.errors import PolarvrpError
from polarvrp.files import read_parquet, write_text
from polarvrp.problem.archives import read_arrays
from polarvrp.problem.sets import write_set
from polarvrp.study.layout import Layout
from polarvrp.study.specs import canonical

ROOT = Path(__file__).parents[1]
RUN = "polarnet-shared-po-n8-s0"
MEASURED = ("seconds", "instances_per_second", "peak_memory")
SPEC = {
    "code": 1,
    "model": {"backbone": "polarnet", "encoder": "shared", "width": 32, "heads": 4, "layers": 2},
    "training": {
        "paradigm": "po",
        "num_customers": 8,
        "epochs": 4,
        "instances_per_epoch": 64,
        "batch_size": 8,
        "validation_instances": 2,
        "precision": "float32",
    },
}
STUDY = {
    "scale": "quick",
    "sizes": [{"num_customers": 6, "batch_size": 4, "reference_seconds": 5}],
    "transfer_size": 6,
    "datasets": {"test_instances": 2, "validation_instances": 2},
}


@dataclass(frozen=True, slots=True)
class Work:
    """What is killed.

    Attributes:
        command: Given again and again, in a folder of its own.
        prepare: Makes that folder.
        outputs: Files that are compared, below it.
        unlock: Command to be given before it once Snakemake was killed.
    """

    command: tuple[str, ...]
    prepare: Callable[[Path], object]
    outputs: tuple[str, ...]
    unlock: tuple[str, ...] = ()


def polarvrp(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "polarvrp", *words)


def run(command: tuple[str, ...], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=environment())


def run_here(folder: Path, *words: str) -> None:
    """A command in this process, which has loaded already what it needs: nobody kills what only prepares."""
    said = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = command_line(list(words))
    if code != 0:
        raise RuntimeError(f"polarvrp {words[0]} ends with {code}: {said.getvalue()}")


def environment() -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": paths, "WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1"}


def make_set(folder: Path, instances: int = 12) -> None:
    write_set(folder / "set.npz", "VRPTW", 8, instances, seed=1234)


def make_files(folder: Path) -> None:
    """Library files of eight customers each."""
    for number, name in enumerate(FILES):
        draw, nodes = random.Random(number), range(1, 10)
        places = "".join(f"{node} {draw.randrange(100)} {draw.randrange(100)}\n" for node in nodes)
        loads = "".join(f"{node} {min(node - 1, 1)}\n" for node in nodes)
        head = f"NAME : {number}\nTYPE : CVRP\nDIMENSION : 9\nEDGE_WEIGHT_TYPE : EUC_2D\nCAPACITY : 4\n"
        rows = f"NODE_COORD_SECTION\n{places}DEMAND_SECTION\n{loads}DEPOT_SECTION\n1\n-1\nEOF\n"
        write_text(folder / name, head + rows)


def make_model(folder: Path) -> None:
    from polarvrp.config.model import ModelConfig
    from polarvrp.model.registry import build_policy
    from polarvrp.model.saving import save_policy

    config = ModelConfig(encoder="shared", width=32, heads=2, layers=2, num_customers=8)
    save_policy(folder / "weights.safetensors", build_policy(config, 0), {"run": RUN, "fingerprint": "f"})
    make_set(folder, instances=200)


def make_results(folder: Path) -> None:
    """Solutions of a run and of PyVRP, for a table."""
    make_model(folder)
    layout = Layout(folder / "results")
    for place in (layout.dataset("test", "VRPTW", 8), layout.weights(RUN)):
        place.parent.mkdir(parents=True)
    shutil.move(folder / "set.npz", layout.dataset("test", "VRPTW", 8))
    shutil.move(folder / "weights.safetensors", layout.weights(RUN))
    instances = str(layout.dataset("test", "VRPTW", 8))
    run_here(folder, "evaluate", instances, "--model", RUN, "--output", str(layout.evaluation(RUN, "VRPTW", 8)))
    solve = ("--solver", "pyvrp", "--seconds", "5", "--iterations", "5", "--first", "200")
    reference = str(layout.reference("test", "pyvrp", "VRPTW", 8))
    run_here(folder, "reference", instances, *solve, "--output", reference)


def make_study(folder: Path) -> None:
    for name in ("config", "workflow", "Snakefile", "profiles"):
        (folder / name).symlink_to(ROOT / name)
    write_text(folder / "mine.yaml", yaml.safe_dump(STUDY))


TRAIN = polarvrp("train", RUN, "--spec", canonical(SPEC), "--validation", "set.npz", "--results", "results")
SNAKEMAKE = (sys.executable, "-m", "snakemake", "--configfile", "mine.yaml")
SETS = [f"results/datasets/test/{name}-n6.npz" for name in ("CVRP", "VRPTW", "OVRPBLTW")]
SOLVE = ("--solver", "pyvrp", "--seconds", "20", "--iterations", "60")
REFERENCE = polarvrp("reference", "set.npz", *SOLVE, "--output", "x.parquet")
FILES = [f"{number}.vrp" for number in range(12)]
EVALUATE = polarvrp("evaluate", "set.npz", "--model", "weights.safetensors", "--output", "x.parquet")
WORKS = {
    "references": Work(REFERENCE, make_set, ("x.parquet",)),
    "library": Work(polarvrp("reference", *FILES, *SOLVE, "--output", "x.parquet"), make_files, ("x.parquet",)),
    "table": Work(
        polarvrp("tables", "in_distribution"),
        make_results,
        tuple(f"results/tables/in_distribution.{suffix}" for suffix in ("parquet", "csv", "md", "tex")),
    ),
    "evaluation": Work(EVALUATE, make_model, ("x.parquet",)),
    "training": Work(
        TRAIN, make_set, tuple(f"results/models/{RUN}/{name}" for name in ("weights.safetensors", "history.parquet"))
    ),
    "snakemake": Work(
        (*SNAKEMAKE, "--cores", "2", *SETS), make_study, tuple(SETS), unlock=(*SNAKEMAKE, "--cores", "1", "--unlock")
    ),
}


def content(path: Path) -> Any:
    """What a file says, apart from times."""
    if path.suffix == ".npz":
        return {name: array.tolist() for name, array in read_arrays(path).items()}
    if path.suffix == ".safetensors":
        return {name: array.tolist() for name, array in load_file(path).items()}
    if path.suffix == ".parquet":
        rows = read_parquet(path).to_pylist()
        return [{key: value for key, value in row.items() if not key.startswith(MEASURED)} for row in rows]
    return path.read_text(encoding="utf-8")


def undisturbed(work: Work, folder: Path) -> tuple[float, dict[str, Any]]:
    """Seconds of a work, and what it makes."""
    work.prepare(folder)
    shutil.copytree(folder, folder.with_name(f"{folder.name}-prepared"), symlinks=True)
    started_s = time.monotonic()
    run(work.command, folder)
    return time.monotonic() - started_s, {name: content(folder / name) for name in work.outputs}


def fault_of(
    work: Work, prepared: Path, folder: Path, longest_s: float, wanted: dict[str, Any], draw: random.Random
) -> tuple[float, str | None]:
    """What is wrong after a kill.

    Args:
        work: What is killed.
        prepared: Folder to begin with.
        folder: To work in.
        longest_s: The moment is drawn before; earlier where the work ends by itself.
        wanted: What must come out.
        draw: Of the moment.

    Returns:
        The moment, in seconds, at which a process in work was killed; and the fault, None if there is none.
    """
    at_s = draw.uniform(0, longest_s)
    while (took_s := seconds_unless_killed(work, prepared, folder, at_s)) is not None:
        at_s = draw.uniform(0, took_s)
    return at_s, fault_after_kill(work, folder, wanted)


def seconds_unless_killed(work: Work, prepared: Path, folder: Path, at_s: float) -> float | None:
    """Begin a work anew and kill it; if it ends before that by itself, how long it took."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(prepared, folder, symlinks=True)
    silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment()}
    started_s = time.monotonic()
    process = subprocess.Popen(work.command, cwd=folder, start_new_session=True, **silent)
    try:
        process.wait(at_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        if process.wait() == -signal.SIGKILL:  # else it ended in that very moment
            return None
    return time.monotonic() - started_s


def fault_after_kill(work: Work, folder: Path, wanted: dict[str, Any]) -> str | None:
    """What is wrong with what a killed process left, or with what the same command makes of it."""
    for name in work.outputs:
        if (folder / name).exists() and not work.unlock:  # Snakemake makes incomplete outputs anew
            try:
                left = content(folder / name)
            except PolarvrpError as error:
                return f"left a damaged file: {error}"
            if left != wanted[name]:
                return f"left {name} with other content"
    for command in filter(None, (work.unlock, work.command)):
        again = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment())
        if again.returncode != 0:
            return f"the same command ends with {again.returncode}: {again.stderr[-500:]}"
    for name in work.outputs:
        if content(folder / name) != wanted[name]:
            return f"{name} is not what an undisturbed run makes"
    left_over = [path.name for path in folder.rglob(".*-*") if path.is_file() and ".snakemake" not in path.parts]
    return f"leaves {left_over}" if left_over else None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--works", nargs="+", choices=list(WORKS), default=list(WORKS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw, faults = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory(prefix="kill-") as root:
        found = {}
        for name in options.works:
            (folder := Path(root) / name).mkdir()
            found[name] = undisturbed(WORKS[name], folder)
            print(f"{name}: {found[name][0]:.1f} s undisturbed", flush=True)
        for moment in range(options.moments):
            name = options.works[moment % len(options.works)]
            seconds, wanted = found[name]
            prepared = Path(root) / f"{name}-prepared"
            at_s, fault = fault_of(WORKS[name], prepared, Path(root) / name, seconds, wanted, draw)
            faults += fault is not None
            print(f"{name}, killed after {at_s:.2f} s: {fault or 'as if undisturbed'}", flush=True)
    print(f"{options.moments} moments, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
