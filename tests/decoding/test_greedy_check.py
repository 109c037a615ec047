"""Greedy tours of a sound level pass their check, by all rules; of others it says what is wrong."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from helpers.instances import mixed
from helpers.model_samples import policy_of, shaken
from polarvrp.decoding.greedy_check import greedy_problem
from polarvrp.decoding.parallel import ParallelEngine
from polarvrp.decoding.rollout import Rollout, multi_start
from polarvrp.decoding.sampling import Sampler
from polarvrp.environment.environment import PROTOCOLS, Environment, Protocol
from polarvrp.model.precision import bfloat16_products

ONE_DEPOT = ("OVRPBLTW", "VRPMB")
SEVERAL_DEPOTS = ("MDVRPTW", "MDOVRPMBL")


def problem_of(
    engine: ParallelEngine,
    variants: tuple[str, ...],
    protocol: Protocol = "strict",
    bfloat16: bool = False,
    size: int = 7,
) -> str | None:
    policy, environment = shaken(policy_of()), Environment(mixed(variants, size, 2), protocol)
    with torch.no_grad(), bfloat16_products(torch.device("cpu"), bfloat16):
        embeddings = policy.encode(environment.instances).embeddings
        return greedy_problem(engine, policy, environment, embeddings, bfloat16=bfloat16)


@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("variants", [ONE_DEPOT, SEVERAL_DEPOTS], ids=["one depot", "several depots"])
def test_a_sound_level_passes(variants: tuple[str, ...], protocol: Protocol, bfloat16: bool) -> None:
    assert problem_of(ParallelEngine(), variants, protocol, bfloat16) is None


def test_illegal_starts_are_among_those_that_pass() -> None:
    """By the published rules they have costs; the tours of the test above would say nothing of that without any."""
    environment = Environment(mixed(SEVERAL_DEPOTS, 7, 2), "published")
    policy = shaken(policy_of())
    with torch.no_grad():
        embeddings = policy.encode(environment.instances).embeddings
        tours = ParallelEngine().rollout(policy, embeddings, environment, multi_start(environment))
    assert tours.cost.isfinite().all() and not tours.legal.all()


class Wrong(ParallelEngine):
    """Level ``parallel`` with a fault."""

    def __init__(self, change: Callable[[Rollout], Rollout], sampler: Sampler | None = None) -> None:
        super().__init__()
        self._change, self._sampler = change, sampler

    def rollout(self, policy: Any, embeddings: Any, environment: Any, starts: Any, *_: Any, **options: Any) -> Rollout:
        return self._change(super().rollout(policy, embeddings, environment, starts, self._sampler, **options))


class ByRulesOf(ParallelEngine):
    """Level ``parallel`` by other rules than it was given."""

    def __init__(self, protocol: Protocol) -> None:
        super().__init__()
        self._protocol = protocol

    def rollout(self, policy: Any, embeddings: Any, environment: Any, *words: Any, **options: Any) -> Rollout:
        other = Environment(environment.instances, self._protocol)
        return super().rollout(policy, embeddings, other, *words, **options)


@pytest.mark.parametrize(
    ("rules", "given", "problem"),
    [
        ("strict", "published", r"mean likelihood error of greedy tours is [0-9.]+, more than 0\.0001"),
        ("published", "strict", r"\d+ of 80 greedy tours break a rule or lack a cost"),
    ],
)
def test_rules_for_others_are_noticed(rules: Protocol, given: Protocol, problem: str) -> None:
    found = problem_of(ByRulesOf(rules), ("VRPMB", "OVRPMB"), given, size=20)
    assert found is not None and re.fullmatch(problem, found)


def repeated(tours: Rollout) -> Rollout:
    """A customer is served twice, another not at all."""
    return replace(tours, actions=tours.actions.where(tours.actions != 3, 2))


@pytest.mark.parametrize(
    ("change", "sampled", "problem"),
    [
        (lambda tours: tours, True, "greedy tours forgo "),
        (repeated, False, "28 of 28 greedy tours break a rule or lack a cost"),
        (
            lambda tours: replace(tours, cost=tours.cost + torch.inf),
            False,
            "28 of 28 greedy tours break a rule or lack",
        ),
        (lambda tours: replace(tours, cost=tours.cost + 0.5), False, "costs of greedy tours differ by up to 0.5"),
        (
            lambda tours: replace(tours, log_likelihood=tours.log_likelihood - 0.5),
            False,
            "mean likelihood error of greedy tours is 0.5, more than 0.0001",
        ),
    ],
    ids=["sampled", "a customer twice", "no costs", "other costs", "other likelihoods"],
)
def test_what_is_wrong_is_said(change: Callable[[Rollout], Rollout], sampled: bool, problem: str) -> None:
    sampler = Sampler(torch.Generator().manual_seed(0)) if sampled else None
    found = problem_of(Wrong(change, sampler), ONE_DEPOT)
    assert found is not None and found.startswith(problem)
