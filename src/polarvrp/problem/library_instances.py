"""Instances of library files, whatever their format, and the conventions by which their costs count distances.

Shape legend: N = K + n nodes, the K depots first, then n customers in the order of the file.
"""

import math
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Distance = TypeVar("Distance", float, NDArray[np.float64])


class Rounding(StrEnum):
    """How published costs of a set count a distance; files say it badly or not at all."""

    NEAREST = "rounded"
    UP = "up"
    DOWN = "down"
    ONE_DECIMAL = "truncated"
    NONE = "exact"

    def of(self, distance: Distance) -> Distance:
        """A distance, or each of an array, as it counts: a whole number but for one decimal, cut off, and none at all.

        ``// 1`` rounds both down.
        """
        match self:
            case Rounding.NEAREST:
                return (distance + 0.5) // 1
            case Rounding.UP:
                return -(-distance // 1)
            case Rounding.DOWN:
                return distance // 1
            case Rounding.ONE_DECIMAL:
                return 10 * distance // 1 / 10
            case Rounding.NONE:
                return distance

    def total(self, cost: float) -> float:
        """A sum of distances that count so: an integer where they are whole, without the noise of decimals."""
        match self:
            case Rounding.NONE:
                return cost
            case Rounding.ONE_DECIMAL:
                return round(cost, 1)
            case _:
                return round(cost)


UNROUNDED_SETS = re.compile(r"(cmt|golden|li|tai)[_\d]", re.IGNORECASE)
"""Sets whose costs are published without rounding, although their files say EUC_2D like the rounded ones."""

TRUNCATED_SETS = re.compile(r"(c|r|rc)[12](\d\d|_\d+_\d+)\b", re.IGNORECASE)
"""Solomon's and Homberger's names; their optimal costs are published for distances cut off after one decimal."""


def conventional_rounding(name: str, has_windows: bool) -> Rounding:
    """The convention of the set that an instance's name belongs to, in any case; unknown sets round as TSPLIB does."""
    if UNROUNDED_SETS.match(name):
        return Rounding.NONE
    if has_windows and TRUNCATED_SETS.match(name):
        return Rounding.ONE_DECIMAL
    return Rounding.NEAREST


@dataclass(frozen=True, slots=True)
class LibraryInstance:
    """An instance in the numbers of its file.

    Attributes:
        name: As in the file, else the file's name.
        coordinates: float64, ``[N, 2]``; of files with a matrix alone, points that classical scaling finds for it.
        demands: Whole numbers to deliver, int64, ``[N]``, 0 for depots.
        capacity: Of every vehicle; the fleet is unlimited.
        pickups: Whole numbers to collect, int64, ``[N]``, served after all deliveries of a route; None without
            backhauls.
        time_windows: Earliest and latest start of service, opening and closing of depots, float64, ``[N, 2]``, or None.
        service_times: float64, ``[N]``, or None.
        distance_limit: Longest route, its service included, with time windows its waiting as well.
        open_routes: Whether routes end at their last customer.
        num_depots: K; every depot has an unlimited fleet, routes end where they start.
        rounding: How distances count, for costs and for time.
        matrix: Distances from row to column, not necessarily symmetric, float64, ``[N, N]``; None where coordinates
            give them.
        vehicles: Fleet that the file states, of all depots together, for information: no bound.
    """

    name: str
    coordinates: NDArray[np.float64]
    demands: NDArray[np.int64]
    capacity: int
    pickups: NDArray[np.int64] | None = None
    time_windows: NDArray[np.float64] | None = None
    service_times: NDArray[np.float64] | None = None
    distance_limit: float = math.inf
    open_routes: bool = False
    num_depots: int = 1
    rounding: Rounding = Rounding.NEAREST
    matrix: NDArray[np.float64] | None = None
    vehicles: int | None = None

    @property
    def num_customers(self) -> int:
        return len(self.demands) - self.num_depots


@dataclass(frozen=True, slots=True)
class Convention:
    """How the costs in a file of ours count, as the file says itself.

    Attributes:
        rounding: Of distances.
        open_routes: Whether routes end at their last customer.
    """

    rounding: Rounding
    open_routes: bool


def counted_by(
    library: LibraryInstance, stated: Convention | None, rounding: Rounding | None = None, open_routes: bool = False
) -> LibraryInstance:
    """An instance as a file of its solutions counts.

    Args:
        library: The instance, read with the options below.
        stated: What the file says; None if it says nothing.
        rounding: Option of the user, which goes before what the file says.
        open_routes: Option of the user.
    """
    if stated is None:
        return library
    return replace(library, rounding=rounding or stated.rounding, open_routes=open_routes or stated.open_routes)


def points_of_matrix(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points in the plane whose distances resemble a matrix: classical multidimensional scaling (Torgerson 1952).

    Args:
        matrix: Distances, float64, ``[N, N]``; of asymmetric ones the mean of both ways is taken.

    Returns:
        Centred coordinates, float64, ``[N, 2]``; exact where the matrix comes from points in a plane.
    """
    squares = ((matrix + matrix.T) / 2) ** 2
    centred = -(squares - squares.mean(axis=0) - squares.mean(axis=1, keepdims=True) + squares.mean()) / 2
    values, vectors = np.linalg.eigh(centred)
    points = np.zeros((len(matrix), 2))
    kept = min(2, len(matrix))
    points[:, :kept] = (vectors[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0.0)))[:, :kept]
    return points
