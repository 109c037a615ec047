"""Refinement of tours by local search on CPU cores: the step that turns preference optimisation into POLAR.

Tours and instances reach the processes through shared memory, so a GPU goes on with other tours while the cores work.
What happens to a tour is told in ``local_search.pyvrp_search``.

Shape legend: B instances, k tours per instance, T actions, R actions of a refined tour.
"""

import logging
import math
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.shared_memory import SharedMemory
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from polarvrp.local_search.shared_memory import SEEDS, RefinedTour, Rows, Segment, Shape, Table, remove_leftovers
from polarvrp.problem.instances import INSTANCE_ARRAYS, Instances, NodeArrays, to_tensors
from polarvrp.solvers.versions import installed_version
from polarvrp.workers import TaskFailure, WorkerPool

logger = logging.getLogger(__name__)

LARGEST_CHUNK = 32
CHUNKS_PER_WORKER = 4
"""Smaller chunks even out differences between tours."""

CHUNKS_AHEAD = 3
"""In the hands of each worker, so that it has work while this process is busy with a GPU."""

SMALLEST_FLOAT_BYTES = 4


class RefinementError(RuntimeError):
    """Tours could not be refined; the message is that of the worker."""


@dataclass(frozen=True, slots=True)
class RefinedTours:
    """Refined tours of a batch, in main memory, pinned where the tours came from a GPU.

    Attributes:
        actions: The better tours, or the original ones, padded with depot 0, int64, ``[B, k, R]``; R depends on the
            size of the instances only.
        cost: Exact costs, float64, ``[B, k]``.
        improved: Whether strictly shorter than the originals, bool, ``[B, k]``.
    """

    actions: Tensor
    cost: Tensor
    improved: Tensor


class PendingTours:
    """Tours that are being refined; dropping it without asking for the result is allowed."""

    def __init__(self, wait_for: Callable[["_Slot"], None], slot: "_Slot", pinned: bool) -> None:
        self._wait_for, self._slot, self._pinned = wait_for, slot, pinned
        self._tours: RefinedTours | None = None
        slot.holder = weakref.ref(self)

    def result(self) -> RefinedTours:
        """The refined tours; waits for them.

        Raises:
            RefinementError: If a worker met a tour that is no solution of its instance, or a second worker died over
                the same tours, or the refiner was closed.
        """
        if self._tours is None:
            self._wait_for(self._slot)
            self._tours = self._slot.read(self._pinned)
            self._slot.holder = None
        return self._tours


class Refiner:
    """Refines batches of tours on CPU cores.

    Results depend on instance, tour and seed only, not on the number of workers or on what else is in work.

    Args:
        num_workers: Processes, started at once: before a GPU is used is best. 0 refines in this process, where PyVRP
            is loaded with the first tours: training steps that refine none need no PyVRP, references of a training's
            validation do.

    Raises:
        ConfigError: If PyVRP is missing or another than the model was written for; without workers once there are
            tours.
    """

    def __init__(self, num_workers: int) -> None:
        self._pool = None if num_workers == 0 else _worker_pool(num_workers)
        self._num_workers = num_workers
        self._slots: list[_Slot] = []
        self._slot_of: dict[int, _Slot] = {}
        self._release = weakref.finalize(self, _close_all, self._slots)

    def submit(self, instances: Instances[Tensor], actions: Tensor, seeds: Sequence[int]) -> PendingTours:
        """Start to refine; several submissions may be in work.

        Args:
            instances: B instances of one size, any mixture of variants.
            actions: As rollouts record them, padded with depots, int64, ``[B, k, T]``, on the same device.
            seeds: Of the order in which the search tries moves, B * k of them, any non-negative integers.

        Returns:
            At once if there are workers; they are busy by then.

        Raises:
            ValueError: If there are not as many tours and seeds as instances.
            InfeasibleTourError: Without workers, if a tour is no solution of its instance.
            RefinementError: If the refiner was closed.
        """
        slot = self._start(instances, actions, seeds)
        return PendingTours(self._wait_for, slot, pinned=actions.is_cuda)

    def refine(
        self, instances: Instances[NodeArrays], tours: Sequence[Sequence[int]], seeds: Sequence[int]
    ) -> list[RefinedTour]:
        """Refine one tour of each instance.

        Args:
            instances: B instances of one size, any mixture of variants, in main memory.
            tours: In flat form, B of them.
            seeds: As of ``submit``, B of them.

        Returns:
            B tours in the order of the instances.

        Raises:
            ValueError, InfeasibleTourError, RefinementError: As of ``submit`` and ``PendingTours.result``.
        """
        if not len(instances) == len(tours) == len(seeds):
            raise ValueError(f"{len(instances)} instances need as many tours and seeds: {len(tours)}, {len(seeds)}")
        if not tours:
            return []
        slot = self._start(to_tensors(instances), pad_actions([[tour] for tour in tours]), seeds)
        self._wait_for(slot)
        found = [slot.table.refined(index, 0) for index in range(len(tours))]
        return [
            tour if tour.improved else RefinedTour(list(original), tour.cost, improved=False)
            for tour, original in zip(found, tours, strict=True)
        ]

    def close(self) -> None:
        """End the processes and free the shared memory; safe to call twice and after errors."""
        if self._pool is not None:
            self._pool.close()
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, instances: Instances[Tensor], actions: Tensor, seeds: Sequence[int]) -> "_Slot":
        """Hand tours to the workers, or refine them here."""
        batch, num_tours, _ = actions.shape
        if batch != len(instances) or batch * num_tours != len(seeds):
            raise ValueError(
                f"{len(instances)} instances need as many rows of tours and k seeds: {batch}, {len(seeds)}"
            )
        if not self._release.alive:
            raise RefinementError("the refiner is closed")
        slot = self._free_slot(_shape_of(instances, actions))
        slot.failure = None
        slot.write(instances, actions, seeds)
        if self._pool is None:
            _refine_here(slot.table, batch)
            return slot
        size = min(LARGEST_CHUNK, max(1, math.ceil(batch / (self._num_workers * CHUNKS_PER_WORKER))))
        rows: list[Rows] = [(slot.name, first, min(first + size, batch)) for first in range(0, batch, size)]
        numbers = self._pool.submit(rows)
        slot.open_tasks.update(numbers)
        self._slot_of.update(dict.fromkeys(numbers, slot))
        return slot

    def _wait_for(self, slot: "_Slot") -> None:
        """Return when the tours of a slot are refined.

        Raises:
            RefinementError: If they could not be.
        """
        while self._pool is not None and slot.open_tasks:
            for number, outcome in self._pool.wait():
                finished = self._slot_of.pop(number)
                finished.open_tasks.discard(number)
                if isinstance(outcome, TaskFailure):
                    finished.failure = outcome.reason
        if slot.failure is not None:
            raise RefinementError(f"refinement failed: {slot.failure}")

    def _free_slot(self, shape: Shape) -> "_Slot":
        for slot in self._slots:
            if slot.table.shape == shape and slot.is_free:
                return slot
        slot = _Slot(shape, shared=self._pool is not None)
        self._slots.append(slot)
        return slot


def pad_actions(tours: Sequence[Sequence[Sequence[int]]]) -> Tensor:
    """The same number of tours of each instance, padded with depot 0 as rollouts record them, int64, ``[B, k, T]``."""
    length = max(len(tour) for row in tours for tour in row)
    return torch.tensor([[[*tour, *[0] * (length - len(tour))] for tour in row] for row in tours], dtype=torch.int64)


class _Slot:
    """A table for one submission at a time.

    Args:
        shape: Of the table.
        shared: Whether other processes work on it.
    """

    def __init__(self, shape: Shape, shared: bool) -> None:
        self._segment = Segment(shape.num_bytes) if shared else None
        self.name = "" if self._segment is None else self._segment.name
        self.table = Table(bytearray(shape.num_bytes) if self._segment is None else self._segment.memory.buf, shape)
        self._tensors = {name: torch.from_numpy(array) for name, array in self.table.arrays.items()}
        self._registered: int | None = None
        self._pinnable = shared
        self.open_tasks: set[int] = set()
        self.failure: str | None = None
        self.holder: weakref.ref[PendingTours] | None = None

    @property
    def is_free(self) -> bool:
        """Whether nobody works on it and nobody will ask for its results."""
        return not self.open_tasks and (self.holder is None or self.holder() is None)

    def write(self, instances: Instances[Tensor], actions: Tensor, seeds: Sequence[int]) -> None:
        """Put instances and tours in; they are there on return."""
        if actions.is_cuda and self._pinnable and self._segment is not None:
            self._pinnable = False
            self._register(self._segment.memory)
        for name in INSTANCE_ARRAYS:
            self._tensors[name].copy_(getattr(instances, name).detach(), non_blocking=True)
        padded = pad(actions, (0, self.table.shape.length - actions.shape[2]))  # on its device, to be copied whole
        self._tensors["actions"].copy_(padded, non_blocking=True)
        self.table.arrays["seeds"].flat[:] = [seed % SEEDS for seed in seeds]
        if actions.is_cuda:
            copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]  # sleeps: the core is needed
            copied.record(torch.cuda.current_stream(actions.device))
            copied.synchronize()

    def read(self, pinned: bool) -> RefinedTours:
        """Copies of the results, so that the slot may be used again."""
        found = (self._tensors[name] for name in ("refined", "cost", "improved"))
        return RefinedTours(*(torch.empty_like(tensor, pin_memory=pinned).copy_(tensor) for tensor in found))

    def close(self) -> None:
        """Free the memory; what was in work fails."""
        if self._registered is not None:
            torch.cuda.cudart().cudaHostUnregister(self._registered)  # type: ignore[no-untyped-call]
            self._registered = None
        self.open_tasks.clear()
        self.failure = "the refiner is closed"
        self._tensors.clear()
        self.table.arrays.clear()
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def _register(self, memory: SharedMemory) -> None:
        """Pin the memory, so that a GPU copies into it while this process goes on; where that fails, it waits."""
        address = np.ndarray(1, np.uint8, memory.buf).ctypes.data
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        error = int(runtime.cudaHostRegister(address, memory.size, 0))
        if error == 0:
            self._registered = address
            return
        logger.warning("memory of the local search cannot be pinned (CUDA error %d); copies wait for the GPU", error)
        with suppress(RuntimeError):  # the error stays behind until a launch reports it
            torch.zeros(1, device="cuda").add_(1)


def _worker_pool(num_workers: int) -> WorkerPool[Rows, None]:
    installed_version("pyvrp")
    remove_leftovers()
    from polarvrp.local_search.table_refinement import refine_rows

    return WorkerPool(refine_rows, num_workers, CHUNKS_AHEAD)


def _refine_here(table: Table, batch: int) -> None:
    installed_version("pyvrp")
    from polarvrp.local_search.table_refinement import refine_table

    refine_table(table, 0, batch)


def _shape_of(instances: Instances[Tensor], actions: Tensor) -> Shape:
    """Of a table for these tours and for shorter ones, so that one slot serves tours of any length."""
    reals = (getattr(instances, name) for name in INSTANCE_ARRAYS)
    float_bytes = max(tensor.element_size() for tensor in reals if tensor.is_floating_point())
    batch, num_tours, length = actions.shape
    shape = Shape(
        batch,
        instances.num_nodes,
        instances.num_depots,
        instances.capacity,
        num_tours,
        length=0,
        float_bytes=max(SMALLEST_FLOAT_BYTES, float_bytes),
    )
    return replace(shape, length=max(length, shape.refined_length))


def _close_all(slots: list[_Slot]) -> None:
    for slot in slots:
        slot.close()
    slots.clear()
