"""The one set of tolerances, used by mask, checker and references alike."""

MASK_EPSILON = 1e-6
"""Every feasibility test of the environment: the float32 load of an exactly full route exceeds 1 by up to 1.2e-7."""

LOAD_TOLERANCE = 1e-6
"""Checker and references: demands are float32 fractions, their float64 sums exceed 1 by up to 1.2e-7."""

POLICY_TOLERANCE = 1e-5
"""Checker, windows, closing time and length of a policy's tours: ``MASK_EPSILON`` plus float32 rounding of the
clock along a route (half a unit in the last place at 4.6 is 2.4e-7 a step)."""

REFERENCE_TOLERANCE = 1e-9
"""Checker, the same quantities of a reference: its integers are rounded inward, only float64 rounding is left."""

COST_TOLERANCE = 1e-6
"""Stored against recomputed cost."""
