"""The one container of instances: NumPy arrays for solvers and files, torch tensors for networks.

Shape legend: B instances, N = K + n nodes (K depots first, then n customers).
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from polarvrp.errors import DataError
from polarvrp.problem.variants import Kind

if TYPE_CHECKING:
    import torch

Array = TypeVar("Array", bound=Any)

NodeArrays = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Instances(Generic[Array]):
    """A batch of instances of one size, of one variant or mixed.

    Speed is 1, so time and distance share a unit. Absent attributes hold values that bind nothing: windows
    ``[0, inf]``, service 0, limit ``inf``, backhaul demand 0.

    Attributes:
        locs: Coordinates, float32 (float64 in tests), ``[B, N, 2]``.
        demand_linehaul: Deliveries as fractions of the vehicle's capacity, depots 0, float, ``[B, N]``.
        demand_backhaul: Pickups, likewise, ``[B, N]``.
        time_windows: Earliest and latest start of service; for depots opening and closing, float, ``[B, N, 2]``.
        service_time: Float, ``[B, N]``.
        distance_limit: Longest route, float, ``[B]``.
        open_route: Whether routes end at their last customer, bool, ``[B]``.
        backhaul_class: 1 linehauls before backhauls, 2 mixed, int64, ``[B]``.
        flags: Constraint vector z in the order of ``variants.FLAG_NAMES``, bool, ``[B, 6]``.
        num_depots: K.
        capacity: Integer capacity that demands are fractions of: ``demand * capacity`` is a whole number.
    """

    locs: Array
    demand_linehaul: Array
    demand_backhaul: Array
    time_windows: Array
    service_time: Array
    distance_limit: Array
    open_route: Array
    backhaul_class: Array
    flags: Array
    num_depots: int
    capacity: int

    def __post_init__(self) -> None:
        batch, nodes = self.locs.shape[0], self.locs.shape[1]
        wanted = {
            "locs": (batch, nodes, 2),
            "demand_linehaul": (batch, nodes),
            "demand_backhaul": (batch, nodes),
            "time_windows": (batch, nodes, 2),
            "service_time": (batch, nodes),
            "distance_limit": (batch,),
            "open_route": (batch,),
            "backhaul_class": (batch,),
            "flags": (batch, 6),
        }
        for name, shape in wanted.items():
            got = tuple(getattr(self, name).shape)
            if got != shape:
                raise DataError(f"{name} must be {list(shape)} to match locs, got {list(got)}")

    def __len__(self) -> int:
        return int(self.locs.shape[0])

    def __getitem__(self, index: Any) -> Instances[Array]:
        """Those instances that a slice, index array or boolean mask selects; never a bare integer."""
        return self._map(lambda array: array[index])

    @property
    def num_nodes(self) -> int:
        return int(self.locs.shape[1])

    @property
    def num_customers(self) -> int:
        return self.num_nodes - self.num_depots

    @property
    def has_mixed_backhauls(self) -> bool:
        """Whether any instance lets deliveries and pickups alternate; on a GPU this waits for it."""
        classes: Any = self.backhaul_class
        return bool((classes == 2).any())

    @property
    def kind(self) -> Kind:
        """What kernels for these instances are checked on; waits as ``has_mixed_backhauls`` does."""
        return Kind(self.num_depots > 1, self.has_mixed_backhauls)

    def _map(self, function: Any) -> Instances[Any]:
        return dataclasses.replace(self, **{name: function(getattr(self, name)) for name in INSTANCE_ARRAYS})


INSTANCE_ARRAYS = tuple(f.name for f in dataclasses.fields(Instances) if f.name not in ("num_depots", "capacity"))
"""What a batch holds of each instance; the rest is common to all."""


def to_tensors(
    instances: Instances[NodeArrays],
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> Instances[torch.Tensor]:
    """The same instances as torch tensors on ``device``; floats in ``dtype`` (default: as stored)."""
    import torch

    def convert(array: NodeArrays) -> torch.Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if tensor.is_floating_point() and dtype is not None:
            tensor = tensor.to(dtype)
        return tensor.to(device)

    return instances._map(convert)


def to_arrays(instances: Instances[torch.Tensor]) -> Instances[NodeArrays]:
    """The same instances as NumPy arrays in main memory."""
    return instances._map(lambda tensor: tensor.detach().cpu().numpy())


def instance_digests(instances: Instances[NodeArrays]) -> list[str]:
    """Digest of everything that an instance's solutions depend on, 16 hexadecimal digits each, in order."""
    arrays = [(name, getattr(instances, name)) for name in INSTANCE_ARRAYS]
    head = f"{instances.num_depots} {instances.capacity}".encode()
    digests = []
    for index in range(len(instances)):
        rows = [(name, array[index]) for name, array in arrays]
        parts = [f"{name} {row.dtype} {row.shape}".encode() + row.tobytes() for name, row in rows]
        digests.append(hashlib.sha256(b" ".join([head, *parts])).hexdigest()[:16])
    return digests
