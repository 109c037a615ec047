"""The gap of a cost to a reference."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Cost = TypeVar("Cost", float, NDArray[np.float64])


def gap_percent(cost: Cost, reference: Cost) -> Cost:
    """By how much a cost lies above a reference, in percent of it: ``100 (cost - reference) / reference``.

    Args:
        cost: A number, or one an instance, float64.
        reference: Of the same instances; not 0.
    """
    return 100 * (cost - reference) / reference
