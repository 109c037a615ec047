"""What lies in a folder of results is believed only if it is what its place says; all that is missing is counted."""

import dataclasses
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from helpers.results_folder import ResultsFolder, table_rows
from polarvrp.catalog.scales import SCALES, Scale
from polarvrp.cli.main import main
from polarvrp.errors import DataError
from polarvrp.files import provenance
from polarvrp.problem.sets import write_set
from polarvrp.solutions.solutions import read_solutions, solution_rows, write_solutions
from polarvrp.study.layout import Layout
from polarvrp.tables.formats import scale_warning
from polarvrp.tables.sources import Results

RUN = "polarnet-ple-polar-n10-s0"
PYVRP, OURS = Path("references/test/pyvrp/CVRP-n10.parquet"), Path(f"evaluations/test/{RUN}/CVRP-n10.parquet")
SET = Path("datasets/test/CVRP-n10.npz")
PLACES = [
    ("references/test/pyvrp/VRPTW-n10.parquet", PYVRP, "holds variant VRPTW instead of CVRP"),
    ("references/test/pyvrp/CVRP-n20.parquet", PYVRP, "holds num_customers 20 instead of 10"),
    ("references/test/ortools/CVRP-n10.parquet", PYVRP, "holds solver ortools instead of pyvrp"),
    (f"evaluations/test/{RUN}/VRPTW-n10.parquet", OURS, "holds variant VRPTW instead of CVRP"),
    (f"evaluations/test/{RUN[:-1]}1/CVRP-n10.parquet", OURS, f"holds run {RUN[:-1]}1 instead of {RUN}"),
    (OURS, PYVRP, "has no column solver"),
]


@pytest.fixture
def study(folder: ResultsFolder) -> ResultsFolder:
    for variant, size in (("CVRP", 10), ("VRPTW", 10), ("CVRP", 20)):
        for method in ("pyvrp", "ortools"):
            folder.solve(method, variant, size, [10.0, 10.0, 10.0])
    for run in (RUN, f"{RUN[:-1]}1"):
        for variant in ("CVRP", "VRPTW"):
            folder.solve(run, variant, 10, [11.0, 11.0, 11.0])
    return folder


@pytest.mark.parametrize(("source", "place", "fault"), PLACES)
def test_no_table_believes_the_name_of_a_file(
    study: ResultsFolder, capsys: pytest.CaptureFixture[str], source: str, place: Path, fault: str
) -> None:
    shutil.copyfile(study.root / source, study.root / place)
    assert main(["tables", "in_distribution", "--results", str(study.root)]) == 2
    error = capsys.readouterr().err
    assert f"{study.root / place} {fault}" in error and error.count("\n") == 1
    assert not (study.root / "tables").exists()


@pytest.mark.parametrize("name", SCALES)
def test_a_scale_is_what_its_record_says(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Names say nothing: each stands for another's folder, sizes and warning."""
    other = Scale(name="laptop", own_folder=not SCALES[name].own_folder, is_papers=not SCALES[name].is_papers)
    monkeypatch.setitem(SCALES, name, other)
    assert Layout.of_scale(name).root == (Path("results") / name if other.own_folder else Path("results"))
    assert (scale_warning(name) == "", Results(Path(), name).has_size(20)) == (other.is_papers, not other.is_papers)


def test_solutions_must_be_of_the_set_at_hand(tmp_path: Path) -> None:
    """Of the very instances, by their digests, and of none that it does not have."""
    root = tmp_path / "results"
    for place, seed in ((SET, 1), (Path("other.npz"), 2)):
        write_set(root / place, "CVRP", 10, 3, seed)
    for place, count in ((SET, "3"), (Path("other.npz"), "2")):
        solve = ["reference", str(root / place), "--solver", "pyvrp", "--seconds", "9", "--iterations", "1"]
        assert main([*solve, "--first", count, "--output", str(root / f"{place.stem}.parquet")]) == 0
    (root / PYVRP).parent.mkdir(parents=True)
    results = Results(root, "quick")
    shutil.copyfile(root / "CVRP-n10.parquet", root / PYVRP)
    (test_set,) = results.solved_sets("pyvrp", ["CVRP"])
    assert len(results.solved("pyvrp", test_set)) == 3
    shutil.copyfile(root / "other.parquet", root / PYVRP)
    with pytest.raises(DataError, match=r"solves another instance 0 than .*CVRP-n10\.npz holds"):
        results.solved("pyvrp", test_set)
    rows = solution_rows(read_solutions(root / "CVRP-n10.parquet"))
    write_solutions(root / PYVRP, [dataclasses.replace(rows[0], instance=3)])
    with pytest.raises(DataError, match=r"holds instance 3, .*CVRP-n10\.npz 3; make it again"):
        results.solved("pyvrp", test_set)


def rewritten(path: Path, keep: int, **metadata: Any) -> None:
    """The first rows of a file, the first of all with a tour that breaks a rule."""
    table = read_solutions(path)
    rows = solution_rows(table)[:keep]
    rows[0] = dataclasses.replace(rows[0], max_violation=0.5)
    write_solutions(path, rows, "run", provenance(table) | metadata)


@pytest.mark.parametrize("set_at_hand", [False, True])
def test_rows_that_are_missing_or_break_a_rule_are_counted_as_left_out(
    study: ResultsFolder, caplog: pytest.LogCaptureFixture, set_at_hand: bool
) -> None:
    if set_at_hand:
        write_set(study.root / SET, "CVRP", 10, 4, 1)
    rewritten(study.root / OURS, keep=2)
    with caplog.at_level(logging.WARNING):
        rows = table_rows(Results(study.root, "quick"), "in_distribution")
    (row,) = [row for row in rows if row["method"] == "polarnet-ple-polar-s0" and row["variant"] == "CVRP"]
    assert (row["instances"], row["left_out"]) == (1, 3 if set_at_hand else 2)
    assert row["seconds"] == 1.0
    assert f"{study.root / OURS}: 1 of 2 tours break a rule and are left out" in caplog.text


def test_the_published_protocol_may_break_rules(study: ResultsFolder) -> None:
    rewritten(study.root / OURS, keep=3, protocol="published")
    rows = table_rows(Results(study.root, "quick"), "in_distribution")
    (row,) = [row for row in rows if row["method"] == "polarnet-ple-polar-s0" and row["variant"] == "CVRP"]
    assert (row["instances"], row["left_out"]) == (3, 0)
