"""Gap against time: every effort of every method, in the paper's units."""

import shutil

import pytest

from helpers.results_folder import ResultsFolder, table_rows
from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.tables.build import build_table, build_tables, print_experiment
from polarvrp.tables.figures import draw_figure
from polarvrp.tables.sources import Results

RUN = "polarnet-ple-polar-n10-s0"


@pytest.fixture
def quick(folder: ResultsFolder) -> Results:
    """Ours without symmetries (4 %) and with (2 %), OR-Tools in a tenth of its limit (6 %) and in all of it (3 %)."""
    results = Results(folder.root, "quick")

    def solve(method: str, gap: float, seconds: float, instances: int = 2) -> None:
        for variant in ("CVRP", "OVRP"):
            folder.solve(method, variant, 10, [10 + gap / 10] * instances, seconds=seconds)

    def move(found: str, wanted: str) -> None:
        (folder.root / wanted).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder.root / found, folder.root / wanted)

    solve(RUN, 4.0, 0.002)
    move(f"evaluations/test/{RUN}", f"evaluations/plain/{RUN}")
    solve("ortools", 6.0, 1.0, instances=1)
    move("references/test/ortools", "references/limits/ortools-0.1")
    solve("pyvrp", 0.0, 10.0)
    solve("ortools", 3.0, 10.0)
    solve(RUN, 2.0, 0.016)
    solve("polarnet-deep-polar-n10-s0", 9.0, 0.016)  # no method of the main tables
    return results


def test_a_row_an_effort(quick: Results) -> None:
    """A thousand instances of 10 s take 625 s on 16 cores."""
    rows = table_rows(quick, "gap_by_time")
    found = [(row["method"], row["effort"], round(row["gap_percent"], 9), row["seconds_per_1000"]) for row in rows]
    assert found == [
        ("pyvrp", "its limit", 0.0, 625.0),
        ("ortools", "0.1 of its limit", 6.0, 62.5),
        ("ortools", "its limit", 3.0, 625.0),
        ("polarnet-ple-polar-s0", "×1", 4.0, pytest.approx(2.0)),
        ("polarnet-ple-polar-s0", "×8", 2.0, pytest.approx(16.0)),
    ]
    assert [(row["instances"], row["left_out"], row["variants"], row["reference"]) for row in rows[1:3]] == [
        (2, 0, 2, "pyvrp"),
        (4, 0, 2, "pyvrp"),
    ]


def test_instances_without_a_solution_are_counted(quick: Results, folder: ResultsFolder) -> None:
    folder.solve("ortools", "CVRP", 10, [None, 10.5], seconds=10.0)
    experiment = EXPERIMENTS["gap_by_time"]
    frame = build_table(quick, experiment)
    whole = frame[(frame["method"] == "ortools") & (frame["effort"] == "its limit")].iloc[0]
    assert (whole["instances"], whole["left_out"], whole["gap_percent"]) == (4, 1, pytest.approx(4.0))
    (table,) = print_experiment(frame, experiment)
    assert "its limit, 1 left out" in table.text.to_numpy()


def test_a_mean_over_fewer_variants_is_left_open(quick: Results, folder: ResultsFolder) -> None:
    """As where solvers were stopped on the way through the variants; a time of 1,000 instances is still one."""
    (folder.root / "references/test/ortools/OVRP-n10.parquet").unlink()
    rows = {(row["method"], row["effort"]): row for row in table_rows(quick, "gap_by_time")}
    row = rows["ortools", "its limit"]
    assert (row["variants"], row["gap_percent"], row["seconds_per_1000"]) == (1, None, 625.0)
    assert rows["ortools", "0.1 of its limit"]["gap_percent"] == pytest.approx(6.0)


def test_runs_that_none_of_the_compared_methods_has_are_listed(folder: ResultsFolder) -> None:
    """As in a study that trains on all variants, which the names of its runs say."""
    run = "polarnet-ple-polar-n10-all-s0"
    folder.evaluate(run, 3.0, variants=("CVRP",))
    results = Results(folder.root, "quick", runs=(run,))
    rows = {row["method"]: row["gap_percent"] for row in table_rows(results, "gap_by_time")}
    assert rows == {"pyvrp": 0.0, "polarnet-ple-polar-all-s0": pytest.approx(3.0)}
    build_tables(results, ["gap_by_time"])
    drawn = draw_figure(results, EXPERIMENTS["gap_by_time"])
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["PyVRP", "polarnet-ple-polar-all"]


def test_it_is_printed_and_drawn(quick: Results) -> None:
    build_tables(quick, ["gap_by_time"])
    experiment = EXPERIMENTS["gap_by_time"]
    (table,) = print_experiment(build_table(quick, experiment), experiment)
    assert table.text.to_numpy().tolist()[-1] == ["Ours", "×8", "2.000%", "16s"]
    (axes,) = (figure := draw_figure(quick, experiment)).axes
    lines = {
        name.get_text(): line.get_xydata().round(6).tolist()
        for name, line in zip(figure.legends[0].get_texts(), axes.get_lines(), strict=True)
    }
    assert lines["OR-Tools"] == [[62.5, 6.0], [625.0, 3.0]] and lines["Ours"] == [[2.0, 4.0], [16.0, 2.0]]
    assert axes.get_xscale() == "log" and axes.get_ylabel() == "gap to our PyVRP costs (%)"
