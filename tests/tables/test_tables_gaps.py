"""Tables of gaps: right reference, right instances, right order, nothing filled in."""

from typing import Any

import pyarrow as pa
import pytest

from helpers.results_folder import ResultsFolder, table_rows
from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.errors import ConfigError, DataError
from polarvrp.files import write_parquet
from polarvrp.references.published import published_costs
from polarvrp.study.layout import UNSEEN_SPLITS
from polarvrp.tables.build import build_tables
from polarvrp.tables.figures import draw_figure
from polarvrp.tables.sources import MissingResultsError, Results

OURS = "polarnet-ple-polar"


def cell(rows: list[dict[str, Any]], **where: Any) -> dict[str, Any]:
    found = [row for row in rows if all(row[key] == value for key, value in where.items())]
    assert len(found) == 1
    return found[0]


@pytest.fixture
def quick(folder: ResultsFolder) -> Results:
    return Results(folder.root, "quick")


def test_gap_is_the_mean_of_instance_gaps_beside_the_gap_of_means(folder: ResultsFolder, quick: Results) -> None:
    folder.solve("pyvrp", "CVRP", 10, [10.0, 20.0, 50.0])
    folder.solve(f"{OURS}-n10-s0", "CVRP", 10, [11.0, 22.0, 44.0], seconds=0.25)
    row = cell(table_rows(quick, "in_distribution"), method=f"{OURS}-s0")
    assert row["gap_percent"] == pytest.approx(8 / 3)
    assert row["gap_of_means_percent"] == pytest.approx(-3.75)
    assert row["objective"] == pytest.approx(77 / 3)
    assert row["seconds"] == pytest.approx(0.75)
    assert (row["instances"], row["left_out"], row["reference"], row["scale"]) == (3, 0, "pyvrp", "quick")


@pytest.mark.parametrize("reference", [[10.0, 20.0, None], [10.0, 20.0]])
def test_instance_without_reference_is_left_out_and_counted(
    folder: ResultsFolder, quick: Results, reference: list[float | None]
) -> None:
    folder.solve("pyvrp", "CVRP", 10, reference)
    folder.solve(f"{OURS}-n10-s0", "CVRP", 10, [11.0, 22.0, 44.0])
    row = cell(table_rows(quick, "in_distribution"), method=f"{OURS}-s0")
    assert (row["gap_percent"], row["objective"]) == (pytest.approx(10.0), pytest.approx(16.5))
    assert (row["instances"], row["left_out"]) == (2, 1)


@pytest.mark.parametrize(("cost", "said"), [(0.0, "0"), (-1.5, "-1.5")])
def test_a_file_of_references_that_no_gap_can_be_taken_to_is_named(
    folder: ResultsFolder, quick: Results, cost: float, said: str
) -> None:
    folder.solve("pyvrp", "CVRP", 10, [10.0, cost])
    folder.solve(f"{OURS}-n10-s0", "CVRP", 10, [11.0, 11.0])
    message = (
        rf"test/pyvrp/CVRP-n10\.parquet: reference costs must be positive, got {said} for instance 1; solve it again"
    )
    with pytest.raises(DataError, match=message):
        table_rows(quick, "in_distribution")


def test_without_reference_file_the_objective_stands_alone(folder: ResultsFolder, quick: Results) -> None:
    folder.solve(f"{OURS}-n10-s0", "CVRP", 10, [11.0, None])
    row = cell(table_rows(quick, "in_distribution"), method=f"{OURS}-s0")
    assert (row["objective"], row["gap_percent"], row["reference"]) == (11.0, None, None)
    assert (row["instances"], row["left_out"]) == (1, 1)


def test_paper_scale_measures_against_the_published_costs_of_the_first_instances(folder: ResultsFolder) -> None:
    published = published_costs("VRPTW", 50, "pyvrp")
    folder.solve("pyvrp", "VRPTW", 50, [20.0, 20.0])
    folder.solve(f"{OURS}-n50-s0", "VRPTW", 50, [1.1 * cost for cost in published[:2]])
    rows = table_rows(Results(folder.root, "paper"), "in_distribution")
    row = cell(rows, method=f"{OURS}-s0")
    assert (row["gap_percent"], row["reference"]) == (pytest.approx(10.0), "published-pyvrp")
    assert [row["method"] for row in rows] == [
        "published-pyvrp",
        "pyvrp",
        "published-ortools",
        f"{OURS}-s0",
    ]
    assert cell(rows, method="published-pyvrp")["gap_percent"] == 0.0
    # The gap that the paper prints for OR-Tools on this set.
    assert cell(rows, method="published-ortools")["gap_percent"] == pytest.approx(0.347, abs=5e-4)
    assert cell(rows, method="published-ortools")["seconds"] is None


def test_published_sizes_are_measured_against_the_published_costs_at_any_scale(folder: ResultsFolder) -> None:
    costs = published_costs("VRPTW", 50, "pyvrp")
    folder.solve("pyvrp", "VRPTW", 20, [20.0])
    folder.solve(f"{OURS}-n20-s0", "VRPTW", 20, [22.0])
    folder.solve(f"{OURS}-n50-s0", "VRPTW", 50, [1.2 * costs[0]])
    rows = table_rows(Results(folder.root, "laptop"), "in_distribution")
    ours = {
        row["num_customers"]: (row["reference"], row["gap_percent"]) for row in rows if row["method"] == f"{OURS}-s0"
    }
    assert ours == {20: ("pyvrp", pytest.approx(10.0)), 50: ("published-pyvrp", pytest.approx(20.0))}


def test_beside_our_own_references_nothing_published_is_shown(folder: ResultsFolder) -> None:
    """Test sets of another seed have no published solutions."""
    folder.solve("pyvrp", "VRPTW", 50, [40.0])
    folder.solve(f"{OURS}-n50-s0", "VRPTW", 50, [44.0])
    rows = table_rows(Results(folder.root, "paper", reference_name="pyvrp"), "in_distribution")
    assert {row["method"]: row["gap_percent"] for row in rows} == {"pyvrp": 0.0, f"{OURS}-s0": pytest.approx(10.0)}


def test_costs_of_other_instances_are_not_compared_with_the_published(folder: ResultsFolder) -> None:
    """As after a change of the test sets' seed: the published costs, shifted by one instance."""
    costs = published_costs("CVRP", 50, "pyvrp")[1:]
    folder.solve(f"{OURS}-n50-s0", "CVRP", 50, costs)
    with pytest.raises(DataError, match=f"{OURS}-s0 on CVRP with 50 customers: costs far below the published ones"):
        table_rows(Results(folder.root, "paper"), "in_distribution")


def test_paper_scale_ignores_sizes_that_other_scales_left_behind(folder: ResultsFolder) -> None:
    folder.solve("pyvrp", "CVRP", 10, [10.0])
    folder.solve(f"{OURS}-n10-s0", "CVRP", 10, [11.0])
    assert table_rows(Results(folder.root, "paper"), "in_distribution") == []


def test_rows_follow_the_papers_orders(folder: ResultsFolder, quick: Results) -> None:
    for variant in ("VRPB", "OVRP", "CVRP"):
        for size in (20, 10):
            for method in ("ortools", "pyvrp"):
                folder.solve(method, variant, size, [10.0])
            for stem in ("mvmoe_ablation-shared-rl", OURS, "mtpomo-shared-rl"):
                folder.solve(f"{stem}-n{size}-s0", variant, size, [11.0])
    rows = table_rows(quick, "in_distribution")
    methods = ["pyvrp", "ortools", "mtpomo-shared-rl-s0", f"{OURS}-s0", "mvmoe_ablation-shared-rl-s0"]
    assert [(row["variant"], row["num_customers"], row["method"]) for row in rows] == [
        (variant, size, method) for variant in ("CVRP", "OVRP", "VRPB") for size in (10, 20) for method in methods
    ]


def test_variants_are_split_between_the_two_tables(folder: ResultsFolder, quick: Results) -> None:
    folder.evaluate(f"{OURS}-n10-s0", 5.0, variants=("CVRP", "VRPMB", "MDVRP"))
    assert {row["variant"] for row in table_rows(quick, "in_distribution")} == {"CVRP"}
    assert {row["variant"] for row in table_rows(quick, "zero_shot")} == {"VRPMB", "MDVRP"}


def test_only_the_named_variants_are_looked_at(folder: ResultsFolder) -> None:
    """As where a study of more variants, whose models were others, left its solutions in the same folder."""
    run = f"{OURS}-n10-s0"
    folder.evaluate(run, 5.0, variants=("CVRP", "OVRP", "MDVRP", "VRPMB"))
    folder.solve(run, "VRPMB", 10, [10.1] * 2, split="test-published")
    part = Results(folder.root, "quick", variants=("CVRP", "MDVRP"))
    for table, variants in (
        ("in_distribution", {"CVRP"}),
        ("zero_shot", {"MDVRP"}),
        ("training_paradigms", {"CVRP"}),
    ):
        assert {row["variant"] for row in table_rows(part, table)} == variants
    assert {row["variants"] for row in table_rows(part, "gap_by_time")} == {1}
    solvers = Results(folder.root, "quick", runs=(), variants=("OVRP",))
    assert [(row["variant"], row["method"]) for row in table_rows(solvers, "in_distribution")] == [("OVRP", "pyvrp")]


def test_unseen_variants_are_listed_by_both_protocols(folder: ResultsFolder, quick: Results) -> None:
    folder.evaluate(f"{OURS}-n10-s0", 5.0, variants=("MDVRP", "VRPMB"))
    for variant, cost in (("VRPMB", 10.1), ("MDVRP", 10.2)):
        folder.solve(f"{OURS}-n10-s0", variant, 10, [cost] * 2, split="test-published")
    cells = [
        (row["variant"], row["method"], row["protocol"], round(row["gap_percent"], 6))
        for row in table_rows(quick, "zero_shot")
    ]
    assert cells == [
        ("VRPMB", "pyvrp", "strict", 0.0),
        ("VRPMB", f"{OURS}-s0", "strict", 5.0),
        ("VRPMB", f"{OURS}-s0", "published", 1.0),
        ("MDVRP", "pyvrp", "strict", 0.0),
        ("MDVRP", f"{OURS}-s0", "strict", 5.0),
        ("MDVRP", f"{OURS}-s0", "published", 2.0),
    ]
    build_tables(quick, ["zero_shot"])
    text = quick.layout.table("zero_shot", "md").read_text(encoding="utf-8")
    assert "Columns with † are by the rules of the published environments" in text
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert lines[0] == ["Variant", "PyVRP Obj.", "PyVRP Gap", "Ours Obj.", "Ours Gap", "Ours Obj.†", "Ours Gap†"]
    assert lines[2] == ["VRPMB", "10.00", "\\*", "**10.50**", "**5.00%**", "**10.10**", "**1.00%**"]
    assert lines[-1] == ["Average", "–", "\\*", "–", "**5.00%**", "–", "**1.50%**"]
    dots = draw_figure(quick, EXPERIMENTS["zero_shot"]).axes[0].collections[-1].get_offsets()
    assert sorted(dots[:, 0].tolist()) == pytest.approx([5.0, 5.0])


def test_unseen_variants_are_printed_with_and_without_flags(folder: ResultsFolder, quick: Results) -> None:
    """Columns of their own, which compete with those of the same rules."""
    runs = ("cada-shared-rl-n10-s0", f"{OURS}-n10-s0")
    folder.solve("pyvrp", "MDVRP", 10, [10.0])
    costs = {
        "test": (10.4, 10.5),
        "test-masked": (10.3,),
        "test-published": (10.2, 10.1),
        "test-published-masked": (10.3,),
    }
    for split, of_split in costs.items():
        for run, cost in zip(reversed(runs), reversed(of_split), strict=False):
            folder.solve(run, "MDVRP", 10, [cost], split=split)
    ours = [row for row in table_rows(quick, "zero_shot") if row["method"] == f"{OURS}-s0"]
    assert [(row["protocol"], round(row["gap_percent"], 6)) for row in ours] == [
        ("strict", 5.0),
        ("strict-masked", 3.0),
        ("published", 1.0),
        ("published-masked", 3.0),
    ]
    build_tables(quick, ["zero_shot"])
    text = quick.layout.table("zero_shot", "md").read_text(encoding="utf-8")
    assert "Columns with ‡ hide the flags" in text
    head, _, row, _ = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line)
    assert (
        dict(zip(head, row, strict=True)).items()
        >= {
            "CaDA Gap": "4.00%",
            "Ours Gap": "5.00%",
            "Ours Gap‡": "**3.00%**",
            "CaDA Gap†": "2.00%",
            "Ours Gap†": "**1.00%**",
            "Ours Gap†‡": "3.00%",
        }.items()
    )
    assert r"$\ddagger$" in quick.layout.table("zero_shot", "tex").read_text(encoding="utf-8")


@pytest.mark.parametrize("changed", [{"model": {"fingerprint": "another"}}, {"augmentations": 1}, {"mb_sets_b": False}])
def test_what_another_model_solved_without_flags_is_left_out(
    folder: ResultsFolder, quick: Results, changed: dict[str, Any]
) -> None:
    folder.solve("pyvrp", "MDVRP", 10, [10.0])
    made: dict[str, Any] = {"model": {"fingerprint": "abc"}, "augmentations": 8}
    for split, said in (("test", made), ("test-masked", made | changed), ("test-published-masked", made)):
        folder.solve(f"{OURS}-n10-s0", "MDVRP", 10, [11.0], split=split, metadata=said)
    protocols = [row["protocol"] for row in table_rows(quick, "zero_shot") if row["method"] != "pyvrp"]
    assert protocols == ["strict", "published-masked"]


def test_protocols_that_a_study_does_not_ask_for_are_no_rows(folder: ResultsFolder) -> None:
    """As where an earlier one tested without flags too, and left its solutions in the same folder."""
    folder.solve("pyvrp", "MDVRP", 10, [10.0])
    for split in UNSEEN_SPLITS.values():
        folder.solve(f"{OURS}-n10-s0", "MDVRP", 10, [11.0], split=split)
    for asked, listed in ((None, [*UNSEEN_SPLITS]), (("published", "strict"), ["strict", "published"])):
        rows = table_rows(Results(folder.root, "quick", protocols=asked), "zero_shot")
        assert [row["protocol"] for row in rows if row["method"] == f"{OURS}-s0"] == listed


def test_what_another_model_than_the_present_one_solved_is_refused(folder: ResultsFolder, quick: Results) -> None:
    """A table says by which specification its runs were trained, which is not that of an earlier model's solutions."""
    run = f"{OURS}-n10-s0"
    folder.train(run)
    folder.solve(run, "CVRP", 10, [11.0], metadata={"model": {"fingerprint": f"print-of-{run}"}})
    assert [row["objective"] for row in table_rows(quick, "in_distribution")] == [11.0]
    earlier = {"model": {"fingerprint": "another"}}
    folder.solve(run, "OVRP", 10, [11.0], metadata=earlier)
    message = f"is by a model of fingerprint another, but the run's is print-of-{run}; make it again"
    for table in ("in_distribution", "gap_by_time", "training_paradigms"):
        with pytest.raises(DataError, match=rf"{run}/OVRP-n10\.parquet {message}"):
            table_rows(quick, table)
    costs = pa.table({"instance": ["X-n101-k25"], "best_known": [27591.0], "cost": [28810.0]})
    write_parquet(quick.layout.set_x(run), costs, earlier)
    with pytest.raises(DataError, match=rf"set_x/{run}\.parquet {message}"):
        table_rows(quick, "set_x")


def test_solvers_are_shown_where_runs_are(folder: ResultsFolder, quick: Results) -> None:
    folder.evaluate(f"{OURS}-n10-s0", 5.0, variants=("CVRP",))
    folder.solve("pyvrp", "OVRP", 10, [10.0])
    assert {row["variant"] for row in table_rows(quick, "in_distribution")} == {"CVRP"}


def test_solvers_alone_make_a_table(folder: ResultsFolder, quick: Results) -> None:
    folder.solve("pyvrp", "OVRP", 10, [10.0])
    folder.solve("ortools", "OVRP", 10, [10.5])
    assert [row["gap_percent"] for row in table_rows(quick, "in_distribution")] == [0.0, pytest.approx(5.0)]


def test_only_the_named_runs_are_read_and_each_must_exist(folder: ResultsFolder) -> None:
    folder.evaluate(f"{OURS}-n10-s0", 5.0, variants=("CVRP",))
    folder.evaluate(f"{OURS}-n10-s1", 7.0, variants=("CVRP",))
    rows = table_rows(Results(folder.root, "quick", runs=(f"{OURS}-n10-s1",)), "in_distribution")
    assert [row["method"] for row in rows] == ["pyvrp", f"{OURS}-s1"]
    with pytest.raises(MissingResultsError, match="polarnet-ple-rl-n10-s0 does not exist"):
        table_rows(Results(folder.root, "quick", runs=("polarnet-ple-rl-n10-s0",)), "in_distribution")
    with pytest.raises(ConfigError, match="names no run"):
        table_rows(Results(folder.root, "quick", runs=("polarnet",)), "in_distribution")


def test_truncated_file_is_named(folder: ResultsFolder, quick: Results) -> None:
    folder.evaluate(f"{OURS}-n10-s0", 5.0, variants=("CVRP",))
    path = folder.root / "evaluations" / "test" / f"{OURS}-n10-s0" / "CVRP-n10.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"CVRP-n10\.parquet is no complete Parquet file"):
        table_rows(quick, "in_distribution")


def test_set_x_has_both_forms_of_the_cost_and_grows_by_instance(folder: ResultsFolder, quick: Results) -> None:
    folder.solve_set_x(f"{OURS}-n10-s0", {"X-n1001-k43": (72355, 80000, 80010), "X-n101-k25": (27591, 28810, 28823)})
    rows = table_rows(quick, "set_x")
    assert [row["instance"] for row in rows] == ["X-n101-k25", "X-n1001-k43"]
    assert rows[0]["gap_percent"] == pytest.approx(4.418, abs=5e-4)
    assert rows[0]["published_gap_percent"] == pytest.approx(100 * 1232 / 27591)
    assert (rows[0]["best_known"], rows[0]["cost"], rows[0]["method"]) == (27591, 28810, f"{OURS}-s0")


def test_two_sizes_of_one_method_on_set_x_must_be_told_apart(folder: ResultsFolder) -> None:
    for size in (10, 20):
        folder.solve_set_x(f"{OURS}-n{size}-s0", {"X-n101-k25": (27591, 28810, 28823)})
    with pytest.raises(DataError, match="choose one with --runs"):
        table_rows(Results(folder.root, "quick"), "set_x")
    assert len(table_rows(Results(folder.root, "quick", runs=(f"{OURS}-n20-s0",)), "set_x")) == 1
