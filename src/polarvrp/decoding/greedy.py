"""Inference: greedy decoding from all starts under the eight symmetries, best tour of each instance.

Shape legend: B instances, A symmetries, S starts, T actions, N nodes.
"""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from polarvrp.decoding.engine import Engine, make_engine
from polarvrp.decoding.rollout import Rollout, multi_start, stuck_tours
from polarvrp.environment.environment import Environment, Protocol
from polarvrp.errors import is_out_of_memory
from polarvrp.model.policy import Policy
from polarvrp.model.precision import bfloat16_products
from polarvrp.problem.instances import Instances
from polarvrp.problem.symmetries import NUM_SYMMETRIES
from polarvrp.problem.tours import flat_tours

logger = logging.getLogger(__name__)

ENTRIES_PER_BATCH = {"cpu": 1 << 21, "cuda": 1 << 27}
"""Tours times nodes decoded at once: bounds the memory of the logits and masks of one step."""


Solved: TypeAlias = tuple[Tensor, list[list[int]]]
"""Costs and tours of some instances."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How tours are searched at inference.

    Attributes:
        augmentations: Number of symmetries, 1 to 8.
        max_starts: Starts per symmetry, None for all.
        protocols: Rules of mixed backhauls and of illegal starts (``environment.Environment``); several are decoded in
            one pass.
        engine: One of ``decoding.engine.LEVELS``.
    """

    augmentations: int = NUM_SYMMETRIES
    max_starts: int | None = None
    protocols: tuple[Protocol, ...] = ("strict",)
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

    def engine(self, instances: Instances[Any]) -> Engine:
        """The engine that serves instances of that size and kind."""
        made = make_engine(
            self.policy,
            instances.num_nodes,
            self.decoding.engine,
            bfloat16=self.bfloat16,
            kinds=[instances.kind],
            protocols=[rules for rules, _ in rollouts_by_protocol(instances, self.decoding.protocols)],
        )
        return self._engines.setdefault(made.level, made)

    def solve(self, instances: Instances[Tensor]) -> Solved:
        """Best tour of each instance by the first protocol; arguments and result as of :meth:`solve_each`."""
        return self.solve_each(instances)[0]

    def solve_each(self, instances: Instances[Tensor]) -> list[Solved]:
        """Best tour of each instance by each protocol.

        Args:
            instances: Instances of one size on the solver's device; each must be servable.

        Returns:
            By protocol: costs as the environment sums them, float, ``[B]``, and the tours as flat action lists.
        """
        batches: list[list[Solved]] = []
        done = 0
        decoding, device = self.decoding, instances.locs.device
        # Kernels are launched on the current device, wherever their arguments lie.
        current = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
        with current, bfloat16_products(device, self.bfloat16):
            engine = self.engine(instances)
            while done < len(instances):
                rows = decoding.augmentations * instances.num_depots * (decoding.max_starts or instances.num_customers)
                entries = max(ENTRIES_PER_BATCH[device.type] // self._shrunk, 1)
                size = max(entries // (rows * instances.num_nodes), 1)
                chunk = instances[done : done + size]
                try:
                    batches.append(_solve_batch(engine, self.policy, chunk, decoding, entries))
                except RuntimeError as error:
                    if not is_out_of_memory(error) or entries <= decoding.augmentations * instances.num_nodes:
                        raise
                    self._halve()
                    continue
                done += len(chunk)
        return [
            (torch.cat([cost for cost, _ in parts]), [tour for _, tours in parts for tour in tours])
            for parts in zip(*batches, strict=True)
        ]

    def _halve(self) -> None:
        """Decode half as much at once from now on; what the device keeps for reuse goes back."""
        self._shrunk *= 2
        logger.warning("out of memory: from here on tours are decoded in parts of 1/%d of the usual size", self._shrunk)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def rollouts_by_protocol(
    instances: Instances[Any], protocols: Sequence[Protocol]
) -> list[tuple[Protocol, tuple[Protocol, ...]]]:
    """Rollouts that a pass needs: the rules of each, and the protocols that its tours serve.

    Rules of the vehicle's load differ with mixed backhauls only; elsewhere the protocols choose among the same tours.
    """
    together = len(protocols) > 1 and not instances.has_mixed_backhauls
    return [("published", tuple(protocols))] if together else [(protocol, (protocol,)) for protocol in protocols]


@torch.inference_mode()
def _solve_batch(
    engine: Engine, policy: Policy, instances: Instances[Tensor], decoding: Decoding, entries: int
) -> list[Solved]:
    """Best tours of a batch by each protocol; the batch is encoded once."""
    rollouts = [
        (Environment(instances, rules).symmetric(decoding.augmentations), served)
        for rules, served in rollouts_by_protocol(instances, decoding.protocols)
    ]
    augmented = rollouts[0][0].instances
    embeddings = policy.encode(augmented).embeddings
    best: dict[Protocol, _Best] = {}
    for environment, served in rollouts:
        best |= {protocol: _Best(environment) for protocol in served}
        starts = multi_start(environment, decoding.max_starts)
        rows = max(entries // (len(augmented) * instances.num_nodes), 1)
        for part in torch.split(starts, rows):
            tours = engine.rollout(policy, embeddings, environment, part)
            if int(tours.overflow[0]):
                message = "these instances have customers nobody can serve; engine parallel names one"
                raise stuck_tours(tours.log_likelihood, message)
            for protocol in served:
                best[protocol].update(tours, protocol)
    return [best[protocol].of_symmetries(len(instances), instances.num_depots) for protocol in decoding.protocols]


class _Best:
    """Best tours of the symmetric copies of a batch so far.

    Args:
        environment: The copies.
    """

    def __init__(self, environment: Environment) -> None:
        copies = environment.instances
        locs = copies.locs
        self._cost = torch.full((len(copies),), torch.inf, dtype=locs.dtype, device=locs.device)
        self._actions = torch.zeros(len(copies), environment.max_actions, dtype=torch.int64, device=locs.device)

    def update(self, tours: Rollout, protocol: Protocol) -> None:
        """Take the tours that a protocol admits and that are shorter."""
        admitted = tours.cost if protocol == "published" else tours.cost.masked_fill(~tours.legal, torch.inf)
        found, row = admitted.min(1)
        # Beyond the longest possible tour there is only padding.
        taken = tours.actions[torch.arange(len(row), device=row.device), row, : self._actions.shape[1]]
        taken = functional.pad(taken, (0, self._actions.shape[1] - taken.shape[1]))
        self._actions = torch.where((found < self._cost)[:, None], taken, self._actions)
        self._cost = torch.minimum(found, self._cost)

    def of_symmetries(self, num_instances: int, num_depots: int) -> Solved:
        """The best over the symmetries of each instance."""
        cost, symmetry = self._cost.view(-1, num_instances).min(0)
        chosen = symmetry * num_instances + torch.arange(num_instances, device=symmetry.device)
        return cost, flat_tours(self._actions[chosen].cpu().numpy(), num_depots)
