"""polarvrp: neural solvers for 48 vehicle routing variants, trained with POLAR.

Importing this package imports neither torch nor a solver; the rooms below it do.
"""

__version__ = "0.1.0"
