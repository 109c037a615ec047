"""One row of a file of solutions, apart from the files so that solvers' processes need no Parquet."""

from dataclasses import dataclass

from polarvrp.errors import DataError


@dataclass(frozen=True, slots=True)
class SolutionRow:
    """One instance's solution, or the reason why there is none.

    Attributes:
        variant: Name of the variant.
        num_customers: n.
        instance: Position of the instance in its set, from 0.
        method: Name of the solver or of the run; column ``solver`` or ``run``.
        cost: Exact float64 cost of ``actions``, None when nothing was found.
        actions: Flat node list, depots first. One depot: the customers of each route, a 0 between routes; several
            depots: each route is its depot, then its customers. Empty when nothing was found.
        routes: Number of routes.
        seconds: Measured wall time spent on the instance; None where others state none.
        max_violation: Largest raw excess over any constraint in float64, 0 when none, None without a solution.
        seed: Seed of the solver.
        limit_seconds: Time limit it was given.
        scale: Integer units per distance unit in the solver's model.
        iterations: Iterations of the solver, where it counts them.
        solver_version: Package and version that solved.
        reason: Why ``cost`` is None.
    """

    variant: str
    num_customers: int
    instance: int
    method: str
    cost: float | None
    actions: tuple[int, ...]
    routes: int
    seconds: float | None
    max_violation: float | None
    seed: int | None = None
    limit_seconds: float | None = None
    scale: int | None = None
    iterations: int | None = None
    solver_version: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if (self.cost is None) == (self.reason is None):
            raise DataError(
                f"a solution row has either a cost or a reason, got cost {self.cost} and reason {self.reason!r} "
                f"for instance {self.instance} of {self.variant}"
            )
