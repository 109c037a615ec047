"""Agreement of an engine level with level ``parallel`` in float32: tours, log-likelihoods, gradients.

Shape legend: B instances, S tours per instance, N nodes, d width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polarvrp.decoding.parallel import ParallelEngine
from polarvrp.decoding.rollout import BufferOverflowError, Decisions, Rollout, multi_start, with_greedy_row
from polarvrp.decoding.sampling import Sampler
from polarvrp.environment.environment import Environment
from polarvrp.model.policy import Policy
from polarvrp.model.precision import bfloat16_products, no_autocast

if TYPE_CHECKING:
    from polarvrp.decoding.engine import Engine

BARS = {True: (0.01, 0.1, 0.01), False: (1e-4, 1e-3, 1e-4)}
"""Largest errors by whether products run in bfloat16: mean and largest of log-likelihoods, relative of gradients."""

MARGINS = (1.1, 1.2, 1.1)
"""How many times the error of level ``parallel`` in the same precision, its forward pass's rounding, passes as well."""

SAMPLING_SEED, WEIGHT_SEED = 2, 3
MOST_OVERFLOWS = 8


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of log-likelihoods and of a gradient.

    Attributes:
        mean_likelihood: Mean error of a tour's log-likelihood.
        largest_likelihood: Largest one.
        gradient: Relative error of the gradient by node embeddings and decoder parameters.
    """

    mean_likelihood: float
    largest_likelihood: float
    gradient: float

    @classmethod
    def of(cls, likelihood: Tensor, wanted: Tensor, gradient: Tensor, expected: Tensor) -> Errors:
        """Of log-likelihoods in any one shape, and of gradients as vectors."""
        difference = (likelihood - wanted).abs() if likelihood.numel() else torch.zeros(1)
        relative = (gradient - expected).norm() / expected.norm()
        return cls(float(difference.mean()), float(difference.max()), float(relative))


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of a level with level ``parallel``.

    Attributes:
        bfloat16: Whether its matrix products ran in bfloat16.
        num_tours: Tours compared.
        illegal_tours: Of them, those whose legality the levels judge differently.
        cost_difference: Largest difference of costs of legal tours; 0 is wanted.
        errors: Of the level.
        unavoidable: Of level ``parallel`` in the same precision.
    """

    bfloat16: bool
    num_tours: int
    illegal_tours: int
    cost_difference: float
    errors: Errors
    unavoidable: Errors

    @property
    def problem(self) -> str | None:
        """The first disagreement beyond the bars, None if there is none."""
        if self.illegal_tours:
            return f"{self.illegal_tours} of {self.num_tours} tours break a rule or lack a cost"
        if self.cost_difference > 0:
            return f"costs differ by up to {self.cost_difference:.2g}"
        for name, bar, margin in zip(Errors.__slots__, BARS[self.bfloat16], MARGINS, strict=True):
            error, allowed = getattr(self.errors, name), max(bar, margin * getattr(self.unavoidable, name))
            if not error <= allowed:  # not a number is a problem too
                return f"{name.replace('_', ' ')} error is {error:.2g}, more than {allowed:.2g}"
        return None


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of a probe.

    Attributes:
        tours: With their decisions.
        gradient: By node embeddings and decoder parameters in float32, one after the other.
    """

    tours: Rollout
    gradient: Tensor


class Probe:
    """A tiny training step of a level: sampled tours, and the gradient of a weighted sum of their log-likelihoods.

    Args:
        engine: The level.
        policy: On its device; its gradients are lost.
        environment: The instances.
        embeddings: Of their nodes, bfloat16 or float32, ``[B, N, d]``.
        bfloat16: Whether matrix products run in bfloat16.
    """

    def __init__(
        self, engine: Engine, policy: Policy, environment: Environment, embeddings: Tensor, *, bfloat16: bool
    ) -> None:
        self.engine, self.policy, self.environment, self.bfloat16 = engine, policy, environment, bfloat16
        self.embeddings = embeddings
        starts = multi_start(environment)
        self._has_greedy_row = environment.num_depots == 1
        self._starts = with_greedy_row(starts) if self._has_greedy_row else starts
        self.num_forced = starts.shape[1]
        self.generator = torch.Generator(embeddings.device)
        weights = torch.randn(len(embeddings), len(self._starts), generator=torch.Generator().manual_seed(WEIGHT_SEED))
        self.weights = weights.to(embeddings.device)

    def __call__(self) -> ProbeResult:
        """Tours and gradient; the generator's state decides which tours are drawn."""
        with bfloat16_products(self.embeddings.device, self.bfloat16):
            tours = self.engine.rollout(
                self.policy,
                self.embeddings,
                self.environment,
                self._starts,
                Sampler(self.generator),
                greedy_last=self._has_greedy_row,
                record=True,
            )
        return ProbeResult(tours, self.gradient(self.engine, tours.decisions, tours.cost, self.bfloat16))

    def run(self) -> ProbeResult:
        """Tours and gradient from the usual seed, with as much room as they need."""
        for _ in range(MOST_OVERFLOWS):
            self.generator.manual_seed(SAMPLING_SEED)
            result = self()
            try:
                self.engine.synchronize(self.environment, result.tours, self.engine.usage(result.tours))
            except BufferOverflowError:
                continue
            return result
        raise BufferOverflowError(f"no room for the decisions after {MOST_OVERFLOWS} attempts")

    def gradient(self, engine: Engine, decisions: Decisions, cost: Tensor, bfloat16: bool) -> Tensor:
        """Gradient of given decisions; tours without a cost weigh nothing.

        Args:
            engine: The level that recorded them.
            decisions: Of S tours of each instance.
            cost: ``[B, S]``.
            bfloat16: Whether matrix products run in bfloat16.
        """
        self.policy.zero_grad()
        embeddings = self.embeddings if bfloat16 else self.embeddings.float()
        leaf = embeddings.detach().clone().requires_grad_()
        weights = torch.where(cost.isfinite(), self.weights, 0.0)
        with bfloat16_products(leaf.device, bfloat16):
            engine.score_gradient(self.policy, leaf, self.environment.instances, decisions, weights)
        parts = (leaf, *self.policy.decoder.parameters())
        return torch.cat([part.grad.float().flatten() for part in parts if part.grad is not None])


def compare_with_parallel(probe: Probe, result: ProbeResult) -> Agreement:
    """Compare the result of a probe with the same tours on level ``parallel`` in float32.

    Args:
        probe: Of the level.
        result: Of ``probe.run``.
    """
    tours, policy, environment = result.tours, probe.policy, probe.environment
    plain, instances = ParallelEngine(graphed=False), environment.instances
    replayed = plain.replay(environment, tours.actions, num_free=probe.num_forced)
    legal = tours.cost.isfinite()
    with no_autocast(instances.locs.device):  # whatever surrounds the check
        wanted = plain.score(policy, probe.embeddings.float(), instances, replayed.decisions)
    expected = probe.gradient(plain, replayed.decisions, tours.cost, bfloat16=False)
    errors = Errors.of(tours.log_likelihood[legal], wanted[legal], result.gradient, expected)
    unavoidable = replace(errors, mean_likelihood=0.0, largest_likelihood=0.0, gradient=0.0)
    if probe.bfloat16:
        with bfloat16_products(instances.locs.device, True):
            rounded = plain.score(policy, probe.embeddings, instances, replayed.decisions)
        rounded_gradient = probe.gradient(plain, replayed.decisions, tours.cost, bfloat16=True)
        unavoidable = Errors.of(rounded[legal], wanted[legal], rounded_gradient, expected)
    return Agreement(
        bfloat16=probe.bfloat16,
        num_tours=legal.numel(),
        illegal_tours=int((replayed.legal != legal).sum()),
        cost_difference=float((replayed.cost - tours.cost).abs().masked_fill(~(legal & replayed.legal), 0.0).max()),
        errors=errors,
        unavoidable=unavoidable,
    )
