"""Inference: greedy decoding from all starts under the eight symmetries, best tour of each instance.

Shape legend: B instances, A symmetries, S starts, T actions, N nodes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from polarvrp.decoding.engine import Engine, make_engine
from polarvrp.decoding.rollout import multi_start
from polarvrp.environment.environment import Environment, Protocol
from polarvrp.errors import InfeasibleTourError
from polarvrp.model.policy import Policy
from polarvrp.problem.instances import Instances
from polarvrp.problem.tours import flat_actions

ENTRIES_PER_BATCH = {"cpu": 1 << 21, "cuda": 1 << 27}
"""Tours times nodes decoded at once: bounds the memory of the logits and masks of one step."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How tours are searched at inference.

    Attributes:
        augmentations: Number of symmetries, 1 to 8.
        max_starts: Starts per symmetry, None for all.
        protocol: Rules of mixed backhauls and of illegal starts (``environment.Environment``).
        engine: One of ``decoding.engine.LEVELS``.
    """

    augmentations: int = 8
    max_starts: int | None = None
    protocol: Protocol = "strict"
    engine: str = "auto"


def solve_greedily(policy: Policy, instances: Instances[Tensor], decoding: Decoding) -> tuple[Tensor, list[list[int]]]:
    """Best tour of each instance.

    Args:
        policy: Trained policy on the instances' device.
        instances: Instances of one size; each must be servable.
        decoding: Effort and rules.

    Returns:
        Costs as the environment sums them, float, ``[B]``, and the tours as flat action lists.
    """
    costs, tours = [], []
    bfloat16 = torch.is_autocast_enabled(instances.locs.device.type)
    engine = make_engine(policy, instances.num_nodes, decoding.engine, bfloat16=bfloat16)
    rows = decoding.augmentations * instances.num_depots * (decoding.max_starts or instances.num_customers)
    size = max(_entries(instances) // (rows * instances.num_nodes), 1)
    for start in range(0, len(instances), size):
        cost, actions = _solve_batch(engine, policy, instances[start : start + size], decoding)
        costs.append(cost)
        tours += actions
    return torch.cat(costs), tours


@torch.inference_mode()
def _solve_batch(
    engine: Engine, policy: Policy, instances: Instances[Tensor], decoding: Decoding
) -> tuple[Tensor, list[list[int]]]:
    environment = Environment(instances, decoding.protocol).symmetric(decoding.augmentations)
    augmented = environment.instances
    embeddings = policy.encode(augmented).embeddings
    cost = torch.full((len(augmented),), torch.inf, dtype=augmented.locs.dtype, device=augmented.locs.device)
    actions = torch.zeros(len(augmented), environment.max_actions, dtype=torch.int64, device=cost.device)
    starts = multi_start(environment, decoding.max_starts)
    rows = max(_entries(instances) // (len(augmented) * instances.num_nodes), 1)
    for part in torch.split(starts, rows):
        tours = engine.rollout(policy, embeddings, environment, part)
        if int(tours.overflow[0]):
            raise InfeasibleTourError("these instances have customers nobody can serve; engine parallel names one")
        found, row = tours.cost.min(1)
        # Beyond the longest possible tour there is only padding.
        taken = tours.actions[torch.arange(len(row), device=row.device), row, : actions.shape[1]]
        taken = functional.pad(taken, (0, actions.shape[1] - taken.shape[1]))
        actions = torch.where((found < cost)[:, None], taken, actions)
        cost = torch.minimum(found, cost)
    cost, symmetry = cost.view(decoding.augmentations, len(instances)).min(0)
    chosen = symmetry * len(instances) + torch.arange(len(instances), device=symmetry.device)
    return cost, [flat_actions(tour, instances.num_depots) for tour in actions[chosen].tolist()]


def _entries(instances: Instances[Tensor]) -> int:
    return ENTRIES_PER_BATCH[instances.locs.device.type]
