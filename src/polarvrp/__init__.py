"""polarvrp: neural solvers for 48 vehicle routing variants, trained with POLAR.

The library, described in ``polarvrp.api``: ``generate``, ``read_instances``, ``read_library``, ``load_model``,
``solve``, ``check`` and ``describe``. Importing this package imports neither torch nor a solver; what is used is loaded
when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polarvrp.api import (
        CheckReport,
        Solution,
        check,
        describe,
        generate,
        load_model,
        read_instances,
        read_library,
        solve,
    )
    from polarvrp.errors import PolarvrpError
    from polarvrp.evaluation.models import Model
    from polarvrp.problem.instances import Instances
    from polarvrp.problem.library_instances import LibraryInstance
    from polarvrp.problem.tours import Route

__version__ = "0.1.0"

__all__ = [
    "CheckReport",
    "Instances",
    "LibraryInstance",
    "Model",
    "PolarvrpError",
    "Route",
    "Solution",
    "check",
    "describe",
    "generate",
    "load_model",
    "read_instances",
    "read_library",
    "solve",
]

_MODULES = {
    "Instances": "polarvrp.problem.instances",
    "LibraryInstance": "polarvrp.problem.library_instances",
    "Model": "polarvrp.evaluation.models",
    "PolarvrpError": "polarvrp.errors",
    "Route": "polarvrp.problem.tours",
}
"""Where names live that are not in ``polarvrp.api``."""


def __getattr__(name: str) -> object:
    """Load a public name when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES.get(name, "polarvrp.api")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
