"""The same commands in another process, another folder and with another order of Python's sets make the same bytes."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from helpers.results_folder import ResultsFolder
from helpers.tiny_training import RUN, tiny_spec
from polarvrp.cli.main import main
from polarvrp.files import provenance, read_parquet
from polarvrp.study.specs import canonical

MEASURED = ("seconds", "instances_per_second", "peak_memory")
SPEC = tiny_spec(epochs=2, instances_per_epoch=8)
SETS = ("CVRP", "OVRPBLTW")
GENERATE = [
    f"generate --variant {name} --num-customers 8 --instances 2 --seed 4321 --output {name}.npz".split()
    for name in ("MDVRPMBLTW", *SETS)
]
TRAIN = ["train", RUN, "--spec", canonical(SPEC), "--workers", "1", "--results", "results"]
TRAIN += ["--validation", *(f"{name}.npz" for name in SETS)]
EVALUATE = [*("evaluate", "OVRPBLTW.npz", "MDVRPMBLTW.npz", "--model", RUN), *("--output", "a.parquet", "b.parquet")]
SCRIPT = "import json, sys; from polarvrp.cli.main import main; sys.exit(sum(map(main, json.loads(sys.argv[1]))))"


def run_twice(here: Path, elsewhere: Path, *commands: list[str]) -> None:
    """Commands in this process, which many tests have gone through, and in a fresh one of another hash seed."""
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(here):
        patch.setenv("WANDB_MODE", "disabled")
        assert [main(command) for command in commands] == [0] * len(commands)
    another = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = os.environ | {"PYTHONHASHSEED": another, "WANDB_MODE": "disabled"}
    words = [sys.executable, "-c", SCRIPT, json.dumps(commands)]
    done = subprocess.run(
        words, cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def timeless(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of a file and where it says they come from, without what was measured."""
    table = read_parquet(path)
    rows = [{key: value for key, value in row.items() if not key.startswith(MEASURED)} for row in table.to_pylist()]
    return rows, provenance(table)


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two folders in which the same was done."""
    folders = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("another") / "folder with a longer name"
    folders[1].mkdir()
    run_twice(*folders, *GENERATE, TRAIN, EVALUATE)
    return folders


def test_sets_have_the_same_bytes(twice: tuple[Path, Path]) -> None:
    for name in ("MDVRPMBLTW", *SETS):
        one, other = (folder / f"{name}.npz" for folder in twice)
        assert one.read_bytes() == other.read_bytes()


def test_trainings_on_a_cpu_make_the_same_weights_and_history(twice: tuple[Path, Path]) -> None:
    one, other = (folder / "results" / "models" / RUN for folder in twice)
    weights, expected = load_file(one / "weights.safetensors"), load_file(other / "weights.safetensors")
    assert weights.keys() == expected.keys() and all((weights[name] == expected[name]).all() for name in weights)
    history = timeless(one / "history.parquet")
    assert history == timeless(other / "history.parquet") and len(history[0]) == 2
    assert sum(row["refined_tours"] for row in history[0]) > 0
    assert (one / "config.yaml").read_bytes() == (other / "config.yaml").read_bytes()


def test_evaluations_find_the_same_tours(twice: tuple[Path, Path]) -> None:
    for name in ("a.parquet", "b.parquet"):
        one, other = (timeless(folder / name) for folder in twice)
        assert one == other and len(one[0]) == 2


def test_tables_of_the_same_results_have_the_same_bytes(tmp_path: Path) -> None:
    """Every table that these results allow, with gaps of solvers, runs and seeds."""
    folder = ResultsFolder(tmp_path / "one" / "results")
    for seed in (0, 1):
        folder.evaluate(f"polarnet-ple-polar-n10-s{seed}", 3.0 + seed)
        folder.train(f"polarnet-ple-polar-n10-s{seed}")
    folder.evaluate("mvmoe-shared-rl-n10-s0", [1.5, 2.5, 0.5], ("CVRP", "VRPMB", "MDVRP"))
    places = tmp_path / "one", tmp_path / "another" / "folder"
    shutil.copytree(*places)
    run_twice(*places, ["tables"], ["figures", "gap_by_time"])
    made = []
    for root in (place / "results" for place in places):
        made.append({str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()})
    assert made[0] == made[1]
    assert sum(name.startswith("tables") for name in made[0]) >= 4 * 6
    assert sum(name.startswith("figures") for name in made[0]) == 2
