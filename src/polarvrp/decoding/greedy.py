"""Inference: greedy decoding from all starts under the eight symmetries, best tour of each instance.

Shape legend: B instances, A symmetries, S starts, T actions, N nodes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from polarvrp.decoding.rollout import multi_start, rollout
from polarvrp.environment.environment import Environment, MixedBackhaulRule
from polarvrp.model.policy import DecoderCache, Policy
from polarvrp.problem.instances import Instances
from polarvrp.problem.symmetries import augment
from polarvrp.problem.tours import flat_actions

ENTRIES_PER_BATCH = {"cpu": 1 << 21, "cuda": 1 << 27}
"""Tours times nodes decoded at once: bounds the memory of the logits and masks of one step."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How tours are searched at inference.

    Attributes:
        augmentations: Number of symmetries, 1 to 8.
        max_starts: Starts per symmetry, None for all.
        mixed_backhauls: Load rule of mixed backhauls.
    """

    augmentations: int = 8
    max_starts: int | None = None
    mixed_backhauls: MixedBackhaulRule = "strict"


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
    rows = decoding.augmentations * instances.num_depots * (decoding.max_starts or instances.num_customers)
    size = max(_entries(instances) // (rows * instances.num_nodes), 1)
    for start in range(0, len(instances), size):
        cost, actions = _solve_batch(policy, instances[start : start + size], decoding)
        costs.append(cost)
        tours += actions
    return torch.cat(costs), tours


@torch.inference_mode()
def _solve_batch(policy: Policy, instances: Instances[Tensor], decoding: Decoding) -> tuple[Tensor, list[list[int]]]:
    augmented = augment(instances, decoding.augmentations)
    environment = Environment(augmented, decoding.mixed_backhauls)
    cache = policy.cache(policy.encode(augmented).embeddings, augmented)
    best = torch.full((len(augmented),), torch.inf, dtype=augmented.locs.dtype, device=augmented.locs.device)
    tours: list[Tensor] = [best.new_zeros(0, dtype=torch.int64)] * len(augmented)
    starts = multi_start(environment, decoding.max_starts)
    size = max(_entries(instances) // (len(augmented) * instances.num_nodes), 1)
    for part in torch.split(starts, size):
        best, tours = _improve(policy, cache, environment, part, best, tours)
    per_symmetry = best.view(decoding.augmentations, len(instances))
    cost, symmetry = per_symmetry.min(0)
    chosen = (symmetry * len(instances) + torch.arange(len(instances), device=symmetry.device)).tolist()
    return cost, [flat_actions(tours[index].tolist(), instances.num_depots) for index in chosen]


def _improve(
    policy: Policy, cache: DecoderCache, environment: Environment, starts: Tensor, best: Tensor, tours: list[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Best costs and tours after trying more starts."""
    result = rollout(policy, cache, environment, starts)
    cost, row = result.cost.min(1)
    actions = result.actions.gather(1, row[:, None, None].expand(-1, 1, result.actions.shape[2])).squeeze(1).cpu()
    better = (cost < best).tolist()
    tours = [actions[i] if better[i] else tours[i] for i in range(len(tours))]
    return torch.minimum(cost, best), tours


def _entries(instances: Instances[Tensor]) -> int:
    return ENTRIES_PER_BATCH[instances.locs.device.type]
