"""Specifications: one text a job, which changes when its result does and not otherwise."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.studies import study
from polarvrp.catalog.scales import SCALES
from polarvrp.config.study import StudyConfig
from polarvrp.errors import ConfigError
from polarvrp.files import write_text
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS
from polarvrp.study import shipped
from polarvrp.study import specs as jobs
from polarvrp.study.experiments import study_runs
from polarvrp.study.layout import Layout
from polarvrp.study.runs import parse_run
from polarvrp.study.specs import canonical, fingerprint, train_spec

LATER_SETTINGS = [
    ("starts", "all", 5),
    ("refiner", "pyvrp", "gpu"),
    ("refinement_ramp", 0.0, 0.1),
    ("decoder_ramp_epochs", 1, 6),
    ("mixed_batches", True, False),
    ("stages", [], [{"epochs": 1}, {}]),
]
"""Settings that specifications leave out at their defaults, with the default and another value."""


def test_order_of_keys_changes_no_specification(tmp_path: Path) -> None:
    own = {"scale": "paper", "training": {"epochs": 5, "decay": 0.5}, "set_x": {"starts": 3, "instances": 2}}
    turned = {key: dict(reversed(value.items())) if isinstance(value, dict) else value for key, value in own.items()}
    first, second = study(tmp_path, **own), study(tmp_path, **dict(reversed(turned.items())))
    for run in study_runs(first):
        assert canonical(train_spec(first, run)) == canonical(train_spec(second, run))
        assert canonical(jobs.evaluation_spec(first, run)) == canonical(jobs.evaluation_spec(second, run))
    spec = train_spec(first, study_runs(first)[0])
    assert fingerprint(dict(reversed(spec.items()))) == fingerprint(spec)


def specifications(config: StudyConfig) -> dict[str, str]:
    """All specifications of a study by a name of the job."""
    specs: dict[str, Any] = {}
    for run in study_runs(config):
        specs[f"train {run.name}"] = train_spec(config, run)
        specs[f"evaluate {run.name}"] = jobs.evaluation_spec(config, run)
        specs[f"set-x {run.name}"] = jobs.set_x_spec(config, run)
    for split in ("test", "validation"):
        specs[f"dataset {split}"] = jobs.dataset_spec(config, split, "CVRP", 10)
        specs[f"reference {split}"] = jobs.reference_spec(config, split, "pyvrp", "CVRP", 10)
    return {name: canonical(spec) for name, spec in specs.items()}


def changed(before: StudyConfig, after: StudyConfig) -> set[str]:
    old, new = specifications(before), specifications(after)
    assert old.keys() == new.keys()
    return {name for name in old if old[name] != new[name]}


def jobs_of(config: StudyConfig, wanted: Any) -> set[str]:
    names = [run.name for run in study_runs(config) if wanted(run)]
    return {f"{job} {name}" for name in names for job in ("train", "evaluate", "set-x")}


def test_temperature_changes_preference_trainings_only(tmp_path: Path, quick: StudyConfig) -> None:
    usual, other = (
        study(tmp_path, scale="quick", training={"protocol": "paper", **changes})
        for changes in ({}, {"temperature": 0.04})
    )
    assert changed(usual, other) == jobs_of(usual, lambda run: run.paradigm != "rl")


def test_start_of_refinement_changes_polar_only(tmp_path: Path, quick: StudyConfig) -> None:
    other = study(tmp_path, scale="quick", training={"refinement_start_epoch": 0})
    assert changed(quick, other) == jobs_of(quick, lambda run: run.paradigm == "polar")


def test_test_seed_changes_no_training(tmp_path: Path, quick: StudyConfig) -> None:
    other = study(tmp_path, scale="quick", datasets={"test_seed": 7})
    evaluations = {f"evaluate {run.name}" for run in study_runs(quick)}
    assert changed(quick, other) == evaluations | {"dataset test", "reference test"}


def test_time_limit_changes_references_only(tmp_path: Path, quick: StudyConfig) -> None:
    sizes = [{"num_customers": n, "batch_size": 16, "reference_seconds": 0.2} for n in (10, 20)]
    other = study(tmp_path, scale="quick", sizes=sizes)
    assert changed(quick, other) == {"reference test", "reference validation"}


@pytest.mark.parametrize(
    ("constant", "prefixes"),
    [
        ("DATASET_CODE_VERSION", {"dataset", "reference", "train", "evaluate", "set-x"}),
        ("REFERENCE_CODE_VERSION", {"reference"}),
        ("TRAIN_CODE_VERSION", {"train", "evaluate", "set-x"}),
        ("EVALUATION_CODE_VERSION", {"evaluate", "set-x"}),
    ],
)
def test_bumped_version_reaches_those_that_use_it(
    quick: StudyConfig, monkeypatch: pytest.MonkeyPatch, constant: str, prefixes: set[str]
) -> None:
    before = specifications(quick)
    monkeypatch.setattr(jobs, constant, 99)
    after = specifications(quick)
    assert {name.split()[0] for name in before if before[name] != after[name]} == prefixes
    assert all(before[name] != after[name] for name in before if name.split()[0] in prefixes)


def test_pictures_and_the_report_follow_a_code_version_of_their_own(
    quick: StudyConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another way of drawing makes them anew, and no table."""

    def made() -> dict[str, str]:
        runs = study_runs(quick)[:2]
        return {
            "figure": canonical(jobs.figure_spec(quick, "training_curves", runs)),
            "report": canonical(jobs.report_spec(quick, quick.experiments)),
            "table": canonical(jobs.table_spec(quick, "training_cost", runs)),
        }

    before = made()
    assert len(set(before.values())) == 3
    monkeypatch.setattr(jobs, "FIGURE_CODE_VERSION", 99)
    after = made()
    assert {name for name in before if before[name] != after[name]} == {"figure", "report"}


def test_a_picture_follows_the_runs_that_it_shows(quick: StudyConfig) -> None:
    first, second = study_runs(quick)[:2]
    assert jobs.figure_spec(quick, "embeddings", [first]) != jobs.figure_spec(quick, "embeddings", [first, second])


def test_tables_that_list_shipped_models_follow_their_solutions(
    tmp_path: Path, quick: StudyConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which an upgrade may bring under the same weights."""
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path)
    folder = tmp_path / "pretrained-n50"
    for place in ("evaluations/CVRP-n50.parquet", "evaluations/set_x.parquet", "local_search/CVRP-n50.parquet"):
        write_text(folder / place, "solved once")
    (folder / shipped.WEIGHTS).write_bytes((2).to_bytes(8, "little") + b"{}")

    def specs_of_tables() -> dict[str, str]:
        names = ("in_distribution", "zero_shot", "set_x", "training_cost")
        return {name: canonical(jobs.table_spec(quick, name, [])) for name in names}

    before = specs_of_tables()
    write_text(folder / "local_search" / "CVRP-n50.parquet", "solved again")  # no table reads it
    assert specs_of_tables() == before
    write_text(folder / "evaluations" / "CVRP-n50.parquet", "solved again")
    after = specs_of_tables()
    assert [name for name in before if before[name] == after[name]] == ["training_cost"]


def test_flags_of_unseen_variants_change_their_evaluations_only(tmp_path: Path, quick: StudyConfig) -> None:
    run = parse_run("polarnet-ple-polar-n10-s0")
    for key, value in (("mask_unseen_flags", True), ("mb_sets_b", False)):
        other = study(tmp_path, scale="quick", evaluation={key: value})
        assert changed(quick, other) == set()
        assert jobs.zero_shot_spec(other, run) == jobs.zero_shot_spec(quick, run) | {key: value}


def test_evaluations_with_and_without_flags_are_those_of_studies_with_either(
    tmp_path: Path, quick: StudyConfig
) -> None:
    """Who asks for both keeps what was evaluated with flags, and who evaluated without them depends on the same."""
    run = parse_run("polarnet-ple-polar-n10-s0")
    both, masked = (study(tmp_path, scale="quick", evaluation={"mask_unseen_flags": value}) for value in ("both", True))
    assert jobs.zero_shot_spec(both, run) == jobs.zero_shot_spec(quick, run)
    assert jobs.masked_spec(both, run) == jobs.zero_shot_spec(masked, run) != jobs.zero_shot_spec(quick, run)


def test_swapped_values_change_the_specification(tmp_path: Path) -> None:
    first = study(tmp_path, scale="quick", training={"epochs": 3, "instances_per_epoch": 7})
    second = study(tmp_path, scale="quick", training={"epochs": 7, "instances_per_epoch": 3})
    run = parse_run("polarnet-ple-polar-n10-s0")
    assert canonical(train_spec(first, run)) != canonical(train_spec(second, run))


def test_specification_describes_network_and_training(paper: StudyConfig) -> None:
    spec = json.loads(canonical(train_spec(paper, parse_run("polarnet-ple-polar-n100-kappa2-s3"))))
    model, training = jobs.parse_train_spec(spec)
    assert (model.backbone, model.encoder, model.task_experts, model.num_customers) == ("polarnet", "ple", 2, 100)
    assert (training.paradigm, training.num_customers, training.batch_size, training.seed) == ("polar", 100, 128, 3)
    assert training.milestones == (270, 295)


def test_specification_leaves_out_what_is_never_read(paper: StudyConfig) -> None:
    for name, left_out in (
        ("polarnet-shared-rl-n50-s0", {"temperature", "refined_tours", "refinement_start_epoch"}),
        ("polarnet-shared-po-n50-s0", {"refined_tours", "refinement_start_epoch"}),
        ("polarnet-shared-polar-n50-s0", set()),
    ):
        spec = train_spec(paper, parse_run(name))
        assert {"temperature", "refined_tours", "refinement_start_epoch"} - set(spec["training"]) == left_out
        assert "task_experts" not in spec["model"] and "refinement_workers" not in spec["training"]


def test_settings_at_their_defaults_are_absent_and_change_no_fingerprint(tmp_path: Path, quick: StudyConfig) -> None:
    for key, default, other in LATER_SETTINGS:
        assert changed(quick, study(tmp_path, scale="quick", training={key: default})) == set()
        assert changed(quick, study(tmp_path, scale="quick", training={key: other})) != set()


def test_the_decoder_ramp_changes_trainings_of_decoders_that_have_one_and_start_from_scratch(
    tmp_path: Path, quick: StudyConfig
) -> None:
    longer = study(tmp_path, scale="quick", training={"decoder_ramp_epochs": 6})
    trained_anew = changed(quick, longer)
    assert {run.backbone for run in study_runs(quick) if f"train {run.name}" in trained_anew} == {"polarnet"}
    going_on, no_less = (
        study(tmp_path, scale="quick", training={"initial_weights": "pretrained-n20", **own})
        for own in ({}, {"decoder_ramp_epochs": 6})
    )
    assert changed(going_on, no_less) == set()


def test_starts_change_every_training(tmp_path: Path, quick: StudyConfig) -> None:
    fewer = study(tmp_path, scale="quick", training={"starts": 5})
    assert changed(quick, fewer) == jobs_of(quick, lambda _: True)
    _, training = jobs.parse_train_spec(train_spec(fewer, parse_run("polarnet-ple-polar-n10-s0")))
    assert training.starts == 5


CURRICULUM = [
    {"name": "small", "num_customers": 8, "paradigm": "po", "epochs": 3, "batch_size": 32, "starts": 4},
    {"name": "own size", "epochs": 1, "refinement_start_epoch": 0, "learning_rate": 0.0001, "milestones": [1]},
]


def test_a_curriculum_enters_the_specification_as_it_was_written(tmp_path: Path, quick: StudyConfig) -> None:
    staged = study(tmp_path, scale="quick", training={"stages": CURRICULUM})
    # MoSES keeps the stages of its authors
    assert changed(quick, staged) == jobs_of(quick, lambda run: run.backbone != "moses")
    spec = train_spec(staged, parse_run("polarnet-ple-polar-n10-s0"))
    assert json.loads(canonical(spec))["training"]["stages"] == CURRICULUM
    _, training = jobs.parse_train_spec(json.loads(canonical(spec)))
    first, last = training.for_stage(0), training.for_stage(1)
    assert (first.num_customers, first.paradigm, first.epochs, first.batch_size, first.starts) == (8, "po", 3, 32, 4)
    assert (first.learning_rate, first.milestones) == (training.learning_rate, training.milestones)
    assert (last.num_customers, last.paradigm, last.epochs, last.batch_size) == (10, "polar", 1, training.batch_size)
    assert (last.learning_rate, last.milestones, last.refinement_start_epoch) == (0.0001, (1,), 0)
    assert (training.stage_epochs, training.total_epochs) == ((3, 1), 4)
    assert first.total_epochs == 3


def test_a_stage_that_changes_nothing_is_none(tmp_path: Path, quick: StudyConfig) -> None:
    assert changed(quick, study(tmp_path, scale="quick", training={"stages": [{}]})) == set()
    assert changed(quick, study(tmp_path, scale="quick", training={"stages": [{}, {}]})) != set()


def test_a_run_reads_what_any_of_its_stages_reads(tmp_path: Path) -> None:
    staged = study(tmp_path, scale="quick", training={"stages": [{"paradigm": "polar"}, {"paradigm": None}]})
    plain = {"temperature", "refined_tours", "refinement_start_epoch"}
    assert plain <= set(train_spec(staged, parse_run("polarnet-ple-rl-n10-s0"))["training"])
    spec = train_spec(
        study(tmp_path, scale="quick", training={"stages": [{"paradigm": "rl"}, {}]}),
        parse_run("polarnet-ple-po-n10-s0"),
    )
    assert plain & set(spec["training"]) == {"temperature"}


def test_stages_of_a_run_on_all_variants_draw_from_all(tmp_path: Path) -> None:
    staged = study(tmp_path, scale="quick", training={"stages": [{"variants": ["CVRP"]}, {"epochs": 2}]})
    every = parse_run("polarnet-ple-polar-n10-all-s0")
    assert [len(stage["variants"]) for stage in train_spec(staged, every)["training"]["stages"]] == [1, 48]


def test_a_stage_of_a_run_on_all_variants_may_draw_from_the_papers(tmp_path: Path) -> None:
    """Where it names them; in a run on these they say nothing."""
    stages = [{"variants": list(TRAINING_VARIANTS), "epochs": 3}, {}]
    staged = study(tmp_path, scale="quick", training={"stages": stages})
    _, training = jobs.parse_train_spec(train_spec(staged, parse_run("polarnet-ple-polar-n10-all-s0")))
    assert [stage.variants for stage in training.stages] == [TRAINING_VARIANTS, tuple(VARIANTS)]
    spec = train_spec(staged, parse_run("polarnet-ple-polar-n10-s0"))
    assert spec["training"]["stages"] == [{"epochs": 3}, {}]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([{"epochs": 0}, {}], r"training.stages\[0\].epochs must be above 0, got 0"),
        ([{"num_customers": 5, "starts": 6}, {}], r"training.stages\[0\].starts must not exceed the 5 customers"),
        (
            [{}, {"num_customers": 20}],
            r"stages\[1\].num_customers must be that of the run's name in the last stage, 10",
        ),
        ([{}, {"paradigm": "po"}], r"stages\[1\].paradigm must be that of the run's name in the last stage, polar"),
        ([{"paradigm": "pollar"}, {}], r"training.stages\[0\].paradigm is 'pollar', .*; did you mean 'polar'"),
        ([{}, {"adapters": "single"}], r"stages cannot have adapters, which belong to moses alone"),
        ([{}, {"variants": ["CVRP"]}], r"stages must end with the variants of the run's name"),
        ([{}, {"variants": list(TRAINING_VARIANTS)}], r"stages must end with the variants of the run's name"),
        ([{"epoch": 3}], r"unknown key training.stages\[0\].epoch; did you mean 'epochs'"),
    ],
)
def test_impossible_stages_are_refused(tmp_path: Path, stages: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train_spec(study(tmp_path, scale="quick", training={"stages": stages}), parse_run("polarnet-ple-polar-n10-s0"))


def test_a_suffix_that_stages_take_the_place_of_is_refused(tmp_path: Path) -> None:
    run = parse_run("polarnet-ple-polar-n10-ls0-s0")
    staged = [{"paradigm": "po"}, {"refinement_start_epoch": 3}]
    message = "run polarnet-ple-polar-n10-ls0-s0: training.stages set refinement_start_epoch, so -ls would change"
    with pytest.raises(ConfigError, match=message):
        train_spec(study(tmp_path, scale="quick", training={"stages": staged}), run)
    plain = study(tmp_path, scale="quick", training={"stages": [{"paradigm": "po"}, {"epochs": 3}]})
    _, training = jobs.parse_train_spec(train_spec(plain, run))
    assert [training.for_stage(number).refinement_start_epoch for number in (0, 1)] == [0, 0]


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"starts": 1}, r"training.starts must be at least 2 or all, got 1"),
        ({"starts": 11}, r"training.starts must not exceed the 10 customers of an instance, got 11; write all"),
        ({"starts": 2, "refined_tours": 3}, r"refined_tours must not exceed the 2 tours of an instance, got 3"),
    ],
)
def test_impossible_starts_are_refused(tmp_path: Path, training: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train_spec(study(tmp_path, scale="quick", training=training), parse_run("polarnet-ple-polar-n10-s0"))


def test_tours_to_refine_are_counted_in_stages_that_refine(tmp_path: Path) -> None:
    run = parse_run("polarnet-ple-polar-n10-s0")
    few: dict[str, Any] = {"paradigm": "po", "starts": 2}
    staged = study(tmp_path, scale="quick", training={"refined_tours": 3, "stages": [few, {}]})
    _, training = jobs.parse_train_spec(train_spec(staged, run))
    assert (training.for_stage(0).starts, training.for_stage(1).refined_tours) == (2, 3)
    staged = study(tmp_path, scale="quick", training={"refined_tours": 3, "stages": [{"starts": 2}, {}]})
    with pytest.raises(
        ConfigError, match=r"stages\[0\].refined_tours must not exceed the 2 tours of an instance, got 3"
    ):
        train_spec(staged, run)


def test_a_run_of_the_workflow_goes_on_from_no_weights_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whatever name; the workflow would remove them before the training reads them."""
    monkeypatch.chdir(tmp_path)
    run, other = (parse_run(f"polarnet-ple-polar-n10-s{seed}") for seed in (0, 1))
    write_text(weights := Layout().weights(run.name), "x")
    for model in (run.name, str(weights), str(weights.parent)):
        own = study(tmp_path, scale="quick", training={"initial_weights": model})
        jobs.require_other_weights(own, other)
        with pytest.raises(ConfigError, match=f"run {run.name}: training.initial_weights are its own"):
            jobs.require_other_weights(own, run)
    jobs.require_other_weights(study(tmp_path, scale="quick"), run)


def test_size_that_the_study_does_not_name_takes_the_next_smaller_ones_settings(paper: StudyConfig) -> None:
    assert [jobs.size_config(paper, n).batch_size for n in (10, 50, 75, 100, 200)] == [256, 256, 256, 128, 128]


def test_chunks_cover_a_set(tmp_path: Path, paper: StudyConfig) -> None:
    starts = jobs.chunk_starts(paper, "test")
    assert len(starts) == 20 and starts[-1] + paper.references.chunk_instances == 1000
    uneven = study(tmp_path, scale="quick", datasets={"test_instances": 5}, references={"chunk_instances": 2})
    assert list(jobs.chunk_starts(uneven, "test")) == [0, 2, 4]


def test_subset_of_variants_is_part_of_the_validation(tmp_path: Path, quick: StudyConfig) -> None:
    run = parse_run("polarnet-ple-polar-n10-s0")
    part = study(tmp_path, scale="quick", variants=["VRPMB", "OVRP", "CVRP"])
    assert (part.training_variants, part.zero_shot_variants) == (("CVRP", "OVRP"), ("VRPMB",))
    assert train_spec(part, run)["validation"]["variants"] == ["CVRP", "OVRP"]
    assert "variants" not in train_spec(quick, run)["validation"]


def test_incomplete_specification_is_named() -> None:
    with pytest.raises(ConfigError, match="needs 'training', got only model"):
        jobs.parse_train_spec({"model": {}})


def test_only_sets_without_published_solutions_are_solved(tmp_path: Path) -> None:
    assert study(tmp_path, scale="laptop").solved_sizes == (20,)
    assert study(tmp_path, scale="paper").solved_sizes == ()
    own = study(tmp_path, scale="paper", datasets={"test_seed": 1})
    assert own.solved_sizes == (50, 100)  # other instances than the published ones
    sizes = {scale: study(tmp_path, scale=scale).reference_sizes for scale in SCALES}
    assert sizes == {"quick": (10, 20), "laptop": (20,), "paper": (50, 100)}


def test_nothing_heavy_is_imported_at_parse_time() -> None:
    code = (
        "import sys, polarvrp.study.specs, polarvrp.study.needs, polarvrp.training.tracking;"
        "print(sorted({'torch', 'numpy', 'pandas', 'pyarrow', 'ortools', 'pyvrp', 'wandb'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
