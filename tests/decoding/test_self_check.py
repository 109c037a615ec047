# mypy: disable-error-code="no-untyped-def, name-defined"
"""Level fused checks itself on a card before it is trusted; what fails ends in one line and level parallel.

Here the kernels run in Triton's interpreter, and faults are planted where a wrong compiler or driver would make them.
"""

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from helpers.instances import generated
from helpers.model_samples import shaken
from polarvrp.config.model import ModelConfig
from polarvrp.config.training import StageConfig, TrainConfig
from polarvrp.decoding import engine as engine_module
from polarvrp.decoding.engine import make_engine
from polarvrp.decoding.fused import rollout as rollout_module
from polarvrp.decoding.fused import self_check as self_check_module
from polarvrp.decoding.fused.kernels import pointer, rollout, rules, scoring
from polarvrp.decoding.fused.kernels.pointer import Weights
from polarvrp.decoding.fused.kernels.rules import load_fits as right_load_fits
from polarvrp.decoding.fused.rollout import _weights as right_weights
from polarvrp.decoding.fused.self_check import instances_of, self_check
from polarvrp.decoding.graphs import CapturedCall, CaptureError
from polarvrp.decoding.greedy import Decoding, GreedySolver
from polarvrp.environment.environment import Protocol
from polarvrp.errors import EngineError
from polarvrp.model.decoder import PointerDecoder
from polarvrp.model.heads import Ramp
from polarvrp.model.policy import Policy
from polarvrp.model.precision import bfloat16_products
from polarvrp.model.registry import build_policy
from polarvrp.problem.variants import KINDS, TRAINING_KIND, TRAINING_VARIANTS, VARIANTS, Kind, variants_of
from polarvrp.training.optimizer import make_optimizer
from polarvrp.training.plan import Plan
from polarvrp.training.step import TrainingStep, kinds_of

TINY = ModelConfig(width=32, heads=2, layers=1, feedforward_width=32)
NUM_NODES = 5

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="faults are planted in the interpreter")


@pytest.fixture
def policy() -> Policy:
    return shaken(build_policy(TINY, 0)).eval()


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh process on a machine with a card."""
    monkeypatch.setattr(engine_module, "on_card", lambda policy: True)
    monkeypatch.setattr(engine_module, "_told", set())
    monkeypatch.setattr(self_check_module, "_faults", {})


@triton.jit
def uncompilable(*arguments, **constants):
    tl.store(no_such_thing, 0)  # noqa: F821


@triton.jit
def everyone_is_served(state, everyone):
    return state.current >= 0


@triton.jit
def half_fits(instance, state, nodes, strict: tl.constexpr):
    linehaul = tl.load(instance.loads + nodes)[None, :]
    return state.used_linehaul[:, None] + linehaul <= instance.capacity // 2


@triton.jit
def costs_of_later_depots(instance, state, node_block: tl.constexpr):
    closing = tl.load(instance.distances + state.current * node_block + state.depot)
    return state.travelled + tl.where(instance.open_route, 0.0, closing) + state.depot


@triton.jit
def nothing_is_mixed(instance, state, nodes, strict: tl.constexpr):
    node_block: tl.constexpr = nodes.shape[0]
    linehaul = tl.load(instance.loads + nodes)[None, :]
    backhaul = tl.load(instance.loads + node_block + nodes)[None, :]
    after_backhaul = tl.load(instance.loads + node_block + state.current) > 0
    free = tl.where(after_backhaul, -1, instance.capacity - state.used_linehaul)
    free_backhaul = instance.capacity - state.used_backhaul
    return tl.where(backhaul > 0, backhaul <= free_backhaul[:, None], linehaul <= free[:, None])


@triton.jit
def last_in_greedy_tours(logits, moves, greedy, numbers, nodes, sampled: tl.constexpr):
    action, gained = pointer.chosen(logits, moves, greedy, numbers, nodes, sampled)
    if not sampled:
        legal = pointer.contains(moves.low[:, None], moves.high[:, None], nodes[None, :], nodes.shape[0])
        action = tl.max(tl.where(legal, nodes[None, :], 0), 1)
        shares = tl.exp(logits - tl.max(logits, 1)[:, None])
        gained = tl.log(tl.sum(tl.where(nodes[None, :] == action[:, None], shares, 0.0), 1) / tl.sum(shares, 1))
    return action, gained


@triton.jit
def half_fits_by_published_rules(instance, state, nodes, strict: tl.constexpr):
    fits = right_load_fits(instance, state, nodes, strict)
    return fits if strict else fits & half_fits(instance, state, nodes, strict)


def with_more_of_the_residual_block(decoder: PointerDecoder, dtype: torch.dtype, ramp: Ramp) -> Weights:
    return right_weights(decoder, dtype, ramp + 0.2 if isinstance(ramp, torch.Tensor) else ramp)


def refuse(self: Any, *arguments: Any) -> None:
    raise CaptureError("CUDA error: operation not permitted when stream is capturing")


Plant = Callable[[pytest.MonkeyPatch], None]
FAULTS: dict[str, tuple[Plant, str]] = {
    "wrong clip in the rollout": (
        lambda patch: patch.setattr(pointer, "CLIP", tl.constexpr(6.0)),
        r"mean likelihood error is [0-9.]+, more than 0\.0001",
    ),
    "wrong capacity in the rollout": (
        lambda patch: patch.setattr(rules, "load_fits", half_fits),
        r"mean likelihood error is [0-9.]+, more than 0\.0001",
    ),
    "wrong masks in the rollout": (
        lambda patch: patch.setattr(rules, "has_served", everyone_is_served),
        r"\d+ of 10 tours break a rule or lack a cost",
    ),
    "wrong clip in scoring": (
        lambda patch: patch.setattr(scoring, "CLIP", tl.constexpr(6.0)),
        r"gradient error is [0-9.]+, more than 0\.0001",
    ),
    "wrong actions in inference alone": (
        lambda patch: patch.setattr(rollout, "chosen", last_in_greedy_tours),
        r"greedy tours forgo [0-9.]+ of log-likelihood, more than 0\.001",
    ),
    "a wrong ramp in the first epochs alone": (
        lambda patch: patch.setattr(rollout_module, "_weights", with_more_of_the_residual_block),
        r"with half of the decoder's residual block mean likelihood error is [0-9.]+, more than 0\.0001",
    ),
    "a kernel that does not compile": (
        lambda patch: patch.setattr(rollout, "rollout", uncompilable),
        r"InterpreterError: NameError\(.name 'no_such_thing' is not defined.\)",
    ),
    "a capture that fails": (
        lambda patch: patch.setattr(CapturedCall, "__init__", refuse),
        r"CaptureError: CUDA error: operation not permitted when stream is capturing",
    ),
}


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Kind, Protocol | None]]:
    """What self-checks are made of, in order; each finds nothing wrong."""
    made: list[tuple[Kind, Protocol | None]] = []

    def sound(policy: Policy, num_nodes: int, kind: Kind, protocol: Protocol | None, bfloat16: bool) -> None:
        made.append((kind, protocol))

    monkeypatch.setattr(self_check_module, "_found_fault", sound)
    return made


def assert_one_line_says(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """Level ``fused`` was given up in one log line, for a reason that the pattern matches."""
    (line,) = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(f"engine fused fails its self-check on this card: {reason}; engine parallel is used", line)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.usefixtures("card")
def test_faults_end_in_one_line_and_level_parallel_or_in_an_error(
    fault: str, policy: Policy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plant, reason = FAULTS[fault]
    plant(monkeypatch)
    with caplog.at_level(logging.INFO):
        assert make_engine(policy, NUM_NODES, bfloat16=True).level == "parallel"
        assert make_engine(policy, NUM_NODES, bfloat16=True).level == "parallel"
    assert_one_line_says(reason, caplog)
    with pytest.raises(EngineError, match=r"engine fused fails its self-check .*; use engine parallel") as error:
        make_engine(policy, NUM_NODES, "fused", bfloat16=True)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.usefixtures("card")
def test_a_sound_level_is_checked_once_and_used(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checks = []
    check = self_check_module.self_check

    def counted(*given: Any, **named: Any) -> Any:
        checks.append(named)
        return check(*given, **named)

    monkeypatch.setattr(self_check_module, "self_check", counted)
    gradient = torch.ones(())
    policy.decoder.query.weight.grad = gradient.expand_as(policy.decoder.query.weight)
    state = torch.random.get_rng_state()
    with torch.inference_mode():
        assert make_engine(policy, NUM_NODES).level == "fused"
    assert make_engine(policy, NUM_NODES, "fused").level == "fused"
    assert len(checks) == 1
    assert policy.decoder.query.weight.grad.sum() == policy.decoder.query.weight.numel()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert caplog.records == []


SEVERAL, MIXED = Kind(True, False), Kind(False, True)
FAULTS_OF_A_KIND: dict[str, tuple[Kind, int, Plant, str]] = {
    "wrong costs with several depots": (
        SEVERAL,
        7,
        lambda patch: patch.setattr(rollout, "length_of", costs_of_later_depots),
        r"costs differ by up to [12]",
    ),
    "no rule of mixed backhauls": (
        MIXED,
        9,
        lambda patch: patch.setattr(rules, "load_fits", nothing_is_mixed),
        r"mean likelihood error is [0-9.]+, more than 0\.0001",
    ),
}


@pytest.mark.parametrize("fault", FAULTS_OF_A_KIND)
@pytest.mark.usefixtures("card")
def test_a_fault_with_one_kind_of_instances_costs_the_level_where_they_are_alone(
    fault: str, policy: Policy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kind, num_nodes, plant, reason = FAULTS_OF_A_KIND[fault]
    plant(monkeypatch)
    with caplog.at_level(logging.INFO):
        assert make_engine(policy, num_nodes).level == "fused"
        assert make_engine(policy, num_nodes, kinds=[TRAINING_KIND, kind]).level == "parallel"
    assert_one_line_says(reason, caplog)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.words for kind in KINDS])
def test_the_check_is_of_the_kind_of_instances(kind: Kind, policy: Policy) -> None:
    instances = instances_of(kind, 7, torch.device("cpu"))
    assert instances.kind == kind
    assert instances.num_nodes == 7
    agreement, capture_problem = self_check(policy, 7, kind, bfloat16=False)
    assert agreement.problem is capture_problem is None
    assert agreement.num_tours == (24 if kind.several_depots else 14)
    assert agreement.cost_difference == 0


def test_kinds_of_variants() -> None:
    assert set(variants_of(TRAINING_KIND)) == set(TRAINING_VARIANTS)
    assert [len(variants_of(kind)) for kind in KINDS] == [16, 8, 16, 8]
    config = TrainConfig(paradigm="po", num_customers=4)
    assert kinds_of(config) == [TRAINING_KIND]
    assert kinds_of(config.replace(stages=(StageConfig(variants=tuple(VARIANTS)),))) == list(KINDS)


@pytest.mark.usefixtures("card")
def test_a_kind_of_instances_is_checked_once_and_not_before_it_comes(
    policy: Policy, checked: list[tuple[Kind, Protocol | None]]
) -> None:
    assert step_of(policy, "auto").level == "fused"
    assert checked == [(TRAINING_KIND, None)]
    solver = GreedySolver(policy, Decoding(1), bfloat16=True)
    for variant in ("CVRP", "OVRPBTW", "OVRPMB", "VRPMBL", "MDVRP", "MDVRPB", "MDOVRPMBTW", "MDVRPMB"):
        assert solver.engine(generated(variant, 5)).level == "fused"
    assert checked[1:] == [(kind, "strict") for kind in KINDS]


@pytest.mark.usefixtures("card")
def test_a_fault_by_the_published_rules_costs_the_level_where_tours_are_built_by_them(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rules, "load_fits", half_fits_by_published_rules)
    with caplog.at_level(logging.INFO):
        assert make_engine(policy, 7, kinds=[MIXED], protocols=["strict"]).level == "fused"
        assert make_engine(policy, 7, kinds=[MIXED], protocols=["strict", "published"]).level == "parallel"
    assert_one_line_says(r"mean likelihood error of greedy tours is [0-9.]+, more than 0\.0001", caplog)


@pytest.mark.usefixtures("card")
def test_published_rules_are_checked_where_tours_are_built_by_them(
    policy: Policy, checked: list[tuple[Kind, Protocol | None]]
) -> None:
    for protocols in (("strict",), ("published",), ("strict", "published")):
        solver = GreedySolver(policy, Decoding(1, protocols=protocols), bfloat16=True)
        assert solver.engine(generated("VRPMB", 5)).level == "fused"
    assert checked == [(MIXED, "strict"), (MIXED, "published")]


def test_the_check_compares_tours_likelihoods_and_gradients(policy: Policy) -> None:
    agreement, capture_problem = self_check(policy, NUM_NODES, bfloat16=False)
    assert agreement.problem is capture_problem is None
    assert agreement.num_tours == 10
    assert agreement.cost_difference == 0
    assert 0 < agreement.errors.gradient < 1e-5
    assert agreement.errors.largest_likelihood < 1e-5


def test_the_check_measures_in_float32_inside_autocast_too(policy: Policy) -> None:
    """An evaluation chooses its level where its own products run in bfloat16 already."""
    with bfloat16_products(torch.device("cpu"), True):
        agreement, capture_problem = self_check(policy, NUM_NODES, bfloat16=False)
    assert agreement.problem is capture_problem is None
    assert agreement.errors.largest_likelihood < 1e-5


def step_of(policy: Policy, engine: str) -> TrainingStep:
    config = TrainConfig(paradigm="po", num_customers=4, batch_size=2)
    optimizer = make_optimizer(config, policy, torch.device("cpu"))
    return TrainingStep(policy, optimizer, config, True, None, engine=engine)


@pytest.mark.usefixtures("card")
def test_a_training_whose_phases_cannot_be_captured_goes_on_with_level_parallel(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine's own calls can be captured here, but not the training's."""
    step, strict = step_of(policy, "auto"), step_of(policy, "fused")
    assert step.level == "fused"
    monkeypatch.setattr(Plan, "replays", True)
    monkeypatch.setattr(CapturedCall, "__init__", refuse)
    reason = "phase generate cannot be captured: CUDA error: operation not permitted when stream is capturing"
    with pytest.raises(EngineError, match=f"^engine fused: {reason}; use engine parallel$"):
        strict.run(0, 1, 0, 2)

    def once_refused(self: Plan) -> bool:
        return step.level == "fused"  # level parallel captures nothing

    monkeypatch.setattr(Plan, "replays", property(once_refused))
    before = policy.decoder.query.weight.detach().clone()
    with caplog.at_level(logging.INFO):
        assert step.run(0, 1, 0, 2)["instances"] == 2
    assert step.level == "parallel"
    assert [record.getMessage() for record in caplog.records] == [f"{reason}; engine parallel is used from here on"]
    assert not torch.equal(policy.decoder.query.weight, before)
