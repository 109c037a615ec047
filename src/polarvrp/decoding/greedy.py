"""Inference: greedy decoding from all starts under the eight symmetries, best tour of each instance.

Shape legend: B instances, A symmetries, S starts, T actions, N nodes.
"""

import logging
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from polarvrp.decoding.engine import Engine, make_engine
from polarvrp.decoding.rollout import multi_start, stuck_tours
from polarvrp.environment.environment import Environment, Protocol
from polarvrp.errors import is_out_of_memory
from polarvrp.model.policy import Policy
from polarvrp.model.precision import bfloat16_products
from polarvrp.problem.instances import Instances
from polarvrp.problem.tours import flat_tours

logger = logging.getLogger(__name__)

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


class GreedySolver:
    """Greedy inference of one policy; its engines are kept from set to set, with what they have captured.

    Args:
        policy: Trained, on the device to compute on.
        decoding: Effort and rules.
        bfloat16: Whether matrix products run in bfloat16.
    """

    def __init__(self, policy: Policy, decoding: Decoding, bfloat16: bool) -> None:
        self.policy, self.decoding, self.bfloat16 = policy, decoding, bfloat16
        self._engines: dict[str, Engine] = {}
        self._shrunk = 1

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.policy.parameters()).device

    def engine(self, num_nodes: int) -> Engine:
        """The engine that serves instances of that many nodes."""
        made = make_engine(self.policy, num_nodes, self.decoding.engine, bfloat16=self.bfloat16)
        return self._engines.setdefault(made.level, made)

    def solve(self, instances: Instances[Tensor]) -> tuple[Tensor, list[list[int]]]:
        """Best tour of each instance.

        Args:
            instances: Instances of one size on the solver's device; each must be servable.

        Returns:
            Costs as the environment sums them, float, ``[B]``, and the tours as flat action lists.
        """
        costs: list[Tensor] = []
        tours: list[list[int]] = []
        decoding, device = self.decoding, instances.locs.device
        # Kernels are launched on the current device, wherever their arguments lie.
        current = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
        with current, bfloat16_products(device, self.bfloat16):
            engine = self.engine(instances.num_nodes)
            while len(tours) < len(instances):
                rows = decoding.augmentations * instances.num_depots * (decoding.max_starts or instances.num_customers)
                entries = max(ENTRIES_PER_BATCH[device.type] // self._shrunk, 1)
                size = max(entries // (rows * instances.num_nodes), 1)
                chunk = instances[len(tours) : len(tours) + size]
                try:
                    cost, actions = _solve_batch(engine, self.policy, chunk, decoding, entries)
                except RuntimeError as error:
                    if not is_out_of_memory(error) or entries <= decoding.augmentations * instances.num_nodes:
                        raise
                    self._halve()
                    continue
                costs.append(cost)
                tours += actions
        return torch.cat(costs), tours

    def _halve(self) -> None:
        """Decode half as much at once from now on; what the device keeps for reuse goes back."""
        self._shrunk *= 2
        logger.warning("out of memory: from here on tours are decoded in parts of 1/%d of the usual size", self._shrunk)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


@torch.inference_mode()
def _solve_batch(
    engine: Engine, policy: Policy, instances: Instances[Tensor], decoding: Decoding, entries: int
) -> tuple[Tensor, list[list[int]]]:
    environment = Environment(instances, decoding.protocol).symmetric(decoding.augmentations)
    augmented = environment.instances
    embeddings = policy.encode(augmented).embeddings
    cost = torch.full((len(augmented),), torch.inf, dtype=augmented.locs.dtype, device=augmented.locs.device)
    actions = torch.zeros(len(augmented), environment.max_actions, dtype=torch.int64, device=cost.device)
    starts = multi_start(environment, decoding.max_starts)
    rows = max(entries // (len(augmented) * instances.num_nodes), 1)
    for part in torch.split(starts, rows):
        tours = engine.rollout(policy, embeddings, environment, part)
        if int(tours.overflow[0]):
            message = "these instances have customers nobody can serve; engine parallel names one"
            raise stuck_tours(tours.log_likelihood, message)
        found, row = tours.cost.min(1)
        # Beyond the longest possible tour there is only padding.
        taken = tours.actions[torch.arange(len(row), device=row.device), row, : actions.shape[1]]
        taken = functional.pad(taken, (0, actions.shape[1] - taken.shape[1]))
        actions = torch.where((found < cost)[:, None], taken, actions)
        cost = torch.minimum(found, cost)
    cost, symmetry = cost.view(decoding.augmentations, len(instances)).min(0)
    chosen = symmetry * len(instances) + torch.arange(len(instances), device=symmetry.device)
    return cost, flat_tours(actions[chosen].cpu().numpy(), instances.num_depots)
