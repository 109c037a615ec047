"""Models that come with the package as rows of the main tables."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from helpers.results_folder import ResultsFolder, table_rows
from polarvrp.errors import DataError
from polarvrp.references.published import published_costs
from polarvrp.study import shipped
from polarvrp.tables.build import build_tables
from polarvrp.tables.sources import Results

RUN = "polarnet-ple-polar-n{size}-all-s0"


@pytest.fixture
def ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "pretrained"
    monkeypatch.setattr(shipped, "SHIPPED", place)
    return place


def ship(place: Path, size: int, costs: Mapping[str, list[float]]) -> None:
    """A shipped model with evaluations of its own size and of two instances of Set-X."""
    folder, made = place / f"pretrained-n{size}", ResultsFolder(place / "made")
    run = RUN.format(size=size)
    for variant, values in costs.items():
        made.solve(run, variant, size, values, seconds=0.5)
    made.solve_set_x(run, {"X-n101-k25": (27591, 28000, 28010), "X-n106-k14": (26362, 27000, 27010)})
    (folder / "evaluations").mkdir(parents=True)
    for path in (*(made.root / "evaluations" / "test" / run).glob("*"), made.root / "set_x" / f"{run}.parquet"):
        shutil.move(path, folder / "evaluations" / ("set_x.parquet" if path.parent.name == "set_x" else path.name))
    (folder / "metadata.json").write_text(json.dumps({"run": run}), encoding="utf-8")
    (folder / "weights.safetensors").write_bytes(b"")


def rows_of(results: Results, table: str, size: int) -> dict[tuple[str, str], tuple[float, str, int]]:
    """Gap, reference and number of instances by variant and method, of one size."""
    rows = [row for row in table_rows(results, table) if row["num_customers"] == size]
    keys = ("gap_percent", "reference", "instances")
    return {(row["variant"], row["method"]): tuple(row[key] for key in keys) for row in rows}


def test_what_ships_stands_beside_the_published_costs_of_its_size(folder: ResultsFolder, ships: Path) -> None:
    """At any scale, over the published instances that it was evaluated on."""
    five = {name: [1.05 * cost for cost in published_costs(name, 50)[:3]] for name in ("CVRP", "OVRP", "MDVRP")}
    ship(ships, 50, five)
    folder.evaluate("polarnet-ple-polar-n10-s0", 30.0, variants=("CVRP", "MDVRP"))
    quick = Results(folder.root, "quick")
    rows = rows_of(quick, "in_distribution", 50)
    assert rows["CVRP", "shipped-n50"] == (pytest.approx(5.0), "published-pyvrp", 3)
    assert {variant for variant, _ in rows} == {"CVRP"}  # what the study has
    assert rows["CVRP", "published-pyvrp"] == (0.0, "published-pyvrp", 1000)
    assert set(rows_of(quick, "in_distribution", 10)) == {("CVRP", "polarnet-ple-polar-s0"), ("CVRP", "pyvrp")}
    assert ("MDVRP", "shipped-n50") in rows_of(quick, "zero_shot", 50)
    build_tables(quick, ["in_distribution", "paper_comparison"])
    text = quick.layout.table("in_distribution", "md").read_text(encoding="utf-8")
    assert "| Ours (shipped, n=50) |" in text and "Models marked as shipped come with this package" in text
    found = {(row["row"], row["column"]): row for row in table_rows(quick, "paper_comparison")}
    cell = found["CVRP-n50", "shipped-n50 gap_percent"]
    assert (cell["paper"], cell["ours"]) == (0.717, pytest.approx(5.0))
    assert ("CVRP-n100", "shipped-n50 gap_percent") not in found
    assert found["CVRP-n50", "polarnet-ple-polar gap_percent"]["ours"] is None


def test_a_size_without_published_costs_is_what_the_study_evaluates(folder: ResultsFolder, ships: Path) -> None:
    ship(ships, 20, {"CVRP": [11.0] * 5})
    folder.evaluate("polarnet-ple-polar-n20-s0", 30.0, variants=("CVRP",))
    quick = Results(folder.root, "quick")
    assert ("CVRP", "shipped-n20") not in rows_of(quick, "in_distribution", 20)
    folder.solve(RUN.format(size=20), "CVRP", 20, [10.3, 10.5])
    own = quick.layout.shipped_evaluation("pretrained-n20", "CVRP", 20)
    own.parent.mkdir(parents=True)
    shutil.move(folder.root / "evaluations" / "test" / RUN.format(size=20) / own.name, own)
    (folder.root / "evaluations" / "test" / RUN.format(size=20)).rmdir()
    assert rows_of(quick, "in_distribution", 20)["CVRP", "shipped-n20"] == (pytest.approx(4.0), "pyvrp", 2)
    assert rows_of(Results(folder.root, "paper"), "in_distribution", 20) == {}


def test_published_costs_stand_beside_what_ships_alone(folder: ResultsFolder, ships: Path) -> None:
    """A study of another seed, whose gaps are to its own PyVRP, left an evaluation of its own test sets."""
    costs = [float(cost) for cost in published_costs("CVRP", 50)[:3]]
    ship(ships, 50, {"CVRP": [1.05 * cost for cost in costs]})
    folder.evaluate("polarnet-ple-polar-n10-s0", 30.0, variants=("CVRP",))
    folder.solve("pyvrp", "CVRP", 50, costs)
    folder.solve(RUN.format(size=50), "CVRP", 50, [1.5 * cost for cost in costs])
    quick = Results(folder.root, "quick")
    own = quick.layout.shipped_evaluation("pretrained-n50", "CVRP", 50)
    own.parent.parent.mkdir()
    shutil.move(folder.root / "evaluations" / "test" / RUN.format(size=50), own.parent)
    found = rows_of(quick, "in_distribution", 50)["CVRP", "shipped-n50"]
    assert found == (pytest.approx(5.0), "published-pyvrp", 3)
    other_seed = Results(folder.root, "quick", reference_name="pyvrp")
    found = rows_of(other_seed, "in_distribution", 50)["CVRP", "shipped-n50"]
    assert found == (pytest.approx(50.0), "pyvrp", 3)


@pytest.mark.parametrize(("tested", "best", "other"), [(2, "10.000%", "5.000%"), (3, "5.000%", "10.000%")])
def test_bold_marks_compare_equal_numbers_of_instances(
    folder: ResultsFolder, ships: Path, tested: int, best: str, other: str
) -> None:
    """Beside a shipped model that was tested on three instances."""
    costs = published_costs("CVRP", 50)[:3]
    ship(ships, 50, {"CVRP": [1.05 * cost for cost in costs]})
    folder.solve("polarnet-ple-polar-n50-s0", "CVRP", 50, [1.1 * cost for cost in costs[:tested]])
    laptop = Results(folder.root, "laptop")
    build_tables(laptop, ["in_distribution"])
    text = laptop.layout.table("in_distribution", "md").read_text(encoding="utf-8")
    assert f"**{best}**" in text and f"**{other}**" not in text and other in text
    assert ("are left out of the bold marks" in text) == (tested < 3)


def test_what_ships_is_of_no_other_test_sets(folder: ResultsFolder, ships: Path) -> None:
    """Gaps to our own PyVRP may be of any draw of instances."""
    ship(ships, 50, {"CVRP": [11.0]})
    folder.evaluate("polarnet-ple-polar-n50-s0", 30.0, variants=("CVRP",))
    own = Results(folder.root, "quick", reference_name="pyvrp")
    assert set(rows_of(own, "in_distribution", 50)) == {("CVRP", "polarnet-ple-polar-s0"), ("CVRP", "pyvrp")}
    folder.solve("best_known", "CVRP", 50, [9.0, 9.0])
    best = Results(folder.root, "quick", reference_name="best_known")
    assert ("CVRP", "shipped-n50") not in rows_of(best, "in_distribution", 50)


def test_set_x_lists_what_the_study_solved(folder: ResultsFolder, ships: Path) -> None:
    ship(ships, 50, {})
    folder.solve_set_x("cada-shared-rl-n10-s0", {"X-n106-k14": (26362, 29000, 29010)})
    rows = table_rows(Results(folder.root, "quick"), "set_x")
    assert [(row["instance"], row["method"], row["trained_on"], row["cost"]) for row in rows] == [
        ("X-n106-k14", "cada-shared-rl-s0", 10, 29000),
        ("X-n106-k14", "shipped-n50", 50, 27000),
    ]


def test_what_ships_is_of_no_seed_of_the_study(folder: ResultsFolder, ships: Path) -> None:
    ship(ships, 50, {"CVRP": [1.05 * cost for cost in published_costs("CVRP", 50)[:3]]})
    folder.evaluate("polarnet-ple-polar-n10-s1", 30.0, variants=("CVRP",))
    folder.solve_set_x("polarnet-ple-polar-n10-s1", {"X-n106-k14": (26362, 29000, 29010)})
    quick = Results(folder.root, "quick")
    build_tables(quick, ["in_distribution", "set_x"])
    for name in ("in_distribution", "set_x"):
        text = quick.layout.table(name, "md").read_text(encoding="utf-8")
        assert "shipped" in text and "Seed 1." in text and "standard deviation" not in text


def test_alone_it_is_no_result(folder: ResultsFolder, ships: Path) -> None:
    ship(ships, 50, {"CVRP": [11.0]})
    quick = Results(folder.root, "quick")
    assert table_rows(quick, "in_distribution") == [] and table_rows(quick, "set_x") == []


def test_evaluations_of_another_model_are_refused(folder: ResultsFolder, ships: Path) -> None:
    ship(ships, 50, {"CVRP": [11.0]})
    (ships / "pretrained-n50" / "metadata.json").write_text('{"run": "cada-shared-rl-n50-s0"}', encoding="utf-8")
    folder.evaluate("polarnet-ple-polar-n10-s0", 30.0, variants=("CVRP",))
    with pytest.raises(DataError, match=r"pretrained-n50/evaluations/CVRP-n50.parquet"):
        table_rows(Results(folder.root, "quick"), "in_distribution")
