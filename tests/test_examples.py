"""The examples of docs/ run as they stand."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path

import numpy as np
from matplotlib.image import imread

from helpers.library_texts import RINGS, SOLOMON, rings
from polarvrp.cli.main import main
from polarvrp.problem.library_files import read_library
from polarvrp.problem.library_instances import Rounding
from polarvrp.problem.library_prices import first_unservable_customer
from polarvrp.problem.library_twins import drawn_library
from polarvrp.problem.vrplib import variant_of_library

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
PUBLISHED = Path(__file__).parent / "problem" / "published"


def run(folder: Path, name: str, *options: str, code: int = 0) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "WANDB_MODE": "disabled"}
    command = [sys.executable, str(EXAMPLES / name), *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_every_example_is_tested_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "quickstart.py",
        "compare_on_one_variant.py",
        "write_instances.py",
        "price_published.py",
    }


def test_quickstart_needs_no_trained_model_and_says_so(tmp_path: Path) -> None:
    printed = run(tmp_path, "quickstart.py")
    assert "the network below is UNTRAINED" in printed
    for method in ("untrained", "PyVRP"):
        assert re.search(rf"^{method}: 4 solutions, 4 feasible, mean cost \d+\.\d+$", printed, re.MULTILINE)
    gap = re.search(r"^mean gap to PyVRP: (\S+) %$", printed, re.MULTILINE)
    assert gap is not None and float(gap[1]) > 10  # it has learnt nothing
    assert list(tmp_path.iterdir()) == []


def test_comparison_trains_solves_and_draws(tmp_path: Path) -> None:
    options = ["--epochs", "1", "--instances", "3", "--seconds", "0.1", "--output", "routes.png"]
    printed = run(tmp_path, "compare_on_one_variant.py", *options)
    assert printed.count("3 solutions, 3 feasible") == 2
    assert "routes of instance" in printed
    picture = imread(tmp_path / "routes.png")
    assert picture.shape[:2] == (550, 1500)
    assert picture[..., :3].std() > 0.05  # not a blank page
    assert [path.name for path in tmp_path.iterdir()] == ["routes.png"]


def test_written_instances_are_read_as_they_were_drawn(tmp_path: Path) -> None:
    """One of each form; all that a form can say comes back, costs count as its sets do."""
    assert run(tmp_path, "write_instances.py", "all", "--num-customers", "12", "--seed", "3") == "9 files in all\n"
    known = {
        "X-n101-k25.vrp": ("CVRP", Rounding.NEAREST),
        "backhauls.vrp": ("VRPB", Rounding.NEAREST),
        "cordeau.txt": ("MDVRP", Rounding.NONE),
        "limit.vrp": ("VRPL", Rounding.NEAREST),
        "matrix.vrp": ("CVRP", Rounding.NONE),
        "open.vrp": ("OVRP", Rounding.NEAREST),
        "solomon.txt": ("VRPTW", Rounding.ONE_DECIMAL),
        "windows.vrp": ("VRPTW", Rounding.NEAREST),
    }
    for name, (variant, rounding) in known.items():
        read = read_library(tmp_path / "all" / name)
        assert (variant_of_library(read).name, read.rounding) == (variant, rounding)
        assert first_unservable_customer(read) is None
        if name == "X-n101-k25.vrp":
            continue
        drawn = drawn_library(variant, 12, 3)
        np.testing.assert_array_equal(read.demands, drawn.demands)
        if name != "matrix.vrp":
            np.testing.assert_array_equal(read.coordinates, drawn.coordinates)
        for array in ("pickups", "time_windows", "service_times"):
            if getattr(drawn, array) is not None:
                np.testing.assert_array_equal(getattr(read, array), getattr(drawn, array))


def test_published_routes_cost_what_was_published(tmp_path: Path) -> None:
    """Real routes on real places: nearest integers, no rounding with a limit, and the largest of Set-X."""
    shutil.copytree(PUBLISHED, tmp_path / "sets")
    for name in RINGS:
        (tmp_path / "sets" / f"{name}.vrp").write_text(rings(name))
    with (
        resources.files("polarvrp").joinpath("data", "set_x.zip").open("rb") as file,
        zipfile.ZipFile(file) as archive,
    ):
        for suffix in ("vrp", "sol"):
            archive.extract(f"X-n1001-k43.{suffix}", tmp_path)
    assert run(tmp_path, "price_published.py", ".") == (
        "X-n1001-k43: 72355 (rounded distances), published 72355, gap 0.000 %\n"
        "A-n32-k5: 784 (rounded distances), published 784, gap 0.000 %\n"
        "Golden_1: 5623.468968 (exact distances), published 5623.47, gap 0.000 %\n"
        "Li_21: 16212.82556 (exact distances), published 16212.83, gap 0.000 %\n"
        "4 of 4 as published; not found: Antwerp1, C1_10_1, F-n72-k4, Flanders2, R101, tai75a\n"
    )
    for name in ("A-n32-k5", *RINGS):
        assert main(["check", *(str(tmp_path / "sets" / f"{name}.{end}") for end in ("vrp", "sol"))]) == 0


def test_other_costs_than_published_end_with_1(tmp_path: Path) -> None:
    """A twin under the name of a published instance, and a solution alone."""
    (tmp_path / "R101.txt").write_text(SOLOMON)
    for name in ("R101", "tai75a"):
        (tmp_path / f"{name}.sol").write_text("Route #1: 1 2\nRoute #2: 3\nCost 15\n")
    printed = run(tmp_path, "price_published.py", ".", code=1)
    assert "R101: 15 (truncated distances), published 1637.7, gap -99.084 %\n" in printed
    assert "tai75a: no instance beside its solution\n0 of 2 as published" in printed
