# mypy: disable-error-code="no-untyped-def"
"""The checks of kernels find them right, and find faults where they are planted."""

import math

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.language import constexpr

from polarvrp.decoding.fused.checks.kernels import replay_verdicts, scoring_verdicts
from polarvrp.decoding.fused.checks.rollout import check_rollout
from polarvrp.decoding.fused.checks.verdicts import KernelSetting, KernelVerdict, guarded
from polarvrp.decoding.fused.kernels import pointer, rollout, rules, scoring
from polarvrp.problem.variants import KINDS

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="faults are planted in the interpreter")

SETTING = KernelSetting.usual(3, torch.device("cpu"), torch.float32)


def test_kernels_of_replay_scoring_and_attention_are_right() -> None:
    verdicts = [*replay_verdicts(SETTING), *scoring_verdicts(SETTING)]
    assert [verdict for verdict in verdicts if not verdict.right] == []
    assert {verdict.kernel.split(" ")[0] for verdict in verdicts} == {
        "replay",
        "glimpse_forward",
        "glimpse_backward",
        "pointer_forward",
        "pointer_backward",
        "node_backward",
        "sum_rows",
        "attention_forward",
        "attention_backward",
    }


@pytest.mark.parametrize("head", ["gated", "plain", "reld"])
def test_rollouts_are_right(head: str) -> None:
    assert check_rollout(SETTING, head, sampled=head != "plain").right


def test_tours_from_several_depots_with_mixed_backhauls_are_right() -> None:
    setting = KernelSetting.usual(3, torch.device("cpu"), torch.float32, KINDS[-1])
    assert setting.environment().instances.kind == KINDS[-1]
    verdicts = [*replay_verdicts(setting), check_rollout(setting, "gated", sampled=True)]
    assert [verdict for verdict in verdicts if not verdict.right] == []


def test_a_wrong_clip_is_found_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "CLIP", constexpr(9.9))
    wrong = {verdict.kernel for verdict in scoring_verdicts(SETTING) if not verdict.right}
    assert wrong == {f"pointer_{way} {head}" for way in ("forward", "backward") for head in ("gated", "reld")}


def test_a_wrong_clip_of_the_rollout_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointer, "CLIP", constexpr(9.9))
    verdict = check_rollout(SETTING, "plain", sampled=False)
    assert not verdict.right and verdict.fault is None


@triton.jit
def second_in_greedy_tours(logits, moves, greedy, numbers, nodes, sampled: constexpr):
    action, gained = pointer.chosen(logits, moves, greedy, numbers, nodes, sampled)
    if not sampled:
        best = nodes[None, :] == action[:, None]
        action, gained = pointer.chosen(tl.where(best, logits - 20.0, logits), moves, greedy, numbers, nodes, sampled)
    return action, gained


def test_greedy_tours_of_less_probable_actions_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "chosen", second_in_greedy_tours)
    fault = check_rollout(SETTING, "plain", sampled=False).fault
    assert fault is not None and fault.startswith("greedy tours forgo ")
    assert check_rollout(SETTING, "gated", sampled=True).right


@triton.jit
def nothing_fits(instance, state, nodes, strict: constexpr):
    return (nodes < 0)[None, :] & (state.current >= 0)[:, None]


def test_wrong_rules_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "load_fits", nothing_fits)
    assert not any(verdict.right for verdict in replay_verdicts(SETTING))


def test_what_a_check_raises_is_its_verdict() -> None:
    def launch() -> KernelVerdict:
        raise RuntimeError("out of resources: shared memory\nmore about it")

    verdict = guarded("rollout plain", launch)
    assert not verdict.right and math.isnan(verdict.error)
    assert verdict.fault == "RuntimeError: out of resources: shared memory"
