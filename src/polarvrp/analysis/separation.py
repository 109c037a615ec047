"""Cosine separation: how much more alike embeddings of one variant are than those of different ones; free of torch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Separation:
    """Mean cosines between embeddings.

    Attributes:
        within: Over all pairs of different points of the same variant.
        between: Over all pairs of points of different variants.
    """

    within: float
    between: float

    @property
    def difference(self) -> float:
        """Separation: 0 where variants mix, at most 2."""
        return self.within - self.between


def cosine_separation(points: NDArray[np.floating], variants: Sequence[str]) -> Separation:
    """Mean cosines within and between variants.

    Pairs are not listed: the cosines of all pairs of some unit vectors add up to the squared length of their sum.

    Args:
        points: Embeddings, float, ``[P, d]``.
        variants: Variant of each, ``[P]``.

    Returns:
        NaN for a mean without pairs.
    """
    vectors = points.astype(np.float64)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    names, groups = np.unique(np.asarray(variants), return_inverse=True)
    sums = np.zeros((len(names), units.shape[1]))
    np.add.at(sums, groups, units)
    counts = np.bincount(groups, minlength=len(names)).astype(np.float64)
    same, every = (sums**2).sum(), (sums.sum(axis=0) ** 2).sum()
    with np.errstate(invalid="ignore"):
        within = (same - len(units)) / (counts * (counts - 1)).sum()
        between = (every - same) / (len(units) ** 2 - (counts**2).sum())
    return Separation(float(within), float(between))
