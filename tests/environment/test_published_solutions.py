"""The published solutions, replayed through the environment, cost what an exact computation says."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from numpy.typing import NDArray

from helpers.instances import generated
from helpers.walks import follow
from polarvrp.environment.environment import Environment
from polarvrp.problem.instances import to_tensors
from polarvrp.problem.variants import VARIANTS

SOLVERS = ("pyvrp", "ortools")


def actions_and_costs(rows: pa.Table) -> tuple[list[list[int]], NDArray[np.float64], NDArray[np.float64]]:
    """Actions, exact costs and how far a window or limit is broken, by instance."""
    rows = rows.sort_by("instance")
    broken = np.maximum(rows["window_violation"].to_numpy(), rows["limit_violation"].to_numpy())
    return rows["actions"].to_pylist(), rows["exact_cost"].to_numpy(), broken


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", VARIANTS)
def test_replayed_costs_are_exact_and_feasible_tours_are_legal(published: pa.Table, name: str, count: int) -> None:
    of_variant = published.filter((pc.field("variant") == name) & (pc.field("instance") < count))
    for num_customers in (50, 100):
        instances = generated(name, num_customers, 1000)
        environment = Environment(to_tensors(instances[:count]))
        found = [
            actions_and_costs(
                of_variant.filter((pc.field("num_customers") == num_customers) & (pc.field("solver") == solver))
            )
            for solver in SOLVERS
        ]
        assert [len(actions) for actions, _, _ in found] == [count, count]
        length = max(len(tour) for actions, _, _ in found for tour in actions)
        padded = np.zeros((count, len(SOLVERS), length), dtype=np.int64)
        for column, (actions, _, _) in enumerate(found):
            for row, tour in enumerate(actions):
                padded[row, column, : len(tour)] = tour
        cost, legal = follow(environment, torch.from_numpy(padded))
        for column, (solver, (_, exact, broken)) in enumerate(zip(SOLVERS, found, strict=True)):
            np.testing.assert_allclose(cost[:, column].numpy(), exact, rtol=0, atol=1e-4)
            allowed = legal[:, column].numpy()
            if solver == "pyvrp":
                assert allowed[broken == 0].all()
            assert not allowed[broken > 1e-5].any()
