"""Grids, sweeps and training costs: which runs belong, which means are taken, over what."""

import math

import pandas as pd
import pytest

from helpers.results_folder import ResultsFolder, table_rows
from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.errors import DataError
from polarvrp.problem.variants import TRAINING_VARIANTS
from polarvrp.tables.build import build_table, print_experiment
from polarvrp.tables.sources import Results
from polarvrp.tables.training_cost import epoch_costs


@pytest.fixture
def quick(folder: ResultsFolder) -> Results:
    return Results(folder.root, "quick")


def test_paradigms_compare_default_runs_of_the_smaller_size(folder: ResultsFolder, quick: Results) -> None:
    for run, gap in {
        "polarnet-ple-rl-n10-s0": 4.0,
        "polarnet-ple-polar-n10-s0": 2.0,
        "mtpomo_ablation-shared-po-n10-s0": 3.0,
        "polarnet-ple-polar-n10-kappa2-s0": 9.0,  # belongs to a sweep
        "polarnet-shared-polar-n10-s0": 9.0,  # belongs to the grid of encoders
        "mtpomo-shared-rl-n10-s0": 9.0,  # belongs to the main table
        "polarnet-ple-po-n20-s0": 9.0,  # of the larger size
    }.items():
        folder.evaluate(run, gap, variants=("OVRP", "CVRP", "VRPTW"))
    rows = table_rows(quick, "training_paradigms")
    assert [row["variant"] for row in rows[:3]] == ["CVRP", "VRPTW", "OVRP"]
    assert {(row["backbone"], row["paradigm"]): round(row["gap_percent"], 6) for row in rows} == {
        ("mtpomo_ablation", "po"): 3.0,
        ("polarnet", "rl"): 4.0,
        ("polarnet", "polar"): 2.0,
    }
    assert len(rows) == 9 and {row["num_customers"] for row in rows} == {10}


def test_each_seed_has_its_row(folder: ResultsFolder, quick: Results) -> None:
    folder.evaluate("polarnet-ple-rl-n10-s0", 4.0)
    folder.evaluate("polarnet-ple-rl-n10-s7", 6.0)
    rows = table_rows(quick, "training_paradigms")
    assert {(row["seed"], round(row["gap_percent"], 6)) for row in rows} == {(0, 4.0), (7, 6.0)}
    assert [row["seed"] for row in rows[:4]] == [0, 7, 0, 7]


def test_encoders_come_with_their_parameters(folder: ResultsFolder, quick: Results) -> None:
    for encoder, parameters in (("shared", 100), ("deep", 300), ("ple", 320)):
        folder.evaluate(f"polarnet-{encoder}-polar-n10-s0", 4.0, variants=("CVRP",))
        folder.train(f"polarnet-{encoder}-polar-n10-s0", parameters=parameters)
    folder.evaluate("polarnet-ple-po-n10-s0", 9.0, variants=("CVRP",))
    assert [(row["encoder"], row["parameters"]) for row in table_rows(quick, "encoder_settings")] == [
        ("shared", 100),
        ("deep", 300),
        ("ple", 320),
    ]


def test_temperature_sweep_takes_its_default_from_the_training(folder: ResultsFolder, quick: Results) -> None:
    for run, gap, alpha in (
        ("polarnet-shared-po-n10-s0", 5.0, 0.05),
        ("polarnet-shared-polar-n10-s0", 4.0, 0.05),
        ("polarnet-shared-po-n10-alpha0.01-s0", 7.0, 0.01),
        ("polarnet-shared-polar-n10-alpha0.09-s0", 6.0, 0.09),
        ("polarnet-shared-polar-n10-k2-s0", 9.0, 0.05),
    ):
        folder.evaluate(run, gap, variants=("CVRP", "OVRP"))
        folder.train(run, temperature=alpha)
    rows = table_rows(quick, "temperature")
    assert [(row["alpha"], row["paradigm"], round(row["mean_gap_percent"], 6)) for row in rows] == [
        (0.01, "po", 7.0),
        (0.05, "po", 5.0),
        (0.05, "polar", 4.0),
        (0.09, "polar", 6.0),
    ]
    assert {row["variants"] for row in rows} == {2}


@pytest.mark.parametrize(
    ("name", "column", "default", "changed"),
    [
        ("refined_tours", "refined_tours_k", "polarnet-shared-polar-n10-s0", "polarnet-shared-polar-n10-k5-s0"),
        ("task_experts", "task_experts_kappa", "polarnet-ple-polar-n10-s0", "polarnet-ple-polar-n10-kappa5-s0"),
        ("refinement_start", "refinement_start_epoch", "polarnet-ple-polar-n10-s0", "polarnet-ple-polar-n10-ls5-s0"),
    ],
)
def test_sweeps_average_gaps_over_variants_and_split_epoch_times(
    folder: ResultsFolder, quick: Results, name: str, column: str, default: str, changed: str
) -> None:
    folder.evaluate(default, [float(i) for i in range(16)], variants=TRAINING_VARIANTS)
    folder.evaluate(changed, 3.0, variants=("CVRP",))
    folder.train(default, epoch_seconds=(10.0, 12.0, 40.0), refined=(0, 0, 64), memory=(1.0, 1.0, 1.0))
    folder.train(changed, epoch_seconds=(50.0,), refined=(64,), memory=(1.0,))
    expected = {"refined_tours_k": 1, "task_experts_kappa": 3, "refinement_start_epoch": 250}[column]
    by_value = {row[column]: row for row in table_rows(quick, name)}
    assert set(by_value) == {expected, 5}
    assert by_value[expected]["mean_gap_percent"] == pytest.approx(7.5)
    assert by_value[expected]["epoch_seconds_without_ls"] == pytest.approx(11.0)
    assert by_value[expected]["epoch_seconds_with_ls"] == pytest.approx(40.0)
    assert by_value[5]["epoch_seconds_without_ls"] is None
    assert by_value[5]["mean_gap_percent"] is None, "of fewer variants than the other"


def test_one_value_alone_is_no_sweep(folder: ResultsFolder, quick: Results) -> None:
    folder.evaluate("polarnet-ple-polar-n10-s0", 3.0)
    folder.train("polarnet-ple-polar-n10-s0")
    assert table_rows(quick, "task_experts") == []


def test_training_that_recorded_no_specification_is_named(folder: ResultsFolder, quick: Results) -> None:
    for run in ("polarnet-ple-polar-n10-s0", "polarnet-ple-polar-n10-kappa2-s0"):
        folder.evaluate(run, 3.0)
        folder.train(run)
    (folder.root / "models" / "polarnet-ple-polar-n10-s0" / "metadata.json").write_text("{}")
    with pytest.raises(DataError, match=r"metadata.json has no spec.model.task_experts; train the run again"):
        table_rows(quick, "task_experts")


def test_training_cost_has_the_papers_four_trainings_in_its_order(folder: ResultsFolder, quick: Results) -> None:
    for size in (20, 10):
        for stem in ("polarnet-shared-rl", "polarnet-ple-rl", "polarnet-ple-polar", "polarnet-shared-polar"):
            folder.train(f"{stem}-n{size}-s0", epoch_seconds=(1800.0, 5400.0), memory=(3.0, 4.5))
    folder.train("polarnet-deep-polar-n10-s0")
    folder.train("polarnet-ple-polar-n10-kappa2-s0")
    rows = table_rows(quick, "training_cost")
    assert [(row["num_customers"], row["method"]) for row in rows] == [
        (size, f"polarnet-{end}-s0")
        for size in (10, 20)
        for end in ("ple-polar", "shared-polar", "ple-rl", "shared-rl")
    ]
    assert (rows[0]["epoch_seconds"], rows[0]["total_hours"], rows[0]["peak_memory_gb"]) == (3600.0, 2.0, 4.5)


def test_training_on_a_cpu_has_no_peak_memory(folder: ResultsFolder, quick: Results) -> None:
    folder.train("polarnet-ple-polar-n10-s0", memory=(None, None))
    assert table_rows(quick, "training_cost")[0]["peak_memory_gb"] is None


def test_epochs_without_refinement_have_no_refined_mean() -> None:
    costs = epoch_costs(pd.DataFrame({"seconds": [2.0, 4.0], "refined_tours": [None, float("nan")]}))
    assert costs["epoch_seconds"] == costs["epoch_seconds_without_ls"] == 3.0
    assert math.isnan(costs["epoch_seconds_with_ls"])


def test_a_seed_that_lacks_a_variant_leaves_the_average_open(folder: ResultsFolder, quick: Results) -> None:
    folder.evaluate("polarnet-ple-rl-n10-s0", 4.0, variants=("CVRP", "OVRP"))
    folder.evaluate("polarnet-ple-rl-n10-s1", 6.0, variants=("CVRP",))
    gaps = {(row["variant"], row["seed"]): row["gap_percent"] for row in table_rows(quick, "training_paradigms")}
    assert gaps == {
        key: pytest.approx(gap) for key, gap in {("CVRP", 0): 4.0, ("CVRP", 1): 6.0, ("OVRP", 0): 4.0}.items()
    }
    (table,) = print_experiment(build_table(quick, record := EXPERIMENTS["training_paradigms"]), record)
    assert [list(row) for row in table.text.to_numpy()] == [
        ["CVRP", "5.000 ± 1.414%"],
        ["OVRP", "4.000%"],
        ["Average", "–"],
    ]


def test_an_open_average_has_no_deviation(folder: ResultsFolder, quick: Results) -> None:
    """Two seeds have both variants, a third lacks one."""
    for seed, variants in enumerate((("CVRP", "OVRP"), ("CVRP", "OVRP"), ("CVRP",))):
        folder.evaluate(f"polarnet-ple-rl-n10-s{seed}", 4.0 + 2 * seed, variants=variants)
    (table,) = print_experiment(build_table(quick, record := EXPERIMENTS["training_paradigms"]), record)
    assert [list(row) for row in table.text.to_numpy()] == [
        ["CVRP", "6.000 ± 2.000%"],
        ["OVRP", "5.000 ± 1.414%"],
        ["Average", "–"],
    ]
