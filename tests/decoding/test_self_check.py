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

from helpers.model_samples import shaken
from polarvrp.config.model import ModelConfig
from polarvrp.config.training import TrainConfig
from polarvrp.decoding import engine as engine_module
from polarvrp.decoding.engine import make_engine
from polarvrp.decoding.fused import self_check as self_check_module
from polarvrp.decoding.fused.kernels import pointer, rollout, rules, scoring
from polarvrp.decoding.fused.self_check import self_check
from polarvrp.decoding.graphs import CapturedCall, CaptureError
from polarvrp.errors import EngineError
from polarvrp.model.policy import Policy
from polarvrp.model.precision import bfloat16_products
from polarvrp.model.registry import build_policy
from polarvrp.training.optimizer import make_optimizer
from polarvrp.training.plan import Plan
from polarvrp.training.step import TrainingStep

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
    "a kernel that does not compile": (
        lambda patch: patch.setattr(rollout, "rollout", uncompilable),
        r"InterpreterError: NameError\(.name 'no_such_thing' is not defined.\)",
    ),
    "a capture that fails": (
        lambda patch: patch.setattr(CapturedCall, "__init__", refuse),
        r"CaptureError: CUDA error: operation not permitted when stream is capturing",
    ),
}


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
    (line,) = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(f"engine fused fails its self-check on this card: {reason}; engine parallel is used", line)
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
