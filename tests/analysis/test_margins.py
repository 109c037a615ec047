"""Margins of a training by epoch, and pooled over epochs, against loops over all pairs of tours."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import torch

from polarvrp.analysis.margins import SCHEMA, preference_margins
from polarvrp.cli.main import main
from polarvrp.errors import DataError
from polarvrp.files import read_parquet, write_parquet
from polarvrp.tables.margins import pooled
from polarvrp.training import objectives
from polarvrp.training.clock import PHASES
from polarvrp.training.history import epoch_row
from polarvrp.training.history import write_history as store

TEMPERATURE = 0.05
TOLERANCES = (0.1, 0.5, 1.0, 5.0)

Batch = tuple[torch.Tensor, torch.Tensor]


def batches(seed: int, count: int) -> list[Batch]:
    """Costs and log-likelihoods of tours, many of them close, one illegal."""
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    for _ in range(count):
        cost = 8 + 0.2 * torch.rand(2, 6, generator=generator, dtype=torch.float64)
        cost[0, 1] = math.inf
        drawn.append((cost, -15 - torch.rand(2, 6, generator=generator, dtype=torch.float64)))
    return drawn


def history_row(epoch: int, steps: list[Batch], refined: int) -> dict[str, Any]:
    """Row that the trainer writes from the sums of its steps."""
    sums = dict.fromkeys(("instances", "loss", "sampled_cost", "best_cost", "seconds"), 1.0)
    sums |= {f"seconds_{phase}": 1.0 for phase in PHASES} | {"refined_tours": float(refined)}
    sums |= {"refinement_improvement": 0.0, "refinement_likelihood_change": 0.0}
    for cost, likelihood in steps:
        added = objectives.preference_margins(cost, likelihood, TEMPERATURE).tolist()
        for name, value in zip(objectives.MARGINS, added, strict=True):
            sums[name] = sums.get(name, 0.0) + value
    return epoch_row(epoch, 1, 0.1, sums, {}, 1.0)


def margins_by_hand(steps: list[Batch]) -> dict[tuple[str, float | None], float]:
    """Means and percentages over every preferred pair, one pair after the other."""
    cost_gaps: list[float] = []
    policy_gaps: list[float] = []
    relative: dict[str, list[float]] = {"cost": [], "policy": []}
    for cost, likelihood in steps:
        for costs, likelihoods in zip(cost.tolist(), likelihood.tolist(), strict=True):
            for j in range(6):
                for k in range(6):
                    if costs[j] < costs[k] < math.inf and costs[k] - costs[j] > 1e-5 * costs[k]:
                        cost_gaps.append(costs[k] - costs[j])
                        policy_gaps.append(TEMPERATURE * abs(likelihoods[j] - likelihoods[k]))
                        relative["cost"].append(100 * cost_gaps[-1] / costs[j])
                        relative["policy"].append(100 * abs((likelihoods[j] - likelihoods[k]) / likelihoods[j]))
    pairs = len(cost_gaps)
    found: dict[tuple[str, float | None], float] = {
        ("mean_cost_gap", None): sum(cost_gaps) / pairs,
        ("mean_policy_gap", None): sum(policy_gaps) / pairs,
    }
    for space, gaps in relative.items():
        for tolerance in TOLERANCES:
            close = sum(gap < tolerance for gap in gaps)
            found[f"{space}_near_tie_percent", tolerance] = 100 * close / pairs
    return found


def by_metric(margins: pd.DataFrame) -> dict[tuple[str, float | None], float]:
    """Values by metric and tolerance, None for a mean."""
    columns = (margins[name].tolist() for name in ("metric", "epsilon_percent", "value"))
    return {(metric, None if math.isnan(of) else of): value for metric, of, value in zip(*columns, strict=True)}


@pytest.fixture
def epochs() -> list[list[Batch]]:
    return [batches(1, 2), batches(2, 5), batches(3, 1)]


def test_margins_of_each_epoch_are_those_of_its_pairs(epochs: list[list[Batch]]) -> None:
    rows = [history_row(epoch, steps, refined=epoch > 1) for epoch, steps in enumerate(epochs, 1)]
    margins = preference_margins(pd.DataFrame(rows))
    assert list(margins.columns) == SCHEMA.names and len(margins) == 3 * 10
    for epoch, steps in enumerate(epochs, 1):
        here = margins[margins["epoch"] == epoch]
        assert by_metric(here) == pytest.approx(margins_by_hand(steps))
    near = margins[(margins["metric"] == "cost_near_tie_percent") & (margins["epsilon_percent"] == 1.0)]
    assert near["value"].between(1, 99).all()


def test_pooled_margins_count_every_pair_alike(epochs: list[list[Batch]]) -> None:
    """Not the mean of the epochs' means: epochs have different numbers of preferred pairs."""
    margins = preference_margins(pd.DataFrame([history_row(epoch, steps, 1) for epoch, steps in enumerate(epochs, 1)]))
    together = margins_by_hand([*epochs[1], *epochs[2]])
    found = pooled(margins, (2, 3)).reset_index(name="value")
    assert len(found) == 10
    assert by_metric(found) == pytest.approx(together)


def test_file_of_a_training(tmp_path: Path, epochs: list[list[Batch]]) -> None:
    rows = [history_row(epoch, steps, 1) for epoch, steps in enumerate(epochs, 1)]
    store(tmp_path / "history.parquet", rows, {"run": "polarnet-ple-po-n10-s0"})
    output = tmp_path / "margins.parquet"
    assert main(["analyse", "margins", str(tmp_path / "history.parquet"), "--output", str(output)]) == 0
    written = read_parquet(output)
    assert written.schema.equals(SCHEMA) and written["epoch"].to_pylist()[:3] == [1, 2, 3]
    assert written["epsilon_percent"].to_pylist()[:4] == [None, None, None, 0.1]


def test_a_training_that_compares_no_tours_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match="compares no tours in pairs"):
        preference_margins(pd.DataFrame({"epoch": [1], "refined_tours": [0]}))
    history, output = tmp_path / "history.parquet", tmp_path / "margins.parquet"
    write_parquet(history, pa.table({"epoch": [1], "preferred_pairs": pa.array([None], pa.int64())}), {})
    assert main(["analyse", "margins", str(history), "--output", str(output)]) == 2
    assert capsys.readouterr().err == (
        f"polarvrp analyse: {history}: this training compares no tours in pairs; name one by po or polar\n"
    )
    assert main(["analyse", "margins", str(tmp_path / "none.parquet"), "--output", str(output)]) == 2
    assert (
        capsys.readouterr().err
        == f"polarvrp analyse: {tmp_path / 'none.parquet'} does not exist; train the run first\n"
    )
    assert not output.exists()
