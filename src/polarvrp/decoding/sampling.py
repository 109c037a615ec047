"""Random numbers of a rollout that do not depend on how a batch is split.

Shape legend: B instances of a part, S tours of each, A instances of the whole batch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sampler:
    """Source of the samples of some instances of a batch.

    What an instance draws depends on the generator's seed and on its place in the whole batch: halves of a batch, or
    the shares of several GPUs, draw what the whole batch would on one.

    Attributes:
        generator: Freshly seeded, on the device.
        first: Place of the first instance in the whole batch.
        total: A; ``None`` if the instances are the whole batch.
    """

    generator: torch.Generator
    first: int = 0
    total: int | None = None

    def uniform(self, like: Tensor) -> Tensor:
        """Next numbers in [0, 1) of each tour, ``[B, S, 1]`` in the dtype of ``like`` (``[B, S, ...]``)."""
        batch, rows = like.shape[:2]
        shape = (self.total or batch, rows, 1)
        numbers = torch.rand(shape, generator=self.generator, device=like.device, dtype=like.dtype)
        return numbers[self.first : self.first + batch]

    def seed(self) -> Tensor:
        """A seed for kernels that count their numbers themselves (by place in the whole batch), int64, ``[1]``."""
        device = self.generator.device
        return torch.randint(0, 2**62, (1,), generator=self.generator, device=device)
