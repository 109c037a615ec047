"""Recipes of the backbones' authors reach the specification of a training, and nothing else does."""

from pathlib import Path

import pytest

from polarvrp.catalog.backbones import BACKBONES
from polarvrp.config.loading import load_study
from polarvrp.config.recipes import recipe_of
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


def test_a_users_own_backbone_follows_the_protocol() -> None:
    assert recipe_of("my_backbone", 100) == {}
