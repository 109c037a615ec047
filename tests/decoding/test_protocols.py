"""Strict and published rules of zero-shot sets, at both levels."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch

from helpers.instances import generated
from polarvrp.config.model import ModelConfig
from polarvrp.decoding.engine import make_engine
from polarvrp.decoding.greedy import Decoding, GreedySolver
from polarvrp.decoding.rollout import multi_start
from polarvrp.environment.environment import PROTOCOLS, Environment
from polarvrp.evaluation.evaluate import evaluate_protocols, evaluate_set
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy
from polarvrp.problem.instances import to_tensors
from polarvrp.problem.tours import check_tour, flat_actions
from polarvrp.study.layout import unseen_protocols
from polarvrp.tolerances import LOAD_TOLERANCE, POLICY_TOLERANCE

INTERPRETED = pytest.mark.skipif(
    torch.cuda.is_available() or find_spec("triton") is None, reason="the interpreter serves where there is no GPU"
)
LEVELS = ["parallel", pytest.param("fused", marks=INTERPRETED)]


def test_the_study_evaluates_by_the_protocols_of_the_environment() -> None:
    """What ``polarvrp evaluate`` takes is spelled out where no torch is needed."""
    assert unseen_protocols(masked=False) == PROTOCOLS


@pytest.fixture(scope="module")
def policy() -> Policy:
    config = ModelConfig(backbone="routefinder", encoder="shared", width=32, heads=2, layers=1, feedforward_width=32)
    return build_policy(config, 0).eval()


@pytest.mark.parametrize("level", LEVELS)
def test_illegal_starts_compete_in_the_published_protocol_only(policy: Policy, level: str) -> None:
    """The same tours in both; those that a window breaks at the start are ruled out by the strict one."""
    instances = generated("MDVRPTW", 6, 2, 11)
    engine = make_engine(policy, instances.num_nodes, level)
    found = {}
    for protocol in ("strict", "published"):
        environment = Environment(to_tensors(instances), protocol)
        with torch.no_grad():
            embeddings = policy.encode(environment.instances).embeddings
        found[protocol] = engine.rollout(policy, embeddings, environment, multi_start(environment))
    strict, published = found["strict"], found["published"]
    assert torch.equal(strict.actions, published.actions)
    assert published.cost.isfinite().all()
    legal = strict.cost.isfinite()
    assert torch.equal(strict.cost[legal], published.cost[legal])
    for index, rows in enumerate(published.actions.tolist()):
        for row, actions in enumerate(rows):
            report = check_tour(instances, index, flat_actions(actions, 3), POLICY_TOLERANCE)
            assert (report.first_problem is None) == bool(legal[index, row])
    assert 0 < int((~legal).sum()) < legal.numel() / 2


def test_mixed_backhauls_overload_vehicles_in_the_published_protocol_only(policy: Policy) -> None:
    instances = generated("VRPMB", 12, 24, 3)
    strict, published = (
        [
            row.max_violation
            for row in evaluate_set(GreedySolver(policy, Decoding(1, protocols=(protocol,)), False), "run", instances)
        ]
        for protocol in ("strict", "published")
    )
    assert all(excess is not None and excess < LOAD_TOLERANCE for excess in strict)
    assert any(excess is not None and excess > LOAD_TOLERANCE for excess in published)


@pytest.mark.parametrize(
    ("variant", "level"),
    [
        ("MDVRPTW", "parallel"),
        ("VRPMB", "parallel"),
        ("MDOVRPMB", "parallel"),
        pytest.param("MDVRPTW", "fused", marks=INTERPRETED),
        pytest.param("VRPMB", "fused", marks=[INTERPRETED, pytest.mark.long]),
        pytest.param("MDOVRPMB", "fused", marks=[INTERPRETED, pytest.mark.long]),
    ],
)
def test_one_pass_finds_what_a_pass_for_each_protocol_finds(policy: Policy, variant: str, level: str) -> None:
    instances = to_tensors(generated(variant, 5, 2, 11))
    alone = [
        GreedySolver(policy, Decoding(2, protocols=(protocol,), engine=level), False).solve(instances)
        for protocol in PROTOCOLS
    ]
    together = GreedySolver(policy, Decoding(2, protocols=PROTOCOLS, engine=level), False).solve_each(instances)
    for (cost, tours), (wanted, expected) in zip(together, alone, strict=True):
        assert torch.equal(cost, wanted) and tours == expected
    strict, published = together
    assert (published[0] <= strict[0]).all() or variant != "MDVRPTW"


def test_a_pass_shares_its_rollouts_where_loads_have_one_rule(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rollout of several depots serves both protocols, mixed backhauls need two; the batch is encoded once."""
    counts = {"encode": 0, "rollout": 0}
    encode = policy.encode
    monkeypatch.setattr(policy, "encode", lambda found: (counts.update(encode=counts["encode"] + 1), encode(found))[1])
    for variant, rollouts in (("MDVRPTW", 1), ("VRPMB", 2), ("MDVRPMBTW", 2)):
        counts.update(encode=0, rollout=0)
        solver = GreedySolver(policy, Decoding(1, protocols=PROTOCOLS, engine="parallel"), False)
        engine = solver.engine(generated(variant, 6))
        rollout = engine.rollout

        def counted(*words: Any, rollout: Any = rollout, **options: Any) -> Any:
            counts["rollout"] += 1
            return rollout(*words, **options)

        monkeypatch.setattr(engine, "rollout", counted)
        rows = evaluate_protocols(solver, "run", generated(variant, 6, 3, 11))
        assert counts == {"encode": 1, "rollout": rollouts}
        assert [len(part) for part in rows] == [3, 3]
        assert rows[0][0].seconds == rows[1][0].seconds > 0
