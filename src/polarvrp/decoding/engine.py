"""Engine levels: two ways to compute the same rollouts and gradients, behind one interface.

=============  =====================================================  ==============================================
level          how                                                    where
=============  =====================================================  ==============================================
``parallel``   steps batched over all tours; all decisions scored in  every network, CPU and GPU, any size
               one pass with gradients
``fused``      one kernel rolls out all tours to their end; kernels   plain, gated and ReLD pointer decoders on a GPU
               score packed decisions; nothing waits for the host     of up to 128 nodes
=============  =====================================================  ==============================================
"""

import logging
from collections.abc import Iterable
from importlib.util import find_spec
from itertools import product
from typing import Protocol

import torch
from torch import Tensor

from polarvrp.decoding.host_copy import HostCopy
from polarvrp.decoding.parallel import ParallelEngine
from polarvrp.decoding.rollout import Decisions, Replay, Rollout
from polarvrp.decoding.sampling import Sampler
from polarvrp.environment.environment import Environment
from polarvrp.environment.environment import Protocol as Rules
from polarvrp.errors import ConfigError, EngineError
from polarvrp.model.policy import Policy
from polarvrp.problem.instances import Instances
from polarvrp.problem.variants import TRAINING_KIND, Kind

logger = logging.getLogger(__name__)

LEVELS = ("auto", "parallel", "fused")

_told: set[str] = set()
"""Faults that this process has logged."""


class Engine(Protocol):
    """Interface of an engine level, all that trainer and evaluator know of it.

    Attributes:
        level: ``parallel`` or ``fused``.
        capturable: Whether no shape depends on values and nothing waits for the device, so that calls can be
            captured in a CUDA graph; results are then judged by ``synchronize``.
    """

    level: str
    capturable: bool

    def rollout(
        self,
        policy: Policy,
        embeddings: Tensor,
        environment: Environment,
        starts: Tensor,
        sampler: Sampler | None = None,
        *,
        greedy_last: bool = False,
        record: bool = False,
    ) -> Rollout:
        """Rollout of S tours per instance, without gradients.

        Args:
            policy: Gives the probabilities.
            embeddings: Node embeddings of the instances, float, ``[B, N, d]``.
            environment: The instances.
            starts: Forced first actions, int64, ``[S, F]``.
            sampler: Source of the samples; without one every row takes the most probable action.
            greedy_last: Let the last row take the most probable actions while the others sample.
            record: Keep the decisions for scoring.

        Raises:
            InfeasibleTourError: If some customer cannot be served; a capturable engine counts it in ``overflow``
                instead.
        """

    def usage(self, tours: Rollout) -> HostCopy:
        """How much room recorded tours took and whether it was enough, on its way to main memory."""

    def synchronize(self, environment: Environment, tours: Rollout, usage: HostCopy) -> None:
        """Wait for recorded tours, and for nothing launched after them; check that no buffer overflowed.

        Args:
            environment: The instances.
            tours: Recorded.
            usage: Theirs.

        Raises:
            InfeasibleTourError: If some customer cannot be served.
            BufferOverflowError: If decisions found no room; there is more now, so the rollout is to be made again.
        """

    def resize_buffers(self) -> bool:
        """Fit buffers to what was needed since the last call; whether captured calls are void by that."""

    def replay(
        self, environment: Environment, actions: Tensor, num_free: int = 0, scorer: Policy | None = None
    ) -> Replay:
        """Replay given tours.

        Args:
            environment: The instances.
            actions: Nodes in order, padded with depots, int64, ``[B, S, T]``.
            num_free: First actions that are not decisions, as the forced ones of a rollout.
            scorer: What will score the decisions; needed for a mixture of experts in training, whose noise is drawn.
        """

    def score(self, policy: Policy, embeddings: Tensor, instances: Instances[Tensor], decisions: Decisions) -> Tensor:
        """Log-likelihood of each tour, without gradients.

        Args:
            policy: Gives the probabilities.
            embeddings: Node embeddings of the instances, float, ``[B, N, d]``.
            instances: The instances.
            decisions: Of S tours of each.

        Returns:
            Float32 (float64 if the policy is), ``[B, S]``.
        """

    def score_gradient(
        self,
        policy: Policy,
        embeddings: Tensor,
        instances: Instances[Tensor],
        decisions: Decisions,
        coefficients: Tensor,
    ) -> None:
        """Add the gradient of ``sum(coefficients * log_likelihood)`` to the decoder's parameters and ``embeddings``.

        Args:
            policy: Gives the probabilities.
            embeddings: Leaf that requires gradients, float, ``[B, N, d]``; its ``grad`` is the encoder's share.
            instances: The instances.
            decisions: Of S tours of each.
            coefficients: Derivative of the loss by each tour's log-likelihood, float, ``[B, S]``.
        """


def make_engine(
    policy: Policy,
    num_nodes: int,
    level: str = "auto",
    *,
    bfloat16: bool = True,
    kinds: Iterable[Kind] = (TRAINING_KIND,),
    protocols: Iterable[Rules] | None = None,
) -> Engine:
    """The engine of a level; ``auto`` takes the fastest that serves this network, size, device and precision.

    Args:
        policy: On its device.
        num_nodes: N of the instances to come.
        level: One of ``LEVELS``.
        bfloat16: Whether matrix products will run in bfloat16; kernels for float32 are right but spill registers.
        kinds: Of the instances to come; on a card level ``fused`` must be right on each.
        protocols: Rules of an inference, which builds greedy tours alone; on a card they must be right by each.
            ``None`` for trainings, which sample, differentiate and capture as well.

    Raises:
        ConfigError: If that level does not serve them; the message says why.
        EngineError: If level ``fused`` is asked for and fails its self-check on this card.
    """
    if level not in LEVELS:
        raise ConfigError(f"engine must be one of {', '.join(LEVELS)}, got {level!r}")
    if level == "parallel" or (level == "auto" and not (on_card(policy) and bfloat16)):
        return ParallelEngine()
    obstacle = fused_obstacle(policy, num_nodes)
    if obstacle is not None:
        if level == "fused":
            raise ConfigError(f"engine fused does not serve this network: {obstacle}; use engine parallel")
        return ParallelEngine()
    from polarvrp.decoding.fused.engine import FusedEngine
    from polarvrp.decoding.fused.self_check import fault_of

    checked = product(kinds, (None,) if protocols is None else protocols) if on_card(policy) else ()
    faults = (fault_of(policy, num_nodes, kind, rules, bfloat16=bfloat16) for kind, rules in checked)
    fault = next(filter(None, faults), None)
    if fault is None:
        engine: Engine = FusedEngine()
        return engine
    if level == "fused":
        raise EngineError(f"engine fused fails its self-check on this card: {fault}; use engine parallel")
    if fault not in _told:
        _told.add(fault)
        logger.warning("engine fused fails its self-check on this card: %s; engine parallel is used", fault)
    return ParallelEngine()


def on_card(policy: Policy) -> bool:
    """Whether a network is on a GPU, where kernels are compiled and must show what they can do."""
    return next(policy.parameters()).device.type == "cuda"


def fused_obstacle(policy: Policy, num_nodes: int) -> str | None:
    """Why the fused level cannot serve these, or ``None``."""
    if find_spec("triton") is None:
        return "triton is not installed"
    from polarvrp.decoding.fused import rollout as fused_rollout

    if not on_card(policy) and not fused_rollout.interpreted():
        return f"it needs a CUDA device, not {next(policy.parameters()).device}"
    if next(policy.parameters()).dtype == torch.float64:
        return "it computes in float32 and bfloat16 only"
    return fused_rollout.supports(policy, num_nodes)
