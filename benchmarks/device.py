"""The engine's first minutes on a card: ordered stages, a line each.

    python benchmarks/device.py --output OUT --stages 0-7 --budget 420
    python benchmarks/device.py --output OUT --stages 8-11 --budget 360 --weights model/weights.safetensors

Each stage runs in a process of its own with a time limit of its own, and ends in one line on standard output, ``STAGE n
name OK|FAIL seconds numbers``; all that the stages print is in ``OUT/stages.log``. Later stages go on after a failure
unless they need what failed. ``--budget`` drops the last stages once less than half their limits is left of it; stage
11 takes what is left, and plans by the times that stages 7 and 8 told. Of a quarter of an hour the two calls leave two
minutes for the machine's start and packages. The caches of compiled code are kept in ``OUT`` as pieces below 16 MiB. A
later call on the same machine finds them and what earlier stages told though ``OUT`` was emptied in between; on another
machine it does if the files of the earlier ``OUT`` are copied into its own first.

Stages 1 to 4 run before anything is captured, so that a wrong kernel is never taken for a fault of a graph. Without a
card the same stages run in Triton's interpreter at tiny sizes, and each says what needs a card. Beside torch and Triton
the stages need numpy, pandas, pyarrow, safetensors, tqdm and pydantic with its own needs (pydantic_core,
annotated_types, typing_inspection, typing_extensions); stages 8 and 11 also PyVRP and vrplib, and stage 11 PyYAML.
"""

import argparse
import gzip
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LOG = "stages.log"
"""Of all stages, one after the other: a machine may hand back few files."""

PIECE_BYTES = 15 << 20
"""Of an archive of caches; pieces stay below 16 MiB."""

CACHE = Path(tempfile.gettempdir()) / "polarvrp-device-cache"
"""Always the same place: compiled code knows its own path. Holds a copy of the log too, for later calls."""

SLOWER_WITHOUT_CARD = 10
LEAST_TRAINING_SECONDS = 60.0
PACKING_SECONDS = 15.0
"""Of a budget, for archiving the caches."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage.

    Attributes:
        name: Of the stage.
        function: Its function in ``device_stages``.
        limit_s: Most seconds it may take, twice what is expected where nothing is compiled yet.
        needs: Stages that must not have failed.
    """

    name: str
    function: str
    limit_s: float
    needs: tuple[int, ...] = ()


STAGES = (
    Stage("machine", "machine", 60),
    Stage("replay", "replay_kernel", 60),
    Stage("rollout", "rollout_kernel", 150),
    Stage("scoring", "scoring_kernels", 100),
    Stage("gradients", "gradients", 100, (2,)),
    Stage("encoder", "encoder", 120),
    Stage("capture", "captured_step", 120, (4,)),
    Stage("step-50", "step_of_50", 120),
    Stage("polar-50", "refined_step", 140),
    Stage("step-100", "step_of_100", 120),
    Stage("inference", "inference", 100),
    Stage("training", "training", 240),
)
"""Stages after the captures need none: the level checks itself, and another one's times are better than none."""

TRAINING = len(STAGES) - 1


def main() -> int:
    """Run the stages; 0 if none failed."""
    options = parse()
    if options.run_stage is not None:
        run_stage(options.run_stage, options)
        return 0
    options.output.mkdir(parents=True, exist_ok=True)
    unpack_caches(options.output)
    restore_log(options.output)
    slower = 1 if card_is_there() else SLOWER_WITHOUT_CARD
    try:
        failed = run_all(options, slower)
    finally:
        pack_caches(options.output)
    return 1 if failed else 0


def run_all(options: argparse.Namespace, slower: int) -> set[int]:
    """Run the stages one after the other, a line each; those that failed."""
    begun_s, failed, dropping = time.monotonic(), set[int](), False
    for number in options.stages:
        left_s = options.budget - PACKING_SECONDS - (time.monotonic() - begun_s)
        limit_s = slower * STAGES[number].limit_s
        if number == TRAINING and LEAST_TRAINING_SECONDS <= left_s < float("inf"):
            limit_s, dropping = left_s, False
        dropping = dropping or limit_s > 2 * left_s
        missing = sorted(failed & set(STAGES[number].needs))
        if dropping:
            line = f"DROPPED 0.0 left={left_s:.0f}"
        elif missing:
            line = f"FAIL 0.0 needs={','.join(map(str, missing))}"
        else:
            line = run_apart(number, min(limit_s, left_s), options)
        if line.startswith("FAIL"):
            failed.add(number)
        print(f"STAGE {number} {STAGES[number].name} {line}", flush=True)
    return failed


def parse() -> argparse.Namespace:
    """Options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for logs and archived caches")
    parser.add_argument("--stages", type=stage_numbers, default=stage_numbers(f"0-{TRAINING}"), metavar="N-M,...")
    parser.add_argument("--budget", type=float, default=float("inf"), metavar="SECONDS", help="for all stages")
    parser.add_argument("--weights", type=Path, metavar="FILE", help="weights.safetensors that stage 11 goes on from")
    parser.add_argument("--workers", type=int, default=min(16, os.cpu_count() or 1), help="processes of local search")
    parser.add_argument("--run-stage", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=float, default=float("inf"), help=argparse.SUPPRESS)
    return parser.parse_args()


def stage_numbers(text: str) -> list[int]:
    """Numbers of stages, from ``0-3,7`` and the like."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    if not numbers <= set(range(len(STAGES))):
        raise argparse.ArgumentTypeError(f"stages go from 0 to {TRAINING}, got {text}")
    return sorted(numbers)


def card_is_there() -> bool:
    """Whether torch sees a card, asked in a process of its own."""
    code = "import torch; raise SystemExit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def run_apart(number: int, limit_s: float, options: argparse.Namespace) -> str:
    """Run a stage in a process of its own; what its line says after its name."""
    log = options.output / LOG
    command = [sys.executable, __file__, "--output", str(options.output), "--run-stage", str(number)]
    command += ["--limit", str(limit_s), "--workers", str(options.workers)]
    if options.weights is not None:
        command += ["--weights", str(options.weights.resolve())]
    begun_s = time.monotonic()
    with log.open("ab") as file:
        file.write(f"STAGE {number} {STAGES[number].name}\n".encode())
        file.flush()
        begin = file.tell()
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env=environment(), start_new_session=True
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end_group(process)
    seconds = time.monotonic() - begun_s
    keep_log(options.output)
    lines = log.read_bytes()[begin:].decode(errors="replace").splitlines()
    numbers = " ".join(line.removeprefix("NUMBERS ") for line in lines if line.startswith("NUMBERS "))
    if status == 0:
        return f"OK {seconds:.1f} {numbers}"
    last = next((line for line in reversed(lines) if line.strip()), "nothing was printed")
    reason = f"limit of {limit_s:.0f} s" if status is None else last
    return f"FAIL {seconds:.1f} {numbers} | {reason}"


def keep_log(output: Path) -> None:
    """Copy the log to where a later call on this machine finds it: ``output`` may be emptied before."""
    CACHE.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(output / LOG, CACHE / LOG)


def restore_log(output: Path) -> None:
    """Go on with the log of an earlier call, unless there is one."""
    if (CACHE / LOG).exists() and not (output / LOG).exists():
        shutil.copyfile(CACHE / LOG, output / LOG)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a stage with all its workers."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def environment() -> Mapping[str, str]:
    """Of a stage: its caches, its packages, no tracker."""
    source = Path(__file__).parents[1] / "src"
    path = os.pathsep.join(filter(None, (str(source), os.environ.get("PYTHONPATH"))))
    caches = {"TRITON_CACHE_DIR": CACHE / "triton", "TORCHINDUCTOR_CACHE_DIR": CACHE / "inductor"}
    return (
        os.environ
        | {name: str(folder) for name, folder in caches.items()}
        | {
            "PYTHONPATH": path,
            "WANDB_MODE": "disabled",
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
        }
    )


def run_stage(number: int, options: argparse.Namespace) -> None:
    """Run a stage in this process."""
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are defined
    import device_stages

    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    setting = device_stages.Setting(device, options.output, options.weights, options.workers, options.limit)
    getattr(device_stages, STAGES[number].function)(setting)


def pack_caches(output: Path) -> None:
    """Archive the caches of compiled code in pieces."""
    for piece in pieces_in(output):
        piece.unlink()
    if not CACHE.is_dir():
        return
    try:
        with (
            PieceWriter(output) as pieces,
            gzip.GzipFile(fileobj=pieces, mode="wb", compresslevel=1) as packed,
            tarfile.open(mode="w|", fileobj=packed) as archive,
        ):
            archive.add(CACHE, arcname=".")
    except OSError as error:  # such as a file of a compiler that ends after its stage
        print(f"{output}: the caches are not archived ({error}); the next call starts cold", file=sys.stderr)
        for piece in pieces_in(output):
            piece.unlink()


def unpack_caches(output: Path) -> None:
    """Unpack what an earlier call archived, all or nothing: the first half of a kernel would be taken for a kernel."""
    pieces = pieces_in(output)
    if not pieces:
        return
    whole = io.BytesIO(b"".join(piece.read_bytes() for piece in pieces))
    try:
        with tempfile.TemporaryDirectory() as aside:
            with tarfile.open(mode="r|gz", fileobj=whole) as archive:
                archive.extractall(aside, filter="data")
            shutil.copytree(aside, CACHE, dirs_exist_ok=True)
    except (tarfile.TarError, EOFError, OSError) as error:
        print(f"{output}: the archived caches are of no use ({error}); this call starts cold", file=sys.stderr)


def pieces_in(output: Path) -> list[Path]:
    """Pieces of an archive in order."""
    return sorted(output.glob("caches-*.tgz"))


class PieceWriter(io.RawIOBase):
    """A stream that writes into one file after the other, none larger than ``PIECE_BYTES``.

    Args:
        folder: Of the files.
    """

    def __init__(self, folder: Path) -> None:
        self._files = (folder / f"caches-{number:03}.tgz" for number in range(1000))
        self._room = 0
        self._file: io.BufferedWriter | None = None

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Append to the last piece, or begin the next."""
        for first in self._parts(data):
            assert self._file is not None
            self._file.write(first)
        return len(data)

    def _parts(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._room == 0:
                self.close_piece()
                self._file, self._room = next(self._files).open("wb"), PIECE_BYTES
            part, data = data[: self._room], data[self._room :]
            self._room -= len(part)
            yield part

    def close_piece(self) -> None:
        """Close the piece that is being written."""
        if self._file is not None:
            self._file.close()

    def close(self) -> None:
        """Close the last piece."""
        self.close_piece()
        super().close()


if __name__ == "__main__":
    sys.exit(main())
