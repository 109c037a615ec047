"""Check of a level's greedy tours, as inference builds them, against level ``parallel`` in float32.

Where two nodes are almost equally probable rounding decides, and the rest of the tour follows from that. So tours are
not compared with other tours: each is replayed, and its actions are measured against the most probable ones where they
were taken.

Shape legend: B instances, S tours per instance, N nodes, d width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from polarvrp.decoding.level_check import BARS as LIKELIHOOD_BARS
from polarvrp.decoding.level_check import MARGINS as LIKELIHOOD_MARGINS
from polarvrp.decoding.parallel import ParallelEngine
from polarvrp.decoding.rollout import multi_start
from polarvrp.decoding.scoring import most_probable_actions, score
from polarvrp.decoding.steps import ScoredSteps
from polarvrp.environment.environment import Environment
from polarvrp.model.policy import Policy
from polarvrp.model.precision import bfloat16_products, no_autocast
from polarvrp.problem.instances import Instances

if TYPE_CHECKING:
    from polarvrp.decoding.engine import Engine

BARS = {True: 0.1, False: 1e-3}
"""Log-likelihood that a greedy tour may forgo in the mean, by whether products run in bfloat16."""

MARGIN = 2.0
"""How many times what the most probable actions of level ``parallel`` in the same precision forgo passes as well."""


def greedy_problem(
    engine: Engine, policy: Policy, environment: Environment, embeddings: Tensor, *, bfloat16: bool
) -> str | None:
    """What is wrong with the greedy tours of all starts, None if nothing is.

    Args:
        engine: The level.
        policy: On its device.
        environment: The instances, and the rules by which tours compete.
        embeddings: Of their nodes, bfloat16 or float32, ``[B, N, d]``.
        bfloat16: Whether matrix products run in bfloat16.
    """
    starts = multi_start(environment)
    with bfloat16_products(embeddings.device, bfloat16):
        tours = engine.rollout(policy, embeddings, environment, starts)
    replayed = ParallelEngine(graphed=False).replay(environment, tours.actions, num_free=starts.shape[1])
    priced = tours.cost.isfinite()
    wrong = (replayed.legal != tours.legal) | (priced != environment.admitted(tours.legal))
    if wrong.any():
        return f"{int(wrong.sum())} of {wrong.numel()} greedy tours break a rule or lack a cost"
    difference = float((replayed.cost - tours.cost).abs().masked_fill(~priced, 0.0).max())
    if difference > 0:
        return f"costs of greedy tours differ by up to {difference:.2g}"
    decisions, instances, legal = replayed.decisions, environment.instances, replayed.legal
    with no_autocast(embeddings.device):  # whatever surrounds the check
        wanted = score(policy, embeddings.float(), instances, decisions)
    error, allowed = float((tours.log_likelihood - wanted)[legal].abs().mean()), LIKELIHOOD_BARS[bfloat16][0]
    if bfloat16:
        with bfloat16_products(embeddings.device, True):
            rounded = score(policy, embeddings, instances, decisions)
        allowed = max(allowed, LIKELIHOOD_MARGINS[0] * float((rounded - wanted)[legal].abs().mean()))
    if not error <= allowed:  # not a number is a problem too
        return f"mean likelihood error of greedy tours is {error:.2g}, more than {allowed:.2g}"
    return forgone_problem(policy, embeddings, instances, decisions, legal, bfloat16=bfloat16)


def forgone_problem(
    policy: Policy,
    embeddings: Tensor,
    instances: Instances[Tensor],
    decisions: ScoredSteps,
    legal: Tensor,
    *,
    bfloat16: bool,
) -> str | None:
    """Whether greedy tours take less probable actions than rounding excuses; how much that costs them.

    Args:
        policy: On its device.
        embeddings: Of the nodes, bfloat16 or float32, ``[B, N, d]``.
        instances: The instances.
        decisions: Of greedy tours.
        legal: Tours that count, bool, ``[B, S]``.
        bfloat16: Whether matrix products ran in bfloat16.
    """
    exact = embeddings.float()

    def likelihood(actions: Tensor) -> Tensor:
        return score(policy, exact, instances, replace(decisions, action=actions))[legal]

    with no_autocast(embeddings.device):
        best = likelihood(most_probable_actions(policy, exact, instances, decisions))
        forgone = float((best - likelihood(decisions.action)).mean())
    allowed = BARS[bfloat16]
    if bfloat16:
        with bfloat16_products(embeddings.device, True):
            rounded = most_probable_actions(policy, embeddings, instances, decisions)
        with no_autocast(embeddings.device):
            allowed = max(allowed, MARGIN * float((best - likelihood(rounded)).mean()))
    if forgone <= allowed:
        return None
    return f"greedy tours forgo {forgone:.2g} of log-likelihood, more than {allowed:.2g}"
