"""Imported solutions as labelled rows of the main tables, from the files of ``polarvrp import``."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.results_folder import ResultsFolder, table_rows
from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.cli.main import main
from polarvrp.config.study import ExternalMethod
from polarvrp.errors import ConfigError, DataError
from polarvrp.problem.datasets import read_instances
from polarvrp.problem.nearest_neighbour import nearest_neighbour
from polarvrp.problem.sets import write_set
from polarvrp.problem.vrplib import load_set_x, write_sol
from polarvrp.study.external import external_files
from polarvrp.tables.build import build_tables, print_experiment
from polarvrp.tables.sources import Results

RUN = "polarnet-ple-polar-n9-s0"


def imported(folder: Path, variant: str, size: int = 9) -> tuple[Path, list[float]]:
    """Solutions of three instances of a test set, as a file of the command; their costs."""
    write_set(instances := folder / f"{variant}.npz", variant, size, 3, 1234)
    tours = read_instances(instances)
    rows = [{"instance": index, "actions": nearest_neighbour(tours, index), "seconds": 2.0} for index in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), plain := folder / f"plain-{variant}.parquet")
    output = folder / f"{variant}-n{size}.parquet"
    assert main(["import", str(plain), "--instances", str(instances), "--output", str(output)]) == 0
    return output, pq.read_table(output)["cost"].to_pylist()


@pytest.fixture
def theirs(tmp_path: Path) -> ExternalMethod:
    (others := tmp_path / "others").mkdir()
    imported(others, "CVRP"), imported(others, "MDVRP")
    for name in ("X-n101-k25", "X-n106-k14"):
        _, best_known, routes = load_set_x(name)
        write_sol(others / f"{name}.sol", routes, best_known)
    sols = sorted(str(path) for path in others.glob("*.sol"))
    assert main(["import", *sols, "--output", str(others / "set_x-all.parquet")]) == 0
    return ExternalMethod(name="nn", label="Nearest", files=(str(others / "[!p]*.parquet"),))


def results_of(folder: ResultsFolder, *methods: ExternalMethod) -> Results:
    return Results(folder.root, "quick", external=methods)


def of_method(rows: list[dict[str, Any]], method: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["method"] == method]


def test_rows_of_sets(folder: ResultsFolder, theirs: ExternalMethod, tmp_path: Path) -> None:
    """Each in the table of its variant, against the reference of its set, beside the runs."""
    costs = pq.read_table(tmp_path / "others" / "CVRP-n9.parquet")["cost"].to_pylist()
    folder.solve("pyvrp", "CVRP", 9, [cost / 1.1 for cost in costs])
    folder.solve(RUN, "CVRP", 9, [cost / 1.05 for cost in costs])
    rows = table_rows(results_of(folder, theirs), "in_distribution")
    assert {row["method"] for row in rows} == {"pyvrp", "external-nn", "polarnet-ple-polar-s0"}
    (row,) = of_method(rows, "external-nn")
    assert (row["variant"], row["num_customers"], row["instances"], row["reference"]) == ("CVRP", 9, 3, "pyvrp")
    assert row["gap_percent"] == pytest.approx(10.0) and row["objective"] == pytest.approx(sum(costs) / 3)
    assert row["seconds"] == 6.0
    (unseen,) = of_method(table_rows(results_of(folder, theirs), "zero_shot"), "external-nn")
    assert (unseen["variant"], unseen["gap_percent"]) == ("MDVRP", None)
    other_study = Results(folder.root, "quick", external=(theirs,), variants=("MDVRP",))
    assert table_rows(other_study, "in_distribution") == []
    assert len(of_method(table_rows(other_study, "zero_shot"), "external-nn")) == 1


def test_rows_of_set_x(folder: ResultsFolder, theirs: ExternalMethod) -> None:
    """The best known solutions: no gap as CVRPLIB counts, the length rounded up as the paper does."""
    folder.solve_set_x(RUN, {"X-n101-k25": (27591, 30000, 30010)})
    rows = table_rows(results_of(folder, theirs), "set_x")
    first, second = of_method(rows, "external-nn")
    assert (first["instance"], first["cost"], first["gap_percent"]) == ("X-n101-k25", 27591, 0.0)
    assert (second["instance"], second["best_known"], second["trained_on"]) == ("X-n106-k14", 26362, None)
    library, _, routes = load_set_x("X-n101-k25")
    ways = [[0, *route.customers, 0] for route in routes]
    legs = [pair for way in ways for pair in itertools.pairwise(way)]
    assert first["published_cost"] == math.ceil(
        math.fsum(math.dist(library.coordinates[start], library.coordinates[end]) for start, end in legs)
    )
    assert len(of_method(rows, "polarnet-ple-polar-s0")) == 1


def test_printed_with_their_label_and_never_as_the_best_policy(
    folder: ResultsFolder, theirs: ExternalMethod, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command as the workflow calls it; time is as stated, not divided as a solver's."""
    costs = pq.read_table(tmp_path / "others" / "CVRP-n9.parquet")["cost"].to_pylist()
    folder.solve("pyvrp", "CVRP", 9, [cost / 2 for cost in costs])
    folder.solve(RUN, "CVRP", 9, [cost * 1.5 for cost in costs])
    option = json.dumps([theirs.model_dump()])
    words = ["--results", str(folder.root), "--external", option]
    assert main(["tables", "in_distribution", "set_x", "zero_shot", *words]) == 0
    printed = (folder.root / "tables" / "in_distribution.md").read_text(encoding="utf-8")
    line = next(line for line in printed.splitlines() if "Nearest" in line)  # CVRP's, its block is the first
    assert "100.000%" in line and "6.0s" in line and "**" not in line
    ours = next(line for line in printed.splitlines() if "| Ours" in line)
    assert "**200.000%**" in ours
    assert main(["figures", "in_distribution", "--results", str(folder.root)]) == 0
    assert main(["report", "--results", str(folder.root)]) == 0
    capsys.readouterr()


def test_alone_beside_references(folder: ResultsFolder, theirs: ExternalMethod) -> None:
    """Without any run the table shows them and the solvers of the same sets."""
    folder.solve("pyvrp", "CVRP", 9, [1.0, 1.0, 1.0])
    folder.solve("pyvrp", "OVRP", 9, [1.0, 1.0, 1.0])
    results = results_of(folder, theirs)
    rows = table_rows(results, "in_distribution")
    assert [(row["variant"], row["method"]) for row in rows] == [("CVRP", "pyvrp"), ("CVRP", "external-nn")]
    build_tables(results, ["in_distribution"])
    (table,) = print_experiment(results.table("in_distribution"), EXPERIMENTS["in_distribution"])
    assert "Nearest" in table.text.to_numpy()


def test_what_cannot_be_listed(folder: ResultsFolder, theirs: ExternalMethod, tmp_path: Path) -> None:
    others = tmp_path / "others"
    with pytest.raises(ConfigError, match=r"external_methods, x: .*none\.parquet is no file; make it, or drop it"):
        external_files([ExternalMethod(name="x", label="X", files=(str(others / "none.parquet"),))])
    plain = ExternalMethod(name="x", label="X", files=(str(others / "plain-CVRP.parquet"),))
    with pytest.raises(DataError, match=r"plain-CVRP\.parquet of external method x was not checked"):
        table_rows(results_of(folder, plain), "in_distribution")
    (tmp_path / "again").mkdir()
    second, _ = imported(tmp_path / "again", "CVRP")
    twice = ExternalMethod(name="x", label="X", files=(str(others / "CVRP-n9.parquet"), str(second)))
    with pytest.raises(DataError, match="is a second file of CVRP with 9 customers"):
        table_rows(results_of(folder, twice), "in_distribution")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("[{", "--external is no JSON"),
        ("{}", "--external must be a list, got {}"),
        ('[{"name": "x", "label": "X"}]', "external[0].files is missing; add it"),
    ],
)
def test_unusable_options(option: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", "--results", str(tmp_path), "--external", option]) == 2
    assert message in capsys.readouterr().err


def test_solutions_of_other_instances_are_refused(folder: ResultsFolder, theirs: ExternalMethod) -> None:
    """Where the study's set is at hand: a gap to a reference of other instances would be no gap."""
    path = folder.root / "datasets" / "test" / "CVRP-n9.npz"
    write_set(path, "CVRP", 9, 3, 1234)
    assert of_method(table_rows(results_of(folder, theirs), "in_distribution"), "external-nn")
    path.unlink()
    write_set(path, "CVRP", 9, 3, 77)
    with pytest.raises(DataError, match=r"CVRP-n9\.parquet solves another instance 0 than .*CVRP-n9\.npz holds"):
        table_rows(results_of(folder, theirs), "in_distribution")
