"""Strict and published rules of zero-shot sets, at both levels."""

from importlib.util import find_spec

import pytest
import torch

from helpers.instances import generated
from polarvrp.config.model import ModelConfig
from polarvrp.decoding.engine import make_engine
from polarvrp.decoding.greedy import Decoding, GreedySolver
from polarvrp.decoding.rollout import multi_start
from polarvrp.environment.environment import Environment
from polarvrp.evaluation.evaluate import evaluate_set
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy
from polarvrp.problem.instances import to_tensors
from polarvrp.problem.tours import check_tour, flat_actions
from polarvrp.tolerances import LOAD_TOLERANCE, POLICY_TOLERANCE

INTERPRETED = pytest.mark.skipif(
    torch.cuda.is_available() or find_spec("triton") is None, reason="the interpreter serves where there is no GPU"
)
LEVELS = ["parallel", pytest.param("fused", marks=INTERPRETED)]


@pytest.fixture(scope="module")
def policy() -> Policy:
    config = ModelConfig(backbone="routefinder", encoder="shared", width=32, heads=2, layers=1, feedforward_width=32)
    return build_policy(config, 0).eval()


@pytest.mark.parametrize("level", LEVELS)
def test_illegal_starts_compete_in_the_published_protocol_only(policy: Policy, level: str) -> None:
    """The same tours in both; those that a window breaks at the start are ruled out by the strict one."""
    instances = generated("MDVRPTW", 6, 4, 11)
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
            for row in evaluate_set(GreedySolver(policy, Decoding(1, protocol=protocol), False), "run", instances)
        ]
        for protocol in ("strict", "published")
    )
    assert all(excess is not None and excess < LOAD_TOLERANCE for excess in strict)
    assert any(excess is not None and excess > LOAD_TOLERANCE for excess in published)
