"""Which runs each experiment compares."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.studies import ROOT, study
from polarvrp.catalog import backbones
from polarvrp.catalog.backbones import BACKBONES
from polarvrp.catalog.experiments import EXPERIMENTS, ablations, tables
from polarvrp.catalog.methods import METHODS, method_of
from polarvrp.config.loading import load_study
from polarvrp.config.study import StudyConfig
from polarvrp.errors import ConfigError
from polarvrp.study.experiments import (
    ablation_runs,
    asked_runs,
    experiment_runs,
    is_compared,
    main_runs,
    masked_runs,
    study_runs,
    table_runs,
)
from polarvrp.study.runs import parse_run
from polarvrp.study.specs import train_spec


def test_main_tables_compare_the_seven_networks_of_the_paper(paper: StudyConfig) -> None:
    methods = [run.method for run in main_runs(paper)]
    assert sorted(set(methods)) == [
        "cada-shared-rl-s0",
        "filmmed-shared-po-s0",
        "moses-shared-rl-s0",
        "mtpomo-shared-rl-s0",
        "mvmoe-shared-rl-s0",
        "polarnet-ple-polar-s0",
        "routefinder-shared-rl-s0",
    ]
    assert len(methods) == 14
    assert {name for name in BACKBONES if method_of(name)} == {run.backbone for run in main_runs(paper)}


def test_quick_trains_22_runs(quick: StudyConfig) -> None:
    runs = study_runs(quick)
    assert len(runs) == 22
    grids = [run for table in ("training_paradigms", "encoder_settings") for run in experiment_runs(quick, table)]
    assert {run.backbone for run in grids} == {"polarnet"} and {run.num_customers for run in grids} == {10}
    assert len(set(ablation_runs(quick)) - set(runs)) == 32


def test_paper_names_every_ablation(paper: StudyConfig) -> None:
    assert set(ablation_runs(paper)) <= set(study_runs(paper))
    assert len(experiment_runs(paper, "training_paradigms")) == len(experiment_runs(paper, "encoder_settings")) == 12
    assert {run.num_customers for run in ablation_runs(paper)} == {50}


@pytest.mark.parametrize(
    ("sweep", "expected"),
    [
        (
            "temperature",
            [
                f"polarnet-shared-{paradigm}-n50{alpha}-s0"
                for alpha in ("-alpha0.01", "-alpha0.03", "", "-alpha0.07", "-alpha0.09")
                for paradigm in ("po", "polar")
            ],
        ),
        ("refined_tours", [f"polarnet-shared-polar-n50{k}-s0" for k in ("", "-k2", "-k3", "-k4", "-k5")]),
        ("task_experts", [f"polarnet-ple-polar-n50{kappa}-s0" for kappa in ("-kappa1", "-kappa2", "", "-kappa4")]),
        ("refinement_start", ["polarnet-ple-polar-n50-ls0-s0", "polarnet-ple-polar-n50-s0"]),
    ],
)
def test_sweeps_are_those_of_the_paper(paper: StudyConfig, sweep: str, expected: list[str]) -> None:
    assert [run.name for run in experiment_runs(paper, sweep)] == expected


def test_sweep_follows_a_changed_default(tmp_path: Path) -> None:
    changed = study(tmp_path, scale="paper", training={"temperature": 0.03})
    names = [run.name for run in experiment_runs(changed, "temperature")]
    assert "polarnet-shared-po-n50-alpha0.05-s0" in names and "polarnet-shared-po-n50-alpha0.03-s0" not in names
    assert len(names) == 10


def test_transfer_uses_one_size(paper: StudyConfig) -> None:
    for experiment in ("zero_shot", "set_x"):
        assert {run.num_customers for run in experiment_runs(paper, experiment)} == {100}


def test_networks_with_flags_that_no_training_set_are_tested_without_them_too(
    paper: StudyConfig, quick: StudyConfig, tmp_path: Path
) -> None:
    """Of the main tables the paper's own with PLE; the others have flags of what they saw, or none."""
    runs = main_runs(paper)
    assert {run.stem for run in masked_runs(paper, runs)} == {"polarnet-ple-polar"}
    names = ["polarnet-shared-polar-n50-s0", "mtpomo_ablation-ple-rl-n50-s0", "polarnet-ple-polar-n50-all-s0"]
    assert [run.stem for run in masked_runs(paper, map(parse_run, names))] == ["mtpomo_ablation-ple-rl"]
    for other in (quick, study(tmp_path, scale="paper", evaluation={"mask_unseen_flags": True})):
        assert masked_runs(other, runs) == []


def test_each_seed_trains_each_run(tmp_path: Path) -> None:
    seeds = study_runs(study(tmp_path, scale="quick", seeds=[0, 4]))
    assert len(seeds) == 44 and {run.seed for run in seeds} == {0, 4}


def test_tables_list_other_ablations_only_when_at_hand(quick: StudyConfig) -> None:
    cell = parse_run("mvmoe_ablation-shared-po-n10-s0")
    swept = parse_run("polarnet-ple-polar-n10-kappa2-s0")
    assert cell not in table_runs(quick, "training_paradigms")
    assert cell in table_runs(quick, "training_paradigms", [cell, swept])
    assert swept not in table_runs(quick, "training_paradigms", [cell, swept])
    assert set(table_runs(quick, "in_distribution", [cell, swept])) == {*main_runs(quick), cell, swept}
    assert table_runs(quick, "task_experts") == experiment_runs(quick, "task_experts")


def test_runs_are_asked_for_by_the_targets_that_make_them(paper: StudyConfig) -> None:
    every = set(study_runs(paper))
    assert asked_runs(paper, ()) == asked_runs(paper, {"tables"}) == every
    assert asked_runs(paper, {"results/tables/in_distribution.parquet"}) == asked_runs(paper, {"datasets"}) == set()
    assert asked_runs(paper, {"ablations", "datasets"}) == set(ablation_runs(paper)) < every


def test_registries_agree() -> None:
    for method in METHODS.values():
        assert method.source or method.encoder in BACKBONES[str(method.backbone)].encoders
    assert set(ablations()) <= set(tables())


@pytest.mark.parametrize(("name", "kind"), [("training_paradigms", "grid"), ("temperature", "sweep")])
def test_a_record_that_lacks_what_its_runs_come_from_is_refused(
    paper: StudyConfig, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    without: dict[str, Any] = {kind: None}
    monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], **without))
    with pytest.raises(ConfigError, match=f"experiment {name} is no {kind}; its record must have one"):
        experiment_runs(paper, name)


def test_installed_packages_are_searched_for_backbones_once(paper: StudyConfig) -> None:
    """A search takes as long as hundreds of names; a dry run makes thousands."""
    study_runs(paper)
    searches = backbones._installed_backbones.cache_info().misses
    study_runs(paper)
    assert backbones._installed_backbones.cache_info().misses == searches


def test_configurations_beyond_the_paper(paper: StudyConfig) -> None:
    every = load_study(ROOT / "config/beyond/all_variants.yaml", ROOT / "config")
    assert {run.name for run in study_runs(every)} == {f"polarnet-ple-polar-n{n}-all-s0" for n in (50, 100)}
    early = load_study(ROOT / "config/beyond/refinement_from_start.yaml", ROOT / "config")
    names = {run.name for run in study_runs(early)}
    assert names == {"polarnet-ple-polar-n50-s0", "polarnet-ple-polar-n50-ls0-s0", "polarnet-ple-polar-n100-s0"}
    for name in names & {run.name for run in study_runs(paper)}:
        assert train_spec(early, parse_run(name)) == train_spec(paper, parse_run(name))
    assert train_spec(early, parse_run("polarnet-ple-polar-n50-ls0-s0"))["training"]["refinement_start_epoch"] == 0


def test_tables_of_the_paper_leave_runs_on_all_variants_out() -> None:
    seen, every = parse_run("polarnet-ple-polar-n50-s0"), parse_run("polarnet-ple-polar-n50-all-s0")
    for name in ("encoder_settings", "task_experts", "training_cost"):
        assert [is_compared(run, EXPERIMENTS[name]) for run in (seen, every)] == [True, False]


def test_tables_find_the_runs_that_the_study_makes_for_them(paper: StudyConfig) -> None:
    """And no other of the runs that any experiment compares."""
    whole = paper.replace(grid_backbones=backbones.grid_backbones())
    every = {run for name in EXPERIMENTS for run in experiment_runs(whole, name)}
    for name, record in EXPERIMENTS.items():
        if record.grid or record.sweep or record.methods:
            made = set(experiment_runs(whole, name))
            sizes = {run.num_customers for run in made}
            found = {run for run in every if is_compared(run, record) and run.num_customers in sizes}
            assert made == found, name
