"""Evaluation of a policy: exact prices, best over starts and symmetries, impossible instances set apart."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.instances import generated
from polarvrp.config.model import ModelConfig
from polarvrp.decoding import greedy
from polarvrp.decoding.greedy import Decoding, GreedySolver
from polarvrp.decoding.parallel import ParallelEngine
from polarvrp.environment.environment import Environment
from polarvrp.evaluation import evaluate as evaluate_module
from polarvrp.evaluation.evaluate import evaluate_set, warm_up
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.tours import check_tour


@pytest.fixture(scope="module")
def policy() -> Policy:
    return build_policy(ModelConfig(width=32, heads=4, layers=2, feedforward_width=32), 0).eval()


def instances_of(name: str, count: int = 4) -> Instances[NodeArrays]:
    return generated(name, 12, count, seed=3)


@pytest.mark.parametrize("name", ["CVRP", "OVRPBLTW", "VRPMBTW", "MDVRPLTW", "MDOVRPMB"])
def test_rows_are_exact_and_more_effort_is_never_worse(policy: Policy, name: str) -> None:
    instances = instances_of(name)
    costs = []
    for decoding in (Decoding(1, max_starts=1), Decoding(1), Decoding(8)):
        rows = evaluate_set(GreedySolver(policy, decoding, False), "run", instances)
        assert [row.instance for row in rows] == [0, 1, 2, 3]
        for row in rows:
            report = check_tour(instances, row.instance, row.actions, time_tolerance=1e-5)
            assert report.first_problem is None
            assert (row.cost, row.routes) == (report.cost, report.num_routes)
            assert (row.variant, row.method) == (name, "run")
        costs.append(np.array([row.cost for row in rows]))
    assert (costs[1] <= costs[0] + 1e-6).all()
    assert (costs[2] <= costs[1] + 1e-6).all()
    assert (costs[2] < costs[0] - 1e-6).any()


def test_the_size_of_decoding_batches_changes_nothing(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    instances = instances_of("MDVRPB")
    whole = evaluate_set(GreedySolver(policy, Decoding(8), False), "run", instances)
    # Two starts at a time, one instance at a time.
    monkeypatch.setitem(greedy.ENTRIES_PER_BATCH, "cpu", 2 * 8 * instances.num_nodes)
    parts = evaluate_set(GreedySolver(policy, Decoding(8), False), "run", instances)
    assert [row.cost for row in parts] == pytest.approx([row.cost for row in whole], abs=1e-6)


def test_decoding_takes_less_at_once_when_memory_is_short(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    instances, whole = instances_of("VRPTW"), ParallelEngine.rollout
    usual = evaluate_set(GreedySolver(policy, Decoding(8), False), "run", instances)

    def rollout(
        self: ParallelEngine, policy: Policy, embeddings: Tensor, environment: Environment, starts: Tensor
    ) -> Any:
        if embeddings.shape[0] * starts.shape[0] > 40:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 10000000 bytes.")
        return whole(self, policy, embeddings, environment, starts)

    monkeypatch.setattr(ParallelEngine, "rollout", rollout)
    rows = evaluate_set(GreedySolver(policy, Decoding(8), False), "run", instances)
    assert [row.cost for row in rows] == pytest.approx([row.cost for row in usual], abs=1e-6)
    assert caplog.messages[0] == "out of memory: from here on tours are decoded in parts of 1/2 of the usual size"
    monkeypatch.setattr(ParallelEngine, "rollout", lambda *_: (_ for _ in ()).throw(RuntimeError("out of memory")))
    with pytest.raises(RuntimeError, match="out of memory"):
        evaluate_set(GreedySolver(policy, Decoding(8), False), "run", instances)


def test_an_impossible_instance_gets_a_reason_and_does_not_stop_the_others(policy: Policy) -> None:
    instances = instances_of("VRPL")
    limit = instances.distance_limit.copy()
    limit[1] = 0.1
    rows = evaluate_set(
        GreedySolver(policy, Decoding(1), False), "run", dataclasses.replace(instances, distance_limit=limit)
    )
    assert [row.cost is None for row in rows] == [False, True, False, False]
    assert "customer" in str(rows[1].reason)


def test_a_set_of_impossible_instances_only(policy: Policy) -> None:
    instances = instances_of("CVRP", 2)
    heavy = dataclasses.replace(instances, demand_linehaul=instances.demand_linehaul * 100)
    assert [row.cost for row in evaluate_set(GreedySolver(policy, Decoding(1), False), "run", heavy)] == [None, None]


def test_one_engine_serves_all_sets_of_an_evaluation() -> None:
    policy = build_policy(ModelConfig(encoder="shared", width=32, heads=4, layers=1, feedforward_width=32), 0)
    solver = GreedySolver(policy, Decoding(1), bfloat16=False)
    assert solver.engine(instances_of("CVRP", 2)) is solver.engine(instances_of("MDOVRPMB", 3))


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_on_a_gpu_each_shape_and_form_of_the_rules_is_solved_before_the_clock_starts(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is compiled, and then captured, for the first set of its kind must not count as that set's seconds."""
    solved: list[int] = []
    compiled: list[Any] = []
    monkeypatch.setattr(evaluate_module, "compile_parts", compiled.append)
    monkeypatch.setattr(
        evaluate_module, "evaluate_protocols", lambda solver, run, instances: solved.append(id(instances))
    )
    names = [("VRPMB", 4), ("VRPMBTW", 4), ("MDCVRP", 4), ("MDVRPMB", 4), ("CVRP", 4), ("VRPTW", 4), ("OVRP", 3)]
    sets = [instances_of(name, count) for name, count in names]
    solver: Any = SimpleNamespace(device=torch.device(device), policy="policy")
    warm_up(solver, sets)
    twice = [id(sets[place]) for place in (0, 2, 3, 4, 6) for _ in range(2)]
    assert solved == (twice if device == "cuda" else [])
    assert compiled == (["policy"] if device == "cuda" else [])
