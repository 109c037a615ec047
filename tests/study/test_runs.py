"""Names of runs: one name a model."""

import re

import pytest

from polarvrp.config.study import StudyConfig
from polarvrp.config.training import StageConfig, TrainConfig
from polarvrp.errors import ConfigError
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS
from polarvrp.study import runs
from polarvrp.study import specs as jobs
from polarvrp.study.experiments import study_runs
from polarvrp.study.runs import RunSpec, parse_run
from polarvrp.study.specs import train_spec

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
