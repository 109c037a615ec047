"""Names of runs, runs of experiments, and specifications: one name a model, one text a specification."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from polarvrp.catalog import backbones
from polarvrp.catalog.backbones import BACKBONES
from polarvrp.catalog.experiments import EXPERIMENTS, ablations, tables
from polarvrp.catalog.methods import METHODS, method_of
from polarvrp.config.loading import load_study
from polarvrp.config.study import StudyConfig
from polarvrp.config.training import StageConfig, TrainConfig
from polarvrp.errors import ConfigError
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS
from polarvrp.study import runs
from polarvrp.study import specs as jobs
from polarvrp.study.experiments import ablation_runs, experiment_runs, main_runs, study_runs, table_runs
from polarvrp.study.runs import RunSpec, parse_run
from polarvrp.study.specs import canonical, fingerprint, train_spec
from polarvrp.tables.ablations import at_defaults
from polarvrp.tables.sweeps import in_sweep, sweep_of

ROOT = Path(__file__).parents[2]

LATER_SETTINGS = [
    ("starts", "all", 5),
    ("refiner", "pyvrp", "gpu"),
    ("refinement_ramp", 0.0, 0.1),
    ("stages", [], [{"epochs": 1}, {}]),
]
"""Settings that specifications leave out at their defaults, with the default and another value."""


def study(tmp_path: Path, **own: Any) -> StudyConfig:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(own or {"scale": "quick"}))
    return load_study(path, ROOT / "config")


@pytest.fixture
def quick(tmp_path: Path) -> StudyConfig:
    return study(tmp_path, scale="quick")


@pytest.fixture
def paper(tmp_path: Path) -> StudyConfig:
    return study(tmp_path, scale="paper")


NAMES = {
    "polarnet-ple-polar-n50-s0": RunSpec(backbone="polarnet", encoder="ple", paradigm="polar", num_customers=50),
    "filmmed-shared-po-n100-s3": RunSpec(
        backbone="filmmed", encoder="shared", paradigm="po", num_customers=100, seed=3
    ),
    "polarnet-shared-po-n50-alpha0.03-s0": RunSpec(
        backbone="polarnet", encoder="shared", paradigm="po", num_customers=50, temperature=0.03
    ),
    "mtpomo_ablation-ple-polar-n10-alpha0.1-k3-kappa2-ls0-s1": RunSpec(
        backbone="mtpomo_ablation",
        encoder="ple",
        paradigm="polar",
        num_customers=10,
        temperature=0.1,
        refined_tours=3,
        task_experts=2,
        refinement_start_epoch=0,
        seed=1,
    ),
    "polarnet-shared-po-n50-alpha0.00001-s0": RunSpec(
        backbone="polarnet", encoder="shared", paradigm="po", num_customers=50, temperature=1e-5
    ),
    "polarnet-shared-po-n50-alpha0.0312345678-s0": RunSpec(
        backbone="polarnet", encoder="shared", paradigm="po", num_customers=50, temperature=0.0312345678
    ),
    "polarnet-ple-polar-n50-ls0-all-s0": RunSpec(
        backbone="polarnet",
        encoder="ple",
        paradigm="polar",
        num_customers=50,
        refinement_start_epoch=0,
        variants="all",
    ),
    "polarnet-shared-po-n50-alpha10-s0": RunSpec(
        backbone="polarnet", encoder="shared", paradigm="po", num_customers=50, temperature=10.0
    ),
}


@pytest.mark.parametrize(("name", "run"), NAMES.items())
def test_name_and_run_say_the_same(name: str, run: RunSpec) -> None:
    assert run.name == name
    assert parse_run(name) == run


def test_method_leaves_out_the_size() -> None:
    assert parse_run("polarnet-ple-polar-n50-kappa2-s1").method == "polarnet-ple-polar-kappa2-s1"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("polarnet-ple-polar-n50", "did you mean polarnet-ple-polar-n50-s0"),
        ("polarnet", "names no run; a name is BACKBONE-ENCODER-PARADIGM"),
        ("polarnte-ple-polar-n50-s0", "unknown backbone 'polarnte'; did you mean 'polarnet'"),
        ("cada-ple-rl-n50-s0", "cada has no encoder 'ple'"),
        ("polarnet-ple-pollar-n50-s0", "unknown paradigm 'pollar'; did you mean 'polar'"),
        ("polarnet-ple-rl-n50-alpha0.03-s0", "-alpha belongs to paradigms po and polar"),
        ("polarnet-ple-po-n50-k2-s0", "-k belongs to paradigm polar"),
        ("polarnet-shared-polar-n50-kappa2-s0", "-kappa belongs to encoder ple"),
        ("polarnet-ple-po-n50-ls0-s0", "-ls belongs to paradigm polar"),
        # one model must not have two names
        ("polarnet-ple-polar-n50-alpha0.030-s0", "write it polarnet-ple-polar-n50-alpha0.03-s0"),
        ("polarnet-ple-polar-n050-s0", "write it polarnet-ple-polar-n50-s0"),
        ("polarnet-ple-polar-n50-kappa2-k3-s0", "names no run"),
    ],
)
def test_other_names_are_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_run(name)


def test_suffix_that_repeats_the_default_is_refused(quick: StudyConfig) -> None:
    for suffix in ("-alpha0.05", "-k1", "-kappa3", "-ls1"):
        with pytest.raises(ConfigError, match="leave it out of the name"):
            train_spec(quick, parse_run(f"polarnet-ple-polar-n10{suffix}-s0"))


def test_patterns_match_every_run_and_no_typo(paper: StudyConfig) -> None:
    pattern = re.compile(runs.run_pattern())
    for run in study_runs(paper):
        assert pattern.fullmatch(run.name)
        assert re.fullmatch(runs.stem_pattern(), run.stem) and re.fullmatch(runs.tail_pattern(), run.tail)
    for name in ("polarnte-ple-polar-n50-s0", "cada-ple-rl-n50-s0", "polarnet-ple-polar-n50", "mvmoe-deep-rl-n50-s0"):
        assert pattern.fullmatch(name) is None


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


def test_each_seed_trains_each_run(tmp_path: Path) -> None:
    seeds = study_runs(study(tmp_path, scale="quick", seeds=[0, 4]))
    assert len(seeds) == 44 and {run.seed for run in seeds} == {0, 4}


def test_tables_list_other_ablations_only_when_at_hand(quick: StudyConfig) -> None:
    cell = parse_run("mvmoe_ablation-shared-po-n10-s0")
    swept = parse_run("polarnet-ple-polar-n10-kappa2-s0")
    assert cell not in table_runs(quick, "training_paradigms")
    assert cell in table_runs(quick, "training_paradigms", [cell, swept])
    assert swept not in table_runs(quick, "training_paradigms", [cell, swept])
    assert set(table_runs(quick, "in_distribution", [cell, swept])) == {*study_runs(quick), cell, swept}
    assert table_runs(quick, "task_experts") == experiment_runs(quick, "task_experts")


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
        ([{"epoch": 3}], r"unknown key training.stages\[0\].epoch; did you mean 'epochs'"),
    ],
)
def test_impossible_stages_are_refused(tmp_path: Path, stages: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train_spec(study(tmp_path, scale="quick", training={"stages": stages}), parse_run("polarnet-ple-polar-n10-s0"))


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


def test_registries_agree() -> None:
    for method in METHODS.values():
        assert method.source or method.encoder in BACKBONES[str(method.backbone)].encoders
    assert set(ablations()) <= set(tables())


def test_installed_packages_are_searched_for_backbones_once(paper: StudyConfig) -> None:
    """A search takes as long as hundreds of names; a dry run makes thousands."""
    study_runs(paper)
    searches = backbones._installed_backbones.cache_info().misses
    study_runs(paper)
    assert backbones._installed_backbones.cache_info().misses == searches


def test_nothing_heavy_is_imported_at_parse_time() -> None:
    code = (
        "import sys, polarvrp.study.specs, polarvrp.study.experiments, polarvrp.training.tracking;"
        "print(sorted({'torch', 'numpy', 'pandas', 'pyarrow', 'ortools', 'pyvrp', 'wandb'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_run_on_all_variants_says_so_in_its_name_alone(paper: StudyConfig) -> None:
    seen, every = (parse_run(f"polarnet-ple-polar-n50{tail}-s0") for tail in ("", "-all"))
    (stage,) = train_spec(paper, every)["training"]["stages"]
    assert set(stage["variants"]) == set(VARIANTS)
    assert "stages" not in train_spec(paper, seen)["training"]
    assert every.method == "polarnet-ple-polar-all-s0"
    assert re.fullmatch(runs.run_pattern(), every.name) and re.fullmatch(runs.tail_pattern(), every.tail)
    without = {key: value for key, value in train_spec(paper, every)["training"].items() if key != "stages"}
    assert without == train_spec(paper, seen)["training"]


def test_stages_of_their_own_keep_their_variants(paper: StudyConfig) -> None:
    """MoSES learns its base and experts on what they are for; only its last stage draws from all."""
    stages = train_spec(paper, parse_run("moses-shared-rl-n50-all-s0"))["training"]["stages"]
    assert [len(stage["variants"]) for stage in stages] == [1, 1, 1, 1, 1, 48]


@pytest.mark.parametrize(
    ("variants", "expected"), [(TRAINING_VARIANTS, None), (("CVRP",), None), (tuple(reversed(VARIANTS)), "all")]
)
def test_what_a_training_draws_from_has_a_name(variants: tuple[str, ...], expected: str | None) -> None:
    stages = (StageConfig(variants=variants),)
    assert jobs.trained_on(TrainConfig(paradigm="po", num_customers=8, stages=stages)) == expected


def test_other_variants_have_no_name() -> None:
    stages = (StageConfig(variants=("CVRP", "MDVRP")),)
    with pytest.raises(ConfigError, match="this one also trains on MDVRP but not on all"):
        jobs.trained_on(TrainConfig(paradigm="po", num_customers=8, stages=stages))


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
    assert [at_defaults(run) for run in (seen, every)] == [True, False]
    sweep = sweep_of(EXPERIMENTS["task_experts"])
    assert [in_sweep(run, sweep) for run in (seen, every)] == [True, False]
