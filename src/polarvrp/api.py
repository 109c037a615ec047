"""The library: generate or read instances, load a model, solve, check, describe; ``import polarvrp`` offers it all.

Importing this module loads neither torch nor a solver; the functions load what they need when they are called.

Shape legend: B instances, K depots, n customers, N = K + n nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polarvrp.errors import ConfigError, DataError, InfeasibleTourError
from polarvrp.problem import datasets
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.library_instances import LibraryInstance, Rounding
from polarvrp.problem.library_prices import check_routes
from polarvrp.problem.numpy_generator import TEST_SEED, generate_arrays
from polarvrp.problem.symmetries import NUM_SYMMETRIES
from polarvrp.problem.tours import Route, actions_to_routes, check_tour, routes_to_actions
from polarvrp.problem.variants import parse_variant
from polarvrp.tolerances import POLICY_TOLERANCE

if TYPE_CHECKING:
    from polarvrp.evaluation.models import Model
    from polarvrp.solutions.rows import SolutionRow
    from polarvrp.solvers.solve import SolverSettings

DEFAULT_SECONDS = 1.0
"""Time limit of a solver for one instance where the caller names none."""


@dataclass(frozen=True, slots=True)
class Solution:
    """Routes of one instance, priced and checked exactly.

    Attributes:
        cost: Length of all routes in the instance's distance unit, recomputed in float64; None without a solution.
        routes: Depot and customers of each route, as node indices: depots are 0 to K - 1, customers K to N - 1.
        actions: The same as one flat list. One depot: customers, a 0 between routes. Several depots: each route is
            its depot, then its customers.
        feasible: Whether the routes keep every rule.
        seconds: Wall time; instances that a model solves together share it evenly.
        method: The solver, or the run that trained the model.
        problem: The first rule that is broken, or why there is no solution; None if it is feasible.
    """

    cost: float | None
    routes: tuple[Route, ...]
    actions: tuple[int, ...]
    feasible: bool
    seconds: float
    method: str
    problem: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CheckReport:
    """What an exact check of B solutions found.

    Attributes:
        costs: Exact costs, float64, ``[B]``; NaN where there is no tour to price.
        feasible: Whether each solution keeps every rule, bool, ``[B]``.
        max_violation: Largest raw excess over any rule, float64, ``[B]``: loads as fractions of the capacity, times
            and lengths in distance units; 0 where none is exceeded, NaN where there is no tour.
        problems: What is wrong with each solution; None for the feasible ones.
    """

    costs: NDArray[np.float64]
    feasible: NDArray[np.bool_]
    max_violation: NDArray[np.float64]
    problems: tuple[str | None, ...]

    @property
    def summary(self) -> str:
        """Counts and mean cost of the feasible solutions in one line."""
        count = int(self.feasible.sum())
        mean = f", mean cost {self.costs[self.feasible].mean():.6f}" if count else ""
        return f"{len(self.problems)} solutions, {count} feasible{mean}"


def generate(variant: str, num_customers: int, instances: int, seed: int = TEST_SEED) -> Instances[NodeArrays]:
    """Random instances of one variant, the same as ``polarvrp generate`` writes.

    Args:
        variant: One of the 48 names in any case, e.g. ``CVRP``, ``VRPTW``, ``OVRPBLTW``, ``MDVRPMBTW``.
        num_customers: n, at least 1.
        instances: How many, at least 1.
        seed: 1234 gives the published test sets bit for bit, or their first rows; 4321 the validation sets.

    Returns:
        Instances in the unit square, floats in float32: ``locs`` ``[B, N, 2]``, demands as fractions of the capacity
        ``[B, N]``, and so on; a slice such as ``generated[:10]`` is a set of instances too.

    Raises:
        ConfigError: If there is no such variant, or a number is out of bounds.

    Example:
        >>> import polarvrp
        >>> instances = polarvrp.generate("OVRPTW", num_customers=50, instances=10)
        >>> len(instances), instances.num_customers, instances.locs.shape
        (10, 50, (10, 51, 2))
    """
    return datasets.instances_from_arrays(generate_arrays(parse_variant(variant), num_customers, instances, seed))


def read_instances(path: str | Path) -> Instances[NodeArrays]:
    """Instances of a file of ``polarvrp generate``, or of any ``.npz`` file in the published layout.

    Args:
        path: The file; RouteFinder's test sets have the same layout.

    Returns:
        Instances, floats in float32, ``locs`` ``[B, N, 2]``; attributes that the file lacks bind nothing.

    Raises:
        DataError: If the file cannot be read, is inconsistent or describes an impossible instance.

    Example:
        >>> import numpy, polarvrp
        >>> locs, demands = numpy.random.rand(2, 4, 2), numpy.full((2, 3), 0.5)
        >>> numpy.savez("mine.npz", locs=locs, demand_linehaul=demands, vehicle_capacity=numpy.ones((2, 1)))
        >>> polarvrp.read_instances("mine.npz").num_customers
        3
    """
    return datasets.read_instances(path)


def read_library(path: str | Path, distances: str | None = None, open_routes: bool = False) -> LibraryInstance:
    """The instance of a file in VRPLIB form, or in Solomon's, Homberger's or Cordeau's.

    Args:
        path: The file.
        distances: How costs count distances: ``rounded``, ``truncated`` (after one decimal), ``up``, ``down`` or
            ``exact``; None for the convention of the instance's set.
        open_routes: Whether routes end at their last customer; so they do in files of type OVRP anyway.

    Returns:
        The instance in the numbers of its file: ``coordinates`` float64 ``[N, 2]``, ``demands`` int64 ``[N]``, ...

    Raises:
        DataError: If the file is missing, of another format, incomplete, inconsistent, or of an unsupported type.
        ConfigError: If there is no such way to count distances.

    Example:
        >>> import pathlib, polarvrp
        >>> head = "DIMENSION: 3, CAPACITY: 5, EDGE_WEIGHT_TYPE: EUC_2D, NODE_COORD_SECTION, 1 0 0, 2 3 4, 3 0 2, "
        >>> text = head + "DEMAND_SECTION, 1 0, 2 3, 3 4, DEPOT_SECTION, 1, -1, EOF"
        >>> _ = pathlib.Path("mine.vrp").write_text(text.replace(", ", chr(10)))
        >>> polarvrp.solve(polarvrp.read_library("mine.vrp"), seconds=0.1)[0].cost
        14
    """
    from polarvrp.problem.library_files import read_library as read

    if distances is not None and distances not in set(Rounding):
        raise ConfigError(f"distances must be one of {', '.join(Rounding)}, got {distances!r}")
    return read(path, None if distances is None else Rounding(distances), open_routes)


def load_model(name_or_path: str | Path, device: str = "auto") -> Model:
    """A trained model: its policy, and what it was trained on.

    Args:
        name_or_path: A run, then found under ``results/models/``; the path of a model's folder or of its
            ``weights.safetensors``; or a model that ships with the package, e.g. ``pretrained-n50``.
        device: ``cpu``, ``cuda``, ``cuda:1`` and so on; ``auto`` is the first GPU, else the CPU.

    Returns:
        Model with ``policy``, ``run``, ``num_customers`` and ``variants`` trained on. It solves every variant and
        size, best those that it has seen.

    Raises:
        ConfigError: If there is no such device.
        DataError: If there is no such model, or its file is damaged.
        CheckpointMismatchError: If the file holds a network that does not exist here.

    Example:
        >>> import polarvrp
        >>> model = polarvrp.load_model("polarnet-ple-polar-n50-s0")
        >>> model.run, model.num_customers, len(model.variants)
        ('polarnet-ple-polar-n50-s0', 50, 16)
    """
    from polarvrp.evaluation.models import load_trained

    return load_trained(name_or_path, device=device)


def solve(
    instances: Instances[NodeArrays] | LibraryInstance,
    model: Model | None = None,
    *,
    augmentations: int = NUM_SYMMETRIES,
    solver: str = "pyvrp",
    seconds: float | None = None,
    seed: int = 0,
    workers: int = 1,
) -> list[Solution]:
    """Solve instances by a trained model or, without one, each by a solver under a time limit.

    A model builds tours greedily from every first customer and under symmetries of the square, and keeps the best of
    each instance. The first call on a GPU also compiles, which its seconds include.

    An instance of ``read_library`` is solved by both under one limit, as ``polarvrp solve`` does: the network builds
    tours, from as many starts and symmetries as fit, and PyVRP improves the best of them. Its cost counts distances as
    the file's set does.

    Args:
        instances: B instances of one variant, or one of ``read_library``.
        model: Of ``load_model``; None for a solver.
        augmentations: Of a set with a model: symmetries, 1 to 8; more take longer and are never worse.
        solver: Without a model: ``pyvrp`` or ``ortools``.
        seconds: Without a model, and for a library instance: wall-clock limit of each, one thread; 1 by default.
        seed: Of the solver.
        workers: Of a set without a model: processes that solve side by side. More than 1 start new processes, so a
            script needs ``if __name__ == "__main__":``.

    Returns:
        One solution an instance, in order, each priced and checked exactly. One that was not solved, because a
        customer cannot be served or nothing was found in time, has no cost but a ``problem``.

    Raises:
        ConfigError: If an option is out of bounds, a time limit is given to a model, or ``instances`` is something
            else, such as a path.
        DataError: If the instances mix variants, or a library instance has no solution.

    Example:
        >>> import polarvrp
        >>> instances = polarvrp.generate("VRPTW", num_customers=20, instances=2)
        >>> model = polarvrp.load_model("polarnet-ple-polar-n50-s0")
        >>> for solution in polarvrp.solve(instances, model) + polarvrp.solve(instances, seconds=0.2):
        ...     print(solution.method, solution.feasible, sum(len(route.customers) for route in solution.routes))
        polarnet-ple-polar-n50-s0 True 20
        polarnet-ple-polar-n50-s0 True 20
        pyvrp True 20
        pyvrp True 20
    """
    _require_instances(instances)
    if isinstance(instances, LibraryInstance):
        return [_solve_library(instances, model, solver, DEFAULT_SECONDS if seconds is None else seconds, seed)]
    if model is None:
        from polarvrp.solvers.solve import SolverSettings

        limit = DEFAULT_SECONDS if seconds is None else seconds
        rows = _solve_by_solver(instances, SolverSettings(solver, limit, seed), workers)
    elif seconds is None:
        rows = _solve_by_model(instances, model, augmentations)
    else:
        raise ConfigError("a model takes no time limit: leave seconds out, or the model for a solver")
    return [_solution(instances, row) for row in rows]


def check(
    instances: Instances[NodeArrays] | LibraryInstance, solutions: Sequence[Solution | Sequence[int]]
) -> CheckReport:
    """Exact cost and feasibility of each solution, by code that no solver or network shares.

    Loads may exceed the capacity by 1e-6, times and lengths their bounds by 1e-5 in the unit square, the rounding of a
    policy's clock (``polarvrp.tolerances``); ``max_violation`` is raw. In a library instance whole loads have no
    tolerance and times 1e-6, as a share of bounds above 1 but never more than 0.01; costs count distances as its set
    does, and a violation is 0 or infinite.

    Args:
        instances: B instances, or one of ``read_library``.
        solutions: One an instance, in order: results of ``solve``, or flat lists of nodes (see ``Solution.actions``).

    Returns:
        Costs, feasibility, violations and problems.

    Raises:
        ConfigError: If ``instances`` is something else, such as a path.
        DataError: If there are not as many solutions as instances.

    Example:
        >>> import polarvrp
        >>> instances = polarvrp.generate("CVRP", num_customers=4, instances=2)
        >>> report = polarvrp.check(instances, [[1, 2, 0, 3, 4], [1, 2, 0, 3]])
        >>> report.feasible.tolist(), report.problems[1]
        ([True, False], 'customer 4 is not served; every customer must be served once')
    """
    _require_instances(instances)
    count = 1 if isinstance(instances, LibraryInstance) else len(instances)
    if len(solutions) != count:
        raise DataError(f"there must be one solution an instance, got {len(solutions)} for {count}")
    found = [_checked(instances, index, solution) for index, solution in enumerate(solutions)]
    costs, violations, problems = zip(*found, strict=True) if found else ((), (), ())
    feasible = np.array([problem is None for problem in problems], dtype=np.bool_)
    return CheckReport(np.array(costs, dtype=np.float64), feasible, np.array(violations, dtype=np.float64), problems)


def describe(backbone: str, encoder: str, num_customers: int = 50, task_experts: int = 3) -> dict[str, Any]:
    """Parts, parameters and multiply-adds of a network, as ``polarvrp describe`` prints them.

    Args:
        backbone: E.g. ``polarnet``, ``mtpomo``, ``mvmoe``; or your own, by entry point or ``package.module:attribute``.
        encoder: One that the backbone exists with: ``shared``, ``deep``, ``ple`` or your own.
        num_customers: Size of the instance whose multiply-adds are counted.
        task_experts: Task experts of a PLE layer.

    Returns:
        ``parts``, ``parameters``, ``trainable_parameters``, ``parameters_by_part`` and ``multiply_adds``, with their
        names.

    Raises:
        ConfigError: If there is no such backbone, or not with this encoder.

    Example:
        >>> import polarvrp
        >>> polarvrp.describe("polarnet", "ple")["parameters"]
        6983414
    """
    from polarvrp.config.model import ModelConfig
    from polarvrp.model.description import describe_network

    config = {"backbone": backbone, "encoder": encoder, "num_customers": num_customers, "task_experts": task_experts}
    return describe_network(ModelConfig.from_mapping(config))


def _require_instances(instances: object) -> None:
    """Refuse what is no instance, most often the path of one.

    Raises:
        ConfigError: If it is none.
    """
    if not isinstance(instances, Instances | LibraryInstance):
        raise ConfigError(
            f"instances must come from generate, read_instances or read_library, got {str(instances)[:80]!r} "
            f"({type(instances).__name__}); read a file first"
        )


def _solve_by_model(instances: Instances[NodeArrays], model: Model, augmentations: int) -> list[SolutionRow]:
    from polarvrp.decoding.greedy import Decoding, GreedySolver
    from polarvrp.evaluation.evaluate import evaluate_set

    if not 1 <= augmentations <= NUM_SYMMETRIES:
        raise ConfigError(f"augmentations must be from 1 to {NUM_SYMMETRIES}, got {augmentations}")
    solver = GreedySolver(model.policy, Decoding(augmentations), model.bfloat16)
    return evaluate_set(solver, model.run, instances)


def _solve_by_solver(instances: Instances[NodeArrays], settings: SolverSettings, workers: int) -> list[SolutionRow]:
    from polarvrp.solvers.pool import default_hard_limit, require_workers, solve_tasks
    from polarvrp.solvers.solve import InstanceTask, solve_instance

    require_workers(workers)
    datasets.variant_of(instances)
    if workers == 1:
        return [solve_instance(instances, index, settings) for index in range(len(instances))]
    tasks = [InstanceTask(instances[[index]], index, settings, None) for index in range(len(instances))]
    rows = solve_tasks(tasks, workers, default_hard_limit(settings.seconds, instances.num_customers))
    return sorted(rows, key=lambda row: row.instance)


def _solve_library(library: LibraryInstance, model: Model | None, solver: str, seconds: float, seed: int) -> Solution:
    from polarvrp.library.solving import solve_library

    if solver != "pyvrp":
        raise ConfigError(f"library instances are solved by pyvrp, with a model or alone, got solver {solver!r}")
    found = solve_library(library, model, seconds, seed)
    actions = tuple(routes_to_actions(found.routes, library.num_depots))
    feasible = found.problem is None
    return Solution(found.cost, found.routes, actions, feasible, found.seconds, found.method, found.problem)


def _solution(instances: Instances[NodeArrays], row: SolutionRow) -> Solution:
    """A row with its routes, checked once more."""
    if row.cost is None:
        return Solution(None, (), (), False, row.seconds or 0.0, row.method, row.reason)
    report = check_tour(instances, row.instance, row.actions, POLICY_TOLERANCE)
    routes = tuple(actions_to_routes(row.actions, instances.num_depots))
    feasible = report.first_problem is None
    return Solution(report.cost, routes, row.actions, feasible, row.seconds or 0.0, row.method, report.first_problem)


def _checked(
    instances: Instances[NodeArrays] | LibraryInstance, index: int, solution: Solution | Sequence[int]
) -> tuple[float, float, str | None]:
    """Cost and violation, NaN without a tour, and what is wrong."""
    if isinstance(solution, Solution) and solution.cost is None:
        return np.nan, np.nan, solution.problem or "no solution"
    actions = solution.actions if isinstance(solution, Solution) else solution
    try:
        if isinstance(instances, LibraryInstance):
            priced = check_routes(instances, actions_to_routes(actions, instances.num_depots))
            broken = priced.first_problem is not None
            return float(priced.cost), np.inf if broken else 0.0, priced.first_problem
        report = check_tour(instances, index, actions, POLICY_TOLERANCE)
    except InfeasibleTourError as error:
        return np.nan, np.nan, str(error)
    return report.cost, report.max_violation, report.first_problem
