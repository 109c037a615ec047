"""Shared-memory tables of instances and tours; free of torch and of PyVRP.

A table holds a batch of instances, k tours of each and room for the refined ones. Its memory begins with its shape,
so a process that knows the name of a segment knows all.

Shape legend: B instances, N nodes, k tours per instance, T actions of a given tour, R actions of a refined one.
"""

import dataclasses
import fcntl
import math
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from polarvrp.errors import DataError
from polarvrp.problem.instances import INSTANCE_ARRAYS, Instances, NodeArrays
from polarvrp.problem.tours import flat_actions, most_actions

Rows: TypeAlias = tuple[str, int, int]
"""Work of a process: name of a segment, first instance, and the one after the last."""

ALIGNMENT = 64

PREFIX = "polarvrp-"
FOLDER = Path("/dev/shm")
"""Where segments appear as files on Linux; other systems do not show them."""

SECONDS_TO_LOCK = 60.0
"""Younger segments may be about to be locked."""

SEEDS = 2**32
"""PyVRP's generator takes seeds below it; larger ones are reduced."""


@dataclass(frozen=True, slots=True)
class RefinedTour:
    """Refined tour, or the original where nothing better was found.

    Attributes:
        actions: The better tour in flat form, or the original one.
        cost: Its exact cost in float64.
        improved: Whether it is strictly shorter than the original.
    """

    actions: list[int]
    cost: float
    improved: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of a table.

    Attributes:
        num_instances: B.
        num_nodes: N.
        num_depots: K.
        capacity: Of the vehicles.
        num_tours: k.
        length: T.
        float_bytes: Width of the instances' floats.
    """

    num_instances: int
    num_nodes: int
    num_depots: int
    capacity: int
    num_tours: int
    length: int
    float_bytes: int

    @property
    def refined_length(self) -> int:
        """R: the most actions of an environment, which no tour in flat form exceeds."""
        return most_actions(self.num_nodes - self.num_depots, self.num_depots)

    def arrays(self) -> Iterator[tuple[str, np.dtype[Any], tuple[int, ...]]]:
        """Names, types and shapes in the order of memory."""
        batch, nodes, real = self.num_instances, self.num_nodes, np.dtype(f"f{self.float_bytes}")
        whole, truth = np.dtype(np.int64), np.dtype(np.bool_)
        yield "locs", real, (batch, nodes, 2)
        yield "demand_linehaul", real, (batch, nodes)
        yield "demand_backhaul", real, (batch, nodes)
        yield "time_windows", real, (batch, nodes, 2)
        yield "service_time", real, (batch, nodes)
        yield "distance_limit", real, (batch,)
        yield "open_route", truth, (batch,)
        yield "backhaul_class", whole, (batch,)
        yield "flags", truth, (batch, 6)
        yield "actions", whole, (batch, self.num_tours, self.length)
        yield "seeds", whole, (batch, self.num_tours)
        yield "refined", whole, (batch, self.num_tours, self.refined_length)
        yield "cost", np.dtype(np.float64), (batch, self.num_tours)
        yield "improved", truth, (batch, self.num_tours)

    @property
    def num_bytes(self) -> int:
        """Of the segment."""
        return ALIGNMENT + sum(_padded(dtype.itemsize * math.prod(shape)) for _, dtype, shape in self.arrays())


class Table:
    """Instances, tours and results as arrays over a piece of memory.

    Args:
        buffer: As large as the shape asks for.
        shape: None to read it from the buffer.
    """

    def __init__(self, buffer: Any, shape: Shape | None = None) -> None:
        header: NodeArrays = np.ndarray((len(dataclasses.fields(Shape)),), np.int64, buffer)
        if shape is None:
            shape = Shape(*header.tolist())
        header[:] = dataclasses.astuple(shape)
        self.shape = shape
        self.arrays: dict[str, NodeArrays] = {}
        offset = ALIGNMENT
        for name, dtype, extent in shape.arrays():
            self.arrays[name] = np.ndarray(extent, dtype, buffer, offset)
            offset += _padded(dtype.itemsize * math.prod(extent))

    @property
    def instances(self) -> Instances[NodeArrays]:
        """The instances where they lie."""
        arrays = {name: self.arrays[name] for name in INSTANCE_ARRAYS}
        return Instances(**arrays, num_depots=self.shape.num_depots, capacity=self.shape.capacity)

    def refined(self, index: int, number: int) -> RefinedTour:
        """Refined tour of an instance."""
        actions = flat_actions(self.arrays["refined"][index, number].tolist(), self.shape.num_depots)
        cost, improved = self.arrays["cost"][index, number], self.arrays["improved"][index, number]
        return RefinedTour(actions, float(cost), bool(improved))

    def write(self, index: int, number: int, tour: RefinedTour) -> None:
        """Store the refined tour of an instance."""
        row = self.arrays["refined"][index, number]
        row[: len(tour.actions)] = tour.actions  # refuses a tour that is too long
        row[len(tour.actions) :] = 0
        self.arrays["cost"][index, number] = tour.cost
        self.arrays["improved"][index, number] = tour.improved


class Segment:
    """Shared memory with a name, locked as long as this process lives, so that leftovers are known for what they are.

    Args:
        num_bytes: Its size.

    Raises:
        DataError: If there is no room for it.
    """

    def __init__(self, num_bytes: int) -> None:
        self.name = f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        self.memory = SharedMemory(self.name, create=True, size=num_bytes)
        self._lock = os.open(FOLDER / self.name, os.O_RDWR) if FOLDER.is_dir() else None
        if self._lock is not None:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:  # memory that is found missing only when it is written to ends a process without a word
                os.posix_fallocate(self._lock, 0, num_bytes)
            except OSError as error:
                self.close()
                raise DataError(
                    f"{FOLDER} has no room for {num_bytes / 1e6:.0f} MB of tours ({error.strerror}); give it more, or "
                    f"let local search work in this process: --workers 1"
                ) from error

    def close(self) -> None:
        """Free the memory, which no array may use any more."""
        self.memory.close()
        self.memory.unlink()
        if self._lock is not None:
            os.close(self._lock)


def remove_leftovers() -> None:
    """Free segments of processes that were killed together with those that would have cleaned up after them."""
    for path in FOLDER.glob(f"{PREFIX}*"):
        with suppress(OSError):  # locked, of another user, or just gone
            if time.time() - path.stat().st_mtime > SECONDS_TO_LOCK:
                with path.open("rb") as segment:
                    fcntl.flock(segment, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT
