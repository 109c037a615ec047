"""The paper's numbers beside ours: right cells, right averages, nothing compared that does not correspond."""

import pytest

from polarvrp.catalog.backbones import grid_backbones
from polarvrp.tables.comparison import paper_comparison
from polarvrp.tables.gap_tables import in_distribution, set_x, zero_shot
from polarvrp.tables.paper import IN_DISTRIBUTION_ORDER, PAPER_TABLES, ZERO_SHOT_ORDER, read_paper
from polarvrp.tables.sources import Results
from polarvrp.tables.study_tables import sweep, training_cost, training_paradigms

OURS = "polarnet-ple-polar"


def lines(tables, scale="paper"):
    return {(row["table"], row["row"], row["column"]): row for row in paper_comparison(tables, scale)}


@pytest.fixture
def paper(folder):
    return Results(folder.root, "paper")


def test_without_results_every_number_of_the_paper_stands_alone():
    rows = paper_comparison({}, "quick")
    assert len({(row["table"], row["row"], row["column"]) for row in rows}) == len(rows)
    assert all(row["ours"] is None and row["difference"] is None for row in rows)
    printed = sum(
        isinstance(value, float)
        for name in PAPER_TABLES
        for row in read_paper(name)
        for key, value in row.items()
        if key not in {"num_customers", "best_known", "epsilon_percent", "layer", "alpha"}
        and not key.endswith(("_k", "_kappa"))
    )
    # Solvers' cells stand twice (ours and published), and so does the default schedule; averages come on top.
    solvers = sum(
        isinstance(row[key], float)
        for name in ("in_distribution", "zero_shot")
        for row in read_paper(name)
        if row["method"] in {"PyVRP", "OR-Tools"}
        for key in ("objective", "gap_percent", "seconds_per_1000")
        if key in row
    )
    averages = sum("average" in row["row"] and row["table"] != "training_paradigms" for row in rows)
    assert len(rows) == printed + solvers + 1 + averages


def test_cells_and_averages_of_the_main_table(folder, paper):
    folder.root.mkdir(parents=True)
    for variant in IN_DISTRIBUTION_ORDER:
        folder.solve(f"{OURS}-n50-s0", variant, 50, [30.0, 30.0], seconds=0.002)
        folder.solve(f"{OURS}-n50-s1", variant, 50, [40.0, 40.0], seconds=0.004)
    rows = in_distribution(paper)
    found = lines({"in_distribution": rows})
    cell = found["in_distribution", "CVRP-n50", f"{OURS} objective"]
    assert (cell["paper"], cell["ours"]) == (10.446, pytest.approx(35.0))  # mean over the two seeds
    assert cell["difference"] == pytest.approx(35.0 - 10.446)
    assert found["in_distribution", "CVRP-n50", f"{OURS} seconds_per_1000"]["ours"] == pytest.approx(3.0)
    assert found["in_distribution", "CVRP-n100", f"{OURS} objective"]["ours"] is None
    average = found["in_distribution", "average-n50", f"{OURS} gap_percent"]
    assert average["paper"] == pytest.approx(1.192, abs=5e-4)
    mean = sum(row["gap_percent"] for row in rows if row["method"].startswith(OURS)) / 32
    assert average["ours"] == pytest.approx(mean)


def test_average_over_some_variants_is_none(folder, paper):
    folder.solve(f"{OURS}-n50-s0", "CVRP", 50, [20.0])
    found = lines({"in_distribution": in_distribution(paper)})
    assert found["in_distribution", "CVRP-n50", f"{OURS} gap_percent"]["ours"] is not None
    assert found["in_distribution", "average-n50", f"{OURS} gap_percent"]["ours"] is None


def test_known_mismatches_between_the_paper_and_the_published_files_show(folder, paper):
    """Printed objectives that the published files contradict: VRPBLTW of PyVRP, VRPL of OR-Tools."""
    for variant in IN_DISTRIBUTION_ORDER:
        folder.solve("pyvrp", variant, 50, [40.0])
    found = lines({"in_distribution": in_distribution(paper)})
    differences = {
        row["row"]: row["difference"]
        for row in found.values()
        if row["column"] == "published-pyvrp objective" and row["row"].endswith("n50")
    }
    assert differences.pop("VRPBLTW-n50") == pytest.approx(18.589 - 18.361, abs=1e-3)
    assert max(map(abs, differences.values())) < 6e-4
    gap = found["in_distribution", "VRPL-n50", "published-ortools gap_percent"]
    assert (gap["paper"], gap["ours"]) == (2.343, pytest.approx(1.762, abs=5e-4))


def test_zero_shot_average_of_the_published_solutions(folder, paper):
    for variant in ZERO_SHOT_ORDER:
        folder.solve("pyvrp", variant, 100, [40.0])
    found = lines({"zero_shot": zero_shot(paper)})
    assert found["zero_shot", "VRPMB-n100", "published-pyvrp objective"]["difference"] == pytest.approx(0.0, abs=5e-3)
    average = found["zero_shot", "average-n100", "published-ortools gap_percent"]
    assert average["paper"] == pytest.approx(8.59, abs=5e-3)
    assert average["ours"] is not None


def test_set_x_is_compared_in_the_papers_form_by_models_of_its_size(folder, paper):
    folder.solve_set_x(f"{OURS}-n100-s0", {"X-n101-k25": (27591, 28800, 28810)})
    found = lines({"set_x": set_x(paper)})
    cost = found["set_x", "X-n101-k25", f"{OURS} cost"]
    assert (cost["paper"], cost["ours"], cost["difference"]) == (28810, 28810, 0)
    assert found["set_x", "average", f"{OURS} gap_percent"]["ours"] is None
    small = lines({"set_x": [row | {"trained_on": 10} for row in set_x(paper)]})
    assert small["set_x", "X-n101-k25", f"{OURS} cost"]["ours"] is None


def test_ablations_are_compared_at_the_papers_size_only(folder, paper):
    default = "polarnet-ple-polar-n50-s0"
    for run, gap in ((default, 2.0), ("polarnet-ple-polar-n50-ls0-s0", 1.5), ("polarnet-ple-polar-n50-kappa2-s0", 3.0)):
        folder.evaluate(run, gap, reference=30.0)
        folder.train(run, epoch_seconds=(7200.0, 7200.0), refined=(0, 1))
    tables = {
        "training_paradigms": training_paradigms(paper),
        "refinement_start": sweep("refinement_start")(paper),
        "task_experts": sweep("task_experts")(paper),
        "training_cost": training_cost(paper),
    }
    mean = tables["task_experts"][1]["mean_gap_percent"]
    found = lines(tables)
    assert found["training_paradigms", "average polarnet", "polar"]["ours"] == pytest.approx(mean)
    assert found["refinement_start", "refinement_start_epoch=250", "mean_gap_percent"]["ours"] == pytest.approx(mean)
    assert found["refinement_start", "refinement_start_epoch=0", "mean_gap_percent"]["paper"] == 1.125
    assert found["task_experts", "task_experts_kappa=2", "epoch_seconds_with_ls"]["ours"] == 7200.0
    assert found["task_experts", "task_experts_kappa=4", "mean_gap_percent"]["ours"] is None
    assert found["training_cost", "POLAR+PLE-n50", "total_hours"]["ours"] == pytest.approx(4.0)
    other = {name: [row | {"num_customers": 10} for row in rows] for name, rows in tables.items()}
    assert all(row["ours"] is None for row in lines(other).values())


def test_analyses_are_compared_by_the_papers_own_columns():
    rows = [{"metric": "mean_cost_gap", "epsilon_percent": None, "po": 0.5, "polar": 0.6}]
    found = lines({"preference_margins": rows})
    assert found["preference_margins", "mean_cost_gap", "po"]["difference"] == pytest.approx(0.5 - 0.519)
    assert found["preference_margins", "cost_near_tie_percent epsilon_percent=0.1", "po"]["ours"] is None


def test_grid_backbones_end_with_ours():
    """The comparison takes the paper's mean gaps of paradigms from this one."""
    assert grid_backbones()[-1] == "polarnet"
