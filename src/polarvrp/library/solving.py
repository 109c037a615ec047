"""One instance of a library file under a time limit: a network builds tours, PyVRP improves the best of them.

Whatever comes out is priced and checked by code that neither of them shares; a route that breaks a rule is cut until
none does, so there is a feasible answer whenever every customer can be served alone.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarvrp.errors import ConfigError, DataError, PolarvrpError, is_out_of_memory
from polarvrp.problem.instances import to_tensors
from polarvrp.problem.library_instances import LibraryInstance
from polarvrp.problem.library_prices import (
    at_cheapest_depots,
    check_routes,
    first_unservable_customer,
    split_to_feasible,
)
from polarvrp.problem.library_twins import drawn_library
from polarvrp.problem.tours import Route, actions_to_routes
from polarvrp.problem.vrplib import to_instances
from polarvrp.solvers.versions import installed_version

if TYPE_CHECKING:
    from polarvrp.evaluation.models import Model

CONSTRUCTION_SHARE = 0.2
"""Of the time limit, at most, for the network."""

LARGEST_NETWORK_NODES = 5000
"""The network's tables of all pairs of nodes grow with their square; for so many they take half a gibibyte."""


@dataclass(frozen=True, slots=True)
class Construction:
    """What the network did.

    Attributes:
        routes: Its best solution, feasible; none if it has none.
        cost: Of these routes, as the file's convention counts; None without.
        starts: First customers tried under each symmetry.
        symmetries: Symmetries of the square.
        seconds: Wall time.
        note: Why it built nothing, or what had to be cut; None if all went well.
    """

    routes: tuple[Route, ...]
    cost: float | None
    starts: int
    symmetries: int
    seconds: float
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Improvement:
    """What PyVRP did.

    Attributes:
        cost: Of its best solution, cut where it breaks a rule.
        own_start: Cost of its own first solution, which needs no network.
        given_start: Cost of the network's tour after its first local search; None without a tour.
        from_network: Whether the search began at the network's tour, the cheaper of the two; not where they tie.
        iterations: Of the search.
        seconds: Wall time.
    """

    cost: float
    own_start: float
    given_start: float | None
    from_network: bool
    iterations: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SolvedInstance:
    """A solution and how it came about.

    Attributes:
        routes: The best that was found.
        cost: As the file's convention counts.
        problem: The rule that they break, None if the exact check accepts them.
        method: ``pyvrp``, the model's run, or both with a plus between.
        construction: None without a model.
        improvement: None where the network had all the time and used it well.
        seconds: Wall time of all.
    """

    routes: tuple[Route, ...]
    cost: float
    problem: str | None
    method: str
    construction: Construction | None
    improvement: Improvement | None
    seconds: float


def solve_library(
    library: LibraryInstance, model: Model | None, seconds: float, seed: int = 0, share: float = CONSTRUCTION_SHARE
) -> SolvedInstance:
    """Solve an instance.

    Args:
        library: The instance.
        model: Builds the tour that PyVRP starts from; None for PyVRP alone.
        seconds: Wall-clock limit, kept but for the last moves in work.
        seed: Of PyVRP.
        share: Of the limit that the network gets at most; 1 for the network alone, as long as it finds anything.

    Raises:
        DataError: If a customer cannot be served even alone, or numbers are too large for PyVRP.
        ConfigError: If an option is out of bounds, or another series of PyVRP is installed.
    """
    if not 0 < seconds < math.inf:
        raise ConfigError(f"seconds must be above 0 and finite, got {seconds:g}")
    installed_version("pyvrp")
    began_s = time.monotonic()
    unservable = first_unservable_customer(library)
    if unservable is not None:
        raise DataError(unservable if library.matrix is not None else f"{unservable}; there is no solution")
    construction = None if model is None else _construct(library, model, began_s + share * seconds)
    built = construction.routes if construction else ()
    improvement, found = (None, ()) if built and share >= 1 else _improve(library, built, began_s + seconds, seed)
    best = min((routes for routes in (found, built) if routes), key=lambda routes: _rank(library, routes))
    routes = at_cheapest_depots(library, list(best))  # as whoever reads a .sol must, which names no depots
    report = check_routes(library, routes)
    names = [model.run] if model and (improvement is None or improvement.from_network or best is built) else []
    return SolvedInstance(
        routes=tuple(routes),
        cost=report.cost,
        problem=report.first_problem,
        method=" + ".join([*names, *(["pyvrp"] if improvement else [])]),
        construction=construction,
        improvement=improvement,
        seconds=time.monotonic() - began_s,
    )


def warm_up(model: Model) -> None:
    """Build a tour of a tiny instance, so that what PyTorch does once in a process does not count as solving."""
    _construct(drawn_library("CVRP", 5, seed=0), model, math.inf)


def _construct(library: LibraryInstance, model: Model, deadline_s: float) -> Construction:
    """The network's best solution, if it can build one in time."""
    from polarvrp.library.construction import construct
    from polarvrp.model.precision import bfloat16_products

    began_s = time.monotonic()

    def nothing(why: str) -> Construction:
        return Construction((), None, 0, 0, time.monotonic() - began_s, why)

    if len(library.demands) > LARGEST_NETWORK_NODES:
        return nothing(f"more than {LARGEST_NETWORK_NODES:,} nodes take too much memory")
    try:
        instance = to_tensors(to_instances(library), model.device)
        with bfloat16_products(model.device, model.bfloat16):
            built = construct(model.policy, instance, deadline_s)
    except PolarvrpError as error:
        return nothing(str(error))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return nothing("there is too little memory for it")
    if not built.tours:
        return nothing("no tour was finished in the network's share of the time")
    candidates = [tuple(actions_to_routes(tour, library.num_depots)) for tour in built.tours]
    best = min(candidates, key=lambda routes: _rank(library, routes))
    whole = tuple(split_to_feasible(library, list(best)))
    cuts = len(whole) - len(best)
    note = f"cut {cuts} times where its rounding of the file's numbers let it break a rule" if cuts else None
    cost = check_routes(library, list(whole)).cost
    return Construction(whole, cost, built.starts, built.symmetries, time.monotonic() - began_s, note)


def _improve(
    library: LibraryInstance, start: tuple[Route, ...], deadline_s: float, seed: int
) -> tuple[Improvement, tuple[Route, ...]]:
    """PyVRP's step and its best solution."""
    from polarvrp.library.improvement import search

    began_s = time.monotonic()
    result = search(library, list(start), deadline_s, seed)

    def feasible(routes: list[Route]) -> list[Route]:
        return split_to_feasible(library, routes)

    def cost(routes: list[Route]) -> float:
        return check_routes(library, feasible(routes)).cost

    found = feasible(result.routes)
    step = Improvement(
        cost=cost(found),
        own_start=cost(result.own_start),
        given_start=cost(result.given_start) if result.given_start is not None else None,
        from_network=result.from_given,
        iterations=result.iterations,
        seconds=time.monotonic() - began_s,
    )
    return step, tuple(found)


def _rank(library: LibraryInstance, routes: tuple[Route, ...]) -> tuple[bool, float]:
    """Feasible ones first, then by cost."""
    report = check_routes(library, list(routes))
    return report.first_problem is not None, report.cost
