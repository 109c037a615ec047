"""Data parallelism: the processes of a training, one, or several of ``torchrun`` with a GPU of its own each.

Every process draws the whole batch and works on its share of the instances; gradients and sums are added up. So the
results are those of one process, up to the rounding of sums.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed

from polarvrp.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Share:
    """Consecutive instances of a batch.

    Attributes:
        first: Place of the first one.
        size: How many.
        total: Instances of the whole batch.
    """

    first: int
    size: int
    total: int

    @property
    def slice(self) -> slice:
        return slice(self.first, self.first + self.size)


@dataclass(frozen=True, slots=True)
class Group:
    """One process among those that share a training.

    Attributes:
        rank: Its number.
        size: How many there are.
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files and logs."""
        return self.rank == 0

    def shares(self, total: int, microbatches: int) -> list[Share]:
        """This process's share of a batch, in at most that many microbatches of nearly equal size.

        Raises:
            ConfigError: If a process would get no instance.
        """
        if total < self.size:
            raise ConfigError(f"a batch of {total} instances cannot be shared by {self.size} processes; start fewer")
        count = min(microbatches, total // self.size)
        bounds = [total * number // (self.size * count) for number in range(self.size * count + 1)]
        mine = range(self.rank * count, (self.rank + 1) * count)
        return [Share(bounds[number], bounds[number + 1] - bounds[number], total) for number in mine]

    def add_up(self, tensor: Tensor) -> None:
        """Replace ``tensor`` by its sum over all processes."""
        if self.size > 1:
            distributed.all_reduce(tensor)

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether the flag is set in any process."""
        if self.size == 1:
            return flag
        flags = torch.tensor([int(flag)], device=device)
        distributed.all_reduce(flags)
        return bool(flags.item())

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            distributed.barrier()


SINGLE = Group()


def processes_here() -> int:
    """Processes of the training on this machine, which share its cores."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def is_first_process() -> bool:
    """Whether this process will lead, known before the processes have joined."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def joined_group(device: torch.device) -> Iterator[Group]:
    """The processes that ``torchrun`` started together, or this one alone.

    Args:
        device: Where this process computes; a GPU of its own, or the CPU.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield SINGLE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Group(distributed.get_rank(), size)
    finally:
        distributed.destroy_process_group()


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """All numbers of some tensors in one vector, so that they travel at once."""
    return torch.cat([tensor.flatten() for tensor in tensors])


def unflatten(vector: Tensor, tensors: Sequence[Tensor]) -> None:
    """Copy the vector of :func:`flatten` back into the tensors."""
    parts = torch.split(vector, [tensor.numel() for tensor in tensors])
    torch._foreach_copy_(list(tensors), [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)])
