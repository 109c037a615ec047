"""Load tests: the workflow's whole plan on commands that do nothing, and large sets through the commands for sets.

``python benchmarks/load.py workflow`` runs all jobs of a scale from an empty folder to the end; sets, trainings and
solvers are stubs that only make their outputs, so what is measured is Snakemake with this project's rules. A second
call must find nothing to do. ``python benchmarks/load.py sets`` generates a set, solves its first instances, imports a
solution of every instance and checks them all.

Each line says what one command took: seconds, processor seconds and peak memory of the process that was started. The
exit code is 1 if a command failed.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from kill import ROOT, environment

from polarvrp.machine import processor_name

STUB = ROOT / "tests/helpers/stub_command.sh"
VARIANT = "OVRPBLTW"
"""Of one depot, the variant with the most arrays."""

SOLVED_FIRST = 4
SOLVER_SECONDS = 0.2
ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process took.

    Attributes:
        code: Its exit code.
        seconds: From start to end.
        processor_s: Of its own threads, without the processes that it started.
        peak_gb: Largest resident memory in 1e9 bytes, of it or of one that it started.
    """

    code: int
    seconds: float
    processor_s: float
    peak_gb: float

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.processor_s:.1f} s of processor, {self.peak_gb:.2f} GB"


def measured(command: list[str], folder: Path, environment: dict[str, str], log: Path) -> Usage:
    """Run a command to its end.

    Args:
        command: Words.
        folder: To work in.
        environment: Its whole environment.
        log: Where its output goes.
    """
    started_s = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # its own times can be read until it is waited for
    seconds = time.monotonic() - started_s
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    own_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Usage(process.returncode, seconds, own_s, usage.ru_maxrss * 1024 / 1e9)


def load_workflow(folder: Path, scale: str, cores: int) -> int:
    """All jobs of a scale, then none."""
    (folder / "stub").mkdir()
    (folder / "stub/python").symlink_to(STUB)
    clock = folder / "clock.txt"
    paths = os.pathsep.join([str(folder / "stub"), str(Path(sys.executable).parent), os.environ["PATH"]])
    stubbed = environment() | {"PATH": paths, "STUB_CLOCK": str(clock)}
    places = ["--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)]
    command = [sys.executable, "-m", "snakemake", "--cores", str(cores), "--config", f"scale={scale}", *places]
    for call, expected in (("first", r"\d+ of \d+ steps \(100%\) done"), ("second", "Nothing to be done")):
        log = folder / f"{call}.txt"
        usage = measured(command, folder, stubbed, log)
        printed = log.read_text(encoding="utf-8")
        found = re.findall(expected, printed)
        print(f"{call} call: {found[-1] if found else 'not as expected'}: {usage}", flush=True)
        if usage.code != 0 or not found:
            print(printed[-3000:])
            return 1
    print(f"{clock.read_text(encoding='utf-8').count(' ends ')} stub commands ended")
    return 0


def load_set(folder: Path, num_customers: int, instances: int) -> int:
    """A set through the commands."""
    solving = ["--solver", "pyvrp", "--seconds", str(SOLVER_SECONDS), "--first", str(SOLVED_FIRST)]
    drawn = ["--variant", VARIANT, "--num-customers", str(num_customers), "--instances", str(instances), "--seed", "1"]
    commands = {
        "generate": ["generate", *drawn, "--output", "set.npz"],
        "reference": ["reference", "set.npz", *solving, "--output", "first.parquet"],
        "import": ["import", "plain.parquet", "--instances", "set.npz", "--output", "all.parquet"],
        "check": ["check", "set.npz", "all.parquet"],
    }
    write_routes(folder / "plain.parquet", num_customers, instances)
    for name, words in commands.items():
        log = folder / f"{name}.txt"
        usage = measured([sys.executable, "-m", "polarvrp", *words], folder, environment(), log)
        said = log.read_text(encoding="utf-8").strip()
        print(f"n = {num_customers}, {name}: {usage}; {said.splitlines()[-1] if said else ''}", flush=True)
        if usage.code != 0:
            print(said[-3000:])
            return 1
    print(f"n = {num_customers}: the set has {(folder / 'set.npz').stat().st_size / 1e9:.2f} GB")
    return 0


def write_routes(path: Path, num_customers: int, instances: int) -> None:
    """A solution of every instance as others write it: a route for each customer, which breaks no rule."""
    tour = np.zeros(2 * num_customers - 1, dtype=np.uint16)
    tour[::2] = np.arange(1, num_customers + 1)
    schema = pa.schema([("instance", pa.int64()), ("actions", pa.list_(pa.uint16()))])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, instances, ROWS_AT_ONCE):
            count = min(ROWS_AT_ONCE, instances - start)
            ends = pa.array(np.arange(count + 1, dtype=np.int32) * len(tour))
            tours = pa.ListArray.from_arrays(ends, pa.array(np.tile(tour, count)))
            writer.write_table(pa.table([pa.array(range(start, start + count), pa.int64()), tours], schema=schema))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parts = parser.add_subparsers(dest="part", required=True)
    workflow = parts.add_parser("workflow", help="all jobs of a scale, on stubs")
    workflow.add_argument("--scale", default="paper")
    workflow.add_argument("--cores", type=int, default=40)
    sets = parts.add_parser("sets", help="a large set through generate, reference, import and check")
    sets.add_argument("--num-customers", type=int, nargs="+", default=[50, 100])
    sets.add_argument("--instances", type=int, default=100_000)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, {processor_name()}")
    if options.part == "workflow":
        with tempfile.TemporaryDirectory(prefix="load-") as folder:
            return load_workflow(Path(folder), options.scale, options.cores)
    for num_customers in options.num_customers:
        with tempfile.TemporaryDirectory(prefix="load-") as folder:
            if load_set(Path(folder), num_customers, options.instances):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
