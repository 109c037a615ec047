"""Rows of a history: means of what the steps of an epoch added up, null where nothing was."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from helpers.model_samples import policy_of
from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.config.training import StageConfig, TrainConfig
from polarvrp.local_search.refinement import Refiner
from polarvrp.training.history import SCHEMA, epoch_row
from polarvrp.training.objectives import MARGINS
from polarvrp.training.step import TrainingStep

REFINED = {"refinement_improvement_percent", "refinement_likelihood_change"}


def epoch(paradigm: str, **changes: Any) -> tuple[dict[str, Any], list[dict[str, float]]]:
    """Row of an epoch of two steps, and the sums of each."""
    config = TrainConfig(paradigm=paradigm, num_customers=7, batch_size=4, refinement_start_epoch=1, **changes)
    policy = policy_of().train()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)
    with Refiner(0) as refiner:
        step = TrainingStep(policy, optimizer, config, False, refiner)
        steps = [step.run(0, 2, number, 4) | {"seconds": 1.0} for number in range(2)]
    sums = {name: sum(one[name] for one in steps) for name in steps[0]}
    return epoch_row(2, 1, 1e-4, sums, {}, 0.1), steps


@pytest.mark.parametrize(
    ("paradigm", "changes", "absent"),
    [
        ("rl", {}, {"greedy_cost", "refinement_weight", *REFINED, *MARGINS}),
        ("po", {}, {"greedy_cost", "refinement_weight", *REFINED}),
        ("polar", {}, {"refinement_weight"}),
        ("polar", {"refinement_ramp": 0.1}, set()),
    ],
)
def test_columns_are_null_where_nothing_was_measured(paradigm: str, changes: dict[str, Any], absent: set[str]) -> None:
    row, _ = epoch(paradigm, **changes)
    unmeasured = {"validation_cost", "validation_gap_percent", "seconds_validate"}
    assert set(row) == set(SCHEMA.names)
    assert {name for name, value in row.items() if value is None} == absent | unmeasured


def test_pairs_are_counted_where_the_record_says_so_whatever_the_loss_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARADIGMS, "po", replace(PARADIGMS["po"], compares_pairs=False))
    assert {epoch("po")[0][name] for name in MARGINS} == {None}
    monkeypatch.setitem(PARADIGMS, "rl", replace(PARADIGMS["rl"], compares_pairs=True))
    assert epoch("rl")[0]["preferred_pairs"] > 0


def test_a_greedy_tour_of_several_depots_has_no_mean_cost() -> None:
    row, steps = epoch("polar", stages=(StageConfig(variants=("MDVRP",)),))
    assert row["greedy_cost"] is None
    assert all(math.isfinite(row[name]) for name in ("loss", "sampled_cost", "best_cost"))
    row, steps = epoch("polar")
    assert row["greedy_cost"] == pytest.approx(sum(one["greedy_cost"] for one in steps) / 8)


def test_gaps_are_means_over_pairs_and_near_ties_are_numbers() -> None:
    row, steps = epoch("polar")
    pairs = sum(one["preferred_pairs"] for one in steps)
    assert row["preferred_pairs"] == pairs
    assert 0 < pairs <= 8 * 8 * 7 / 2  # of eight tours of each of eight instances
    gap = sum(one["preferred_cost_gap"] for one in steps)
    assert row["preferred_cost_gap"] == pytest.approx(gap / pairs)
    near = [row[f"{space}_near_ties_{percent}"] for space in ("cost", "policy") for percent in ("0_1", "0_5", "1", "5")]
    assert near[:4] == sorted(near[:4]) and near[4:] == sorted(near[4:])
    assert 0 < near[7] < pairs
    refined = sum(one["refined_tours"] for one in steps)
    change = sum(one["refinement_likelihood_change"] for one in steps)
    assert row["refinement_likelihood_change"] == pytest.approx(change / refined)
