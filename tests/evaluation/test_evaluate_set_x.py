"""Set-X: true integer costs of complete, feasible tours, with the published form beside them."""

import itertools
import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from torch import Tensor

from polarvrp.config.model import ModelConfig
from polarvrp.decoding.greedy import Decoding, GreedySolver, Solved
from polarvrp.decoding.parallel import ParallelEngine
from polarvrp.evaluation.set_x import evaluate_set_x, write_set_x
from polarvrp.model.registry import build_policy
from polarvrp.problem.instances import Instances
from polarvrp.problem.tours import actions_to_routes
from polarvrp.problem.vrplib import load_set_x


def test_costs_are_those_of_the_files_distances(tmp_path: Path) -> None:
    policy = build_policy(ModelConfig(width=32, heads=4, layers=1, feedforward_width=32), 0).eval()
    names = ["X-n101-k25", "X-n106-k14"]
    rows = list(evaluate_set_x(GreedySolver(policy, Decoding(2, max_starts=3), bfloat16=False), names))
    path = tmp_path / "run.parquet"
    write_set_x(path, rows, {"model": {}})
    for row, name in zip(pq.read_table(path).to_pylist(), names, strict=True):
        library, best_known, _ = load_set_x(name)
        rounded, length = 0, 0.0
        served: list[int] = []
        for route in actions_to_routes(row["actions"], 1):
            way = [0, *route.customers, 0]
            assert sum(int(library.demands[node]) for node in way) <= library.capacity
            served += route.customers
            for start, end in itertools.pairwise(way):
                leg = math.dist(library.coordinates[start], library.coordinates[end])
                rounded += math.floor(leg + 0.5)
                length += leg
        assert sorted(served) == list(range(1, len(library.demands)))
        assert row["best_known"] == best_known
        assert row["cost"] == rounded > best_known
        assert row["gap_percent"] == 100 * (rounded - best_known) / best_known
        assert row["published_cost"] == math.ceil(length)


@pytest.mark.parametrize(("level", "solved"), [("parallel", 1), ("fused", 2)])
def test_what_is_compiled_for_a_size_does_not_count(level: str, solved: int, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = build_policy(ModelConfig(width=32, heads=4, layers=1, feedforward_width=32), 0).eval()
    solver = GreedySolver(policy, Decoding(1, max_starts=1), bfloat16=False)
    sizes: list[int] = []
    solve = solver.solve

    def counted(instances: Instances[Tensor]) -> Solved:
        sizes.append(instances.num_nodes)
        return solve(instances)

    monkeypatch.setattr(solver, "solve", counted)
    monkeypatch.setattr(ParallelEngine, "level", level)
    assert [row["instance"] for row in evaluate_set_x(solver, ["X-n101-k25"])] == ["X-n101-k25"]
    assert sizes == [101] * solved
