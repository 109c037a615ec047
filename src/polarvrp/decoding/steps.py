"""Recorded transitions, and their decisions packed for scoring in one parallel pass.

The decoder is Markov: a decision depends on the node embeddings, the current node, five numbers and the mask. So
the steps of all tours can be scored at once, in any order. Only real decisions are kept: forced first actions,
steps with one legal action and steps after the end have probability one and no gradient.

Shape legend: B instances, S tours per instance, T actions, M packed decisions per instance, N nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from polarvrp.decoding.masks import to_words
from polarvrp.environment.environment import Environment
from polarvrp.environment.state import State


@dataclass(frozen=True, slots=True)
class ScoredSteps:
    """Packed decisions, padded to the same number M for each instance.

    Attributes:
        row: Tour that made the decision, int64, ``[B, M]``.
        current: Node where it was made, int64, ``[B, M]``.
        features: What the decoder saw of the state, float, ``[B, M, 5]``.
        mask: Legal actions (``decoding.masks``), int64, ``[B, M, W]``.
        action: Node chosen, int64, ``[B, M]``.
        valid: False on padding, bool, ``[B, M]``.
        noise: What the decoder routed it by (``Policy.routing_noise``), float, ``[B, M, R]``.
        num_rows: S.
        num_actions: T, actions of the longest tour.
    """

    row: Tensor
    current: Tensor
    features: Tensor
    mask: Tensor
    action: Tensor
    valid: Tensor
    noise: Tensor
    num_rows: int
    num_actions: int


@dataclass(frozen=True, slots=True)
class Moves:
    """Transitions of S tours per instance, step by step.

    Attributes:
        current: Where each tour stood, int64, ``[B, t, S]``.
        features: What the decoder sees of the state, float, ``[B, t, S, 5]``.
        mask: Legal actions (``decoding.masks``), int64, ``[B, t, S, W]``.
        action: Node chosen, int64, ``[B, t, S]``.
        decided: Whether that was a decision, bool, ``[B, t, S]``.
        noise: What the decoder routes it by (``Policy.routing_noise``), float, ``[B, t, S, R]``.
    """

    current: Tensor
    features: Tensor
    mask: Tensor
    action: Tensor
    decided: Tensor
    noise: Tensor

    @classmethod
    def of(
        cls, current: Tensor, features: Tensor, mask: Tensor, action: Tensor, decided: Tensor, noise: Tensor
    ) -> "Moves":
        """One step, from tensors without the axis of steps and a mask of bools."""
        return cls(*(tensor.unsqueeze(1) for tensor in (current, features, to_words(mask), action, decided, noise)))

    @classmethod
    def join(cls, parts: Sequence["Moves"]) -> "Moves":
        """Steps that follow each other."""
        names = [field.name for field in fields(cls)]
        return cls(*(torch.cat([getattr(part, name) for part in parts], dim=1) for name in names))

    def pack(self) -> ScoredSteps:
        """The decisions, those of one instance side by side.

        M is the largest number of decisions of any instance, so its value depends on the data.
        """
        decided = self.decided.flatten(1)  # [B, T * S]
        _, num_actions, num_rows = self.decided.shape
        capacity = max(int(decided.sum(1).max()), 1)
        order = torch.argsort(decided.to(torch.uint8), dim=1, descending=True, stable=True)[:, :capacity]

        def packed(values: Tensor) -> Tensor:
            flat = values.flatten(1, 2)  # [B, T * S, ...]
            index = order.view(*order.shape, *([1] * (flat.dim() - 2))).expand(-1, -1, *flat.shape[2:])
            return flat.gather(1, index)

        return ScoredSteps(
            row=order % num_rows,
            current=packed(self.current),
            features=packed(self.features),
            mask=packed(self.mask),
            action=packed(self.action),
            valid=decided.gather(1, order),
            noise=packed(self.noise),
            num_rows=num_rows,
            num_actions=num_actions,
        )


def is_decision(environment: Environment, state: State) -> Tensor:
    """Rows with more than one legal action and customers left to serve, bool, ``[B, S]``."""
    return (state.mask.sum(-1, dtype=torch.int32) > 1) & ~environment.all_served(state)
