"""``polarvrp generate``: published sets as files, reproducible, never overwritten by others."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from polarvrp.cli.main import main
from polarvrp.problem.archives import read_arrays, read_metadata
from polarvrp.problem.datasets import read_instances, variant_of
from polarvrp.problem.variants import VARIANTS


def generate(output: Path, variant: str = "CVRP", num_customers: int = 6, instances: int = 3, seed: int = 1234) -> int:
    words = f"generate --variant {variant} --num-customers {num_customers} --instances {instances} --seed {seed}"
    return main([*words.split(), "--output", str(output)])


def test_the_first_rows_of_the_published_test_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole published set, by its published hash, and a part of it."""
    whole, part = tmp_path / "whole.npz", tmp_path / "new" / "part.npz"
    assert generate(whole, "ovrpbltw", 50, 1000) == 0
    assert generate(part, "OVRPBLTW", 50, 7) == 0
    arrays = read_arrays(whole)
    assert hashlib.sha256(arrays["time_windows"].tobytes()).hexdigest().startswith("637c9542f03df242")
    assert (read_arrays(part)["time_windows"] == arrays["time_windows"][:7]).all()
    assert variant_of(read_instances(part)) == VARIANTS["OVRPBLTW"]
    assert capsys.readouterr().out == (
        f"{whole}: 1000 instances of OVRPBLTW with 50 customers, seed 1234\n"
        f"{part}: 7 instances of OVRPBLTW with 50 customers, seed 1234\n"
    )


def test_the_file_says_how_it_was_made(tmp_path: Path) -> None:
    """Name of the published folder is accepted; the recorded one is the paper's."""
    assert generate(tmp_path / "set.npz", "mdcvrp", 6, 2, 9) == 0
    assert read_metadata(tmp_path / "set.npz") == {
        "variant": "MDVRP",
        "num_customers": 6,
        "instances": 2,
        "seed": 9,
        "generator_version": 1,
    }


def test_a_deleted_file_comes_back_with_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    generate(path)
    before = path.read_bytes()
    assert generate(path) == 0  # the same set again is no conflict
    path.unlink()
    assert generate(path) == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 5}, "seed 1234 instead of 5"),
        ({"num_customers": 7}, "num_customers 6 instead of 7"),
        ({"variant": "VRPTW"}, "variant CVRP instead of VRPTW"),
        ({"instances": 4}, "instances 3 instead of 4"),
    ],
)
def test_another_set_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "set.npz"
    generate(path)
    before = path.read_bytes()
    assert generate(path, **change) == 2
    assert (
        f"{path} holds something else ({message}); move it away or choose another --output" in capsys.readouterr().err
    )
    assert path.read_bytes() == before


def test_a_foreign_file_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "set.npz"
    path.write_text("my only copy")
    assert generate(path) == 2
    assert "exists and does not say what it holds; move it away" in capsys.readouterr().err
    assert path.read_text() == "my only copy"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "VRPX"}, "unknown variant 'VRPX'"),
        ({"num_customers": 0}, "a set needs at least one customer and one instance, got 0 customers"),
        ({"instances": -1}, "got 6 customers, -1 instances"),
        ({"seed": -1}, "seed must be in [0, 2^32)"),
        ({"output": "set.csv"}, "--output must end in .npz, got set.csv"),
    ],
)
def test_bad_options_leave_nothing_behind(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, Any],
    message: str,
) -> None:
    """One line, exit code 2, no file."""
    monkeypatch.chdir(tmp_path)
    assert generate(**{"output": "set.npz"} | options) == 2
    error = capsys.readouterr().err
    assert re.fullmatch(f"polarvrp generate: .*{re.escape(message)}.*\n", error)
    assert list(tmp_path.iterdir()) == []


def test_generating_and_checking_import_no_torch(tmp_path: Path) -> None:
    """A hundred jobs of the workflow must not pay for it."""
    path = str(tmp_path / "set.npz")
    words = f"generate --variant MDVRPMBLTW --num-customers 5 --instances 2 --seed 1 --output {path}".split()
    calls = (words, ["check", path, "none.parquet"], ["check", "none.vrp", "none.sol"])
    code = "import sys; from polarvrp.cli.main import main;" + "".join(f"main({call!r});" for call in calls)
    code += "print(sorted({'torch', 'pandas', 'pyvrp', 'ortools', 'wandb'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
