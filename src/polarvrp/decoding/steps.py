"""The decisions of a batch of tours, packed for scoring in one parallel pass.

The decoder is Markov: a decision depends on the node embeddings, the current node, five numbers and the mask. So
the steps of all tours can be scored at once, in any order. Only real decisions are kept: forced first actions,
steps with one legal action and steps after the end have probability one and no gradient.

Shape legend: B instances, S tours per instance, T actions, M packed decisions per instance, N nodes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from polarvrp.environment.environment import Environment
from polarvrp.environment.state import State


@dataclass(frozen=True, slots=True)
class ScoredSteps:
    """Decisions of each instance's tours, padded to the same number M.

    Attributes:
        row: Tour that made the decision, int64, ``[B, M]``.
        current: Node where it was made, int64, ``[B, M]``.
        features: What the decoder saw of the state, float, ``[B, M, 5]``.
        mask: Legal actions, bool, ``[B, M, N]``.
        action: Node chosen, int64, ``[B, M]``.
        valid: False on padding, bool, ``[B, M]``.
        num_rows: S.
        num_actions: T, actions of the longest tour.
    """

    row: Tensor
    current: Tensor
    features: Tensor
    mask: Tensor
    action: Tensor
    valid: Tensor
    num_rows: int
    num_actions: int


class StepRecorder:
    """Collects the steps of a walk through the environment."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._parts: dict[str, list[Tensor]] = {"current": [], "features": [], "mask": [], "action": []}
        self._decided: list[Tensor] = []

    def add(self, state: State, action: Tensor, decided: Tensor) -> None:
        """Record ``action`` taken in ``state``; ``decided`` says in which rows it was a decision, ``[B, S]``."""
        self._parts["current"].append(state.current)
        self._parts["features"].append(self._environment.features(state))
        self._parts["mask"].append(state.mask)
        self._parts["action"].append(action)
        self._decided.append(decided)

    def pack(self) -> ScoredSteps:
        """All recorded decisions, those of one instance side by side.

        M is the largest number of decisions of any instance, so its value depends on the data.
        """
        decided = torch.stack(self._decided, dim=1).flatten(1)  # [B, T * S]
        num_rows = self._decided[0].shape[1]
        capacity = max(int(decided.sum(1).max()), 1)
        order = torch.argsort(decided.to(torch.uint8), dim=1, descending=True, stable=True)[:, :capacity]

        def packed(parts: list[Tensor]) -> Tensor:
            flat = torch.stack(parts, dim=1).flatten(1, 2)  # [B, T * S, ...]
            index = order.view(*order.shape, *([1] * (flat.dim() - 2))).expand(-1, -1, *flat.shape[2:])
            return flat.gather(1, index)

        parts = {name: packed(tensors) for name, tensors in self._parts.items()}
        valid = decided.gather(1, order)
        return ScoredSteps(
            row=order % num_rows, valid=valid, num_rows=num_rows, num_actions=len(self._decided), **parts
        )


def is_decision(environment: Environment, state: State) -> Tensor:
    """Rows with more than one legal action and customers left to serve, bool, ``[B, S]``."""
    return (state.mask.sum(-1) > 1) & ~environment.all_served(state)
