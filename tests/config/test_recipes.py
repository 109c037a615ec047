"""Recipes of the backbones' authors reach the specification of a training, and nothing else does."""

import re
from pathlib import Path

import pytest

from polarvrp.catalog.backbones import BACKBONES
from polarvrp.config.loading import load_study
from polarvrp.config.recipes import recipe_of
from polarvrp.config.study import StudyConfig
from polarvrp.config.training import TrainingRecipe
from polarvrp.errors import ConfigError
from polarvrp.study.runs import parse_run
from polarvrp.study.specs import parse_train_spec, train_spec

CONFIG = Path(__file__).parents[2] / "config"


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("paradigm", ["rl", "po", "polar"])
def test_every_backbone_and_paradigm_has_a_valid_training(name: str, paradigm: str) -> None:
    for size in (50, 100):
        run = parse_run(f"{name}-{BACKBONES[name].encoders[0]}-{paradigm}-n{size}-s0")
        _, training = parse_train_spec(train_spec(load_study(folder=CONFIG), run))
        assert training.optimizer == ("adam" if name in {"mtpomo", "mvmoe", "routefinder", "moses"} else "adamw")
        assert training.mixed_batches == (name not in {"mtpomo", "mvmoe"})
        assert training.normalize_rewards == (paradigm == "rl" and name in {"routefinder", "moses"})
        assert training.learning_rate == (1e-4 if (name, size) == ("cada", 100) else 3e-4)
        if paradigm != "rl":
            assert training.temperature == (0.03 if name == "filmmed" else 0.05)
        assert len(training.stages) == (6 if name == "moses" else 1)


def test_the_stages_of_moses() -> None:
    run = parse_run("moses-shared-rl-n50-s0")
    stages = parse_train_spec(train_spec(load_study(folder=CONFIG), run))[1].stages
    assert [stage.adapters for stage in stages] == ["none", *["single"] * 4, "mixture"]
    assert [stage.variants for stage in stages[:5]] == [("CVRP",), ("OVRP",), ("VRPTW",), ("VRPL",), ("VRPB",)]
    assert len(stages[5].variants) == 16


def test_a_suffix_wins_over_the_authors_temperature() -> None:
    run = parse_run("filmmed-shared-po-n50-alpha0.07-s0")
    assert parse_train_spec(train_spec(load_study(folder=CONFIG), run))[1].temperature == 0.07


def study_with(tmp_path: Path, **training: object) -> StudyConfig:
    """The packaged study with other values in section ``training``."""
    lines = "".join(f"  {key}: {value}\n" for key, value in training.items())
    own = tmp_path / "own.yaml"
    own.write_text(f"training:\n{lines}" if lines else "{}", encoding="utf-8")
    return load_study(own, CONFIG)


@pytest.mark.parametrize(
    ("name", "key", "ours", "theirs"),
    [
        ("filmmed-shared-po-n50-s0", "temperature", 0.1, 0.03),
        ("cada-shared-rl-n100-s0", "learning_rate", 0.001, 0.0001),
    ],
)
def test_a_value_that_a_recipe_would_override_is_refused_by_name(
    tmp_path: Path, name: str, key: str, ours: float, theirs: float
) -> None:
    run = parse_run(name)
    usual = getattr(TrainingRecipe(), key)
    message = (
        f"training.{key} is {ours:g}, but the authors of {run.backbone} train with {theirs:g}: "
        f"leave it at {usual:g}, or set training.protocol: paper"
    )
    with pytest.raises(ConfigError, match=re.escape(message)):
        train_spec(study_with(tmp_path, **{key: ours}), run)
    _, training = parse_train_spec(train_spec(study_with(tmp_path, **{key: ours}, protocol="paper"), run))
    assert getattr(training, key) == ours
    _, training = parse_train_spec(train_spec(study_with(tmp_path, **{key: theirs}), run))
    assert getattr(training, key) == theirs


def test_a_value_that_an_earlier_stage_alone_reads_is_refused_too(tmp_path: Path) -> None:
    study = study_with(tmp_path, temperature=0.1, stages="[{paradigm: po}, {}]")
    with pytest.raises(
        ConfigError, match=r"training\.temperature is 0\.1, but the authors of filmmed train with 0\.03"
    ):
        train_spec(study, parse_run("filmmed-shared-rl-n50-s0"))


def test_settings_that_a_recipe_says_nothing_about_and_suffixes_are_free(tmp_path: Path) -> None:
    study = study_with(tmp_path, temperature=0.1, weight_decay=0.01)
    for name in ("filmmed-shared-rl-n50-s0", "filmmed-shared-po-n50-alpha0.07-s0", "mtpomo-shared-po-n50-s0"):
        assert parse_train_spec(train_spec(study, parse_run(name)))[1].weight_decay == 0.01


def test_every_backbone_may_draw_one_variant_a_batch(tmp_path: Path) -> None:
    apart, usual = study_with(tmp_path, mixed_batches="false"), study_with(tmp_path)
    ours, theirs = parse_run("polarnet-ple-polar-n50-s0"), parse_run("mtpomo-shared-rl-n50-s0")
    for run in (ours, theirs):
        assert parse_train_spec(train_spec(apart, run))[1].mixed_batches is False
    assert train_spec(apart, ours) != train_spec(usual, ours)
    assert train_spec(apart, theirs) == train_spec(usual, theirs)


@pytest.mark.parametrize("name", BACKBONES)
def test_the_papers_protocol_is_one_for_all_backbones(tmp_path: Path, name: str) -> None:
    study, usual = study_with(tmp_path, protocol="paper"), study_with(tmp_path)
    run = parse_run(f"{name}-{BACKBONES[name].encoders[0]}-rl-n100-s0")
    spec = train_spec(study, run)
    _, training = parse_train_spec(spec)
    assert (training.optimizer, training.mixed_batches, training.normalize_rewards) == ("adamw", True, False)
    assert training.learning_rate == 0.0003
    assert len(training.stages) == (6 if name == "moses" else 1)
    assert "protocol" not in spec["training"]
    changed = name in {"mtpomo", "mvmoe", "routefinder", "moses", "cada"}
    assert (spec != train_spec(usual, run)) is changed


def test_a_users_own_backbone_follows_the_protocol() -> None:
    assert recipe_of("my_backbone", 100) == {}
