"""The one set of tolerances, used by mask, checker, readers and references alike.

Those of times and lengths hold for instances in the unit square, whose bounds stay below ``LARGEST_UNIT_BOUND``; at
larger ones they grow with the bound (:func:`tolerance_at`), as the rounding of float32 does. Loads are whole numbers
of units and need none in the mask.
"""

MASK_EPSILON = 1e-6
"""Windows, closing times and limits in the environment's mask."""

LOAD_TOLERANCE = 1e-6
"""Checker and references: demands are float32 fractions, their float64 sums exceed 1 by up to 1.2e-7."""

POLICY_TOLERANCE = 1e-5
"""Checker, windows, closing time and length of a policy's tours: ``MASK_EPSILON`` plus float32 rounding of the
clock along a route (half a unit in the last place at 4.6 is 2.4e-7 a step)."""

REFERENCE_TOLERANCE = 1e-9
"""Checker, the same quantities of a reference: its integers are rounded inward, only float64 rounding is left."""

COST_TOLERANCE = 1e-6
"""Stored against recomputed cost."""

COST_PRECISION = 1e-14
"""The same, as a share of the cost: a ``.sol`` file of ours holds 15 digits of it."""

PRINTED_COST_TOLERANCE = 0.005
"""The same where others state it: solutions of libraries with unrounded distances do so with two decimals."""

LIBRARY_TOLERANCE = 1e-6
"""Checker, windows, closing times and limits of library instances, as a share of the bound if that exceeds 1: their
numbers are decimals, and only float64 rounding of sums of distances is left."""

LARGEST_LIBRARY_EXCESS = 0.01
"""Which is never let pass more, however large the bound: less than whole numbers and tenths differ by."""

WHOLE_DEMAND_TOLERANCE = 1e-3
"""Files of sets, demand times capacity against a whole number: float32 fractions miss it by up to 6e-8 of it."""

ROUNDED_DEMAND_TOLERANCE = 0.05
"""Solvers, the same: instances that a program makes may state fractions to three decimals, which miss by that much at a
capacity of 100; the whole number that is meant is in no doubt."""

LARGEST_UNIT_BOUND = 5.0
"""Above every window, closing time and limit of the generators."""


def tolerance_at(bound: float, tolerance: float) -> float:
    """Excess over a window's end, closing time or limit that is let pass.

    Args:
        bound: Which must not be exceeded, at least 0.
        tolerance: In the unit square.
    """
    return tolerance * max(1.0, bound / LARGEST_UNIT_BOUND)
