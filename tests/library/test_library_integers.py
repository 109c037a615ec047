"""PyVRP's model of library instances against the exact check: same verdict on random routes, same cost."""

import dataclasses
import random

import numpy as np
import pytest

from polarvrp.errors import DataError
from polarvrp.library.solving import solve_library
from polarvrp.problem.library_instances import LibraryInstance, Rounding
from polarvrp.problem.library_prices import check_routes, first_unservable_customer, split_to_feasible
from polarvrp.problem.library_twins import drawn_library
from polarvrp.problem.tours import Route, routes_to_actions
from polarvrp.solvers.integers import LARGEST_COST, LARGEST_PENALTY, MOST_CUSTOMERS, largest_scale
from polarvrp.solvers.library_integers import counted_distances, library_integers
from polarvrp.solvers.pyvrp_model import problem_data, solution_of

SIZE = 14


def twin(kind: str, rounding: Rounding) -> LibraryInstance:
    """An instance of a kind of files, with what its variant's name does not say after a plus."""
    variant, _, extra = kind.partition("+")
    library = drawn_library(variant, SIZE, seed=3, rounding=rounding)
    if extra == "service":
        service = np.full(SIZE + 1, 90.0)
        service[0] = 0
        return dataclasses.replace(library, service_times=service, distance_limit=library.distance_limit + 200)
    if extra == "limit":
        return dataclasses.replace(library, distance_limit=3000.0)
    if extra == "opening":
        windows = library.time_windows
        assert windows is not None
        return dataclasses.replace(library, time_windows=windows + 480, distance_limit=3900.0)
    if extra == "asymmetric":
        matrix = np.random.default_rng(0).integers(1, 500, (SIZE + 1, SIZE + 1)).astype(np.float64)
        np.fill_diagonal(matrix, 0)
        return dataclasses.replace(library, matrix=matrix, rounding=Rounding.NONE)
    return library


KINDS = (
    "CVRP",
    "CVRP+asymmetric",
    "OVRP",
    "VRPL",
    "VRPL+service",
    "VRPTW",
    "VRPTW+limit",
    "VRPTW+opening",
    "OVRPTW+limit",
    "VRPBTW",
    "MDVRPTW",
    "MDOVRPB",
)


@pytest.mark.parametrize("rounding", [Rounding.NEAREST, Rounding.ONE_DECIMAL, Rounding.NONE])
@pytest.mark.parametrize("kind", KINDS)
def test_random_solutions_get_the_checks_verdict(kind: str, rounding: Rounding) -> None:
    """Whole numbers and tenths are the file's own, so verdicts and costs are equal; else costs are a hair higher."""
    rng, library = random.Random(kind), twin(kind, rounding)
    integers = library_integers(library)
    data, depots = problem_data(integers), library.num_depots
    customers = list(range(depots, len(library.demands)))
    windows = library.time_windows
    verdicts = []
    for _ in range(120):
        rng.shuffle(customers)
        if windows is not None and rng.random() < 0.8:
            customers.sort(key=lambda customer: windows[customer, 1])
        cuts = sorted(rng.sample(range(1, SIZE), rng.randint(2, SIZE - 1)))
        parts = [customers[i:j] for i, j in zip([0, *cuts], [*cuts, SIZE], strict=True)]
        routes = [Route(rng.randrange(depots), tuple(part)) for part in parts]
        if rng.random() < 0.6:
            routes = split_to_feasible(library, routes)
        report = check_routes(library, routes)
        solution = solution_of(data, routes_to_actions(routes, depots))
        assert solution.is_feasible() == (report.first_problem is None)
        verdicts.append(report.first_problem is None)
        if solution.is_feasible():
            excess = solution.distance() / integers.scale - report.cost
            assert -1e-6 <= excess <= (2 * SIZE / integers.scale if rounding is Rounding.NONE else 1e-6)
    assert 10 < sum(verdicts) < 120


def test_scales_are_those_of_the_files_numbers() -> None:
    assert library_integers(drawn_library("VRPTW", 5, 0, Rounding.NEAREST)).scale == 1
    assert library_integers(drawn_library("VRPTW", 5, 0, Rounding.ONE_DECIMAL)).scale == 10
    assert library_integers(drawn_library("VRPTW", 5, 0, Rounding.NONE)).scale == 10**5


def test_service_in_a_window_narrower_than_a_unit_begins_no_earlier() -> None:
    """At 1.0000079, which is no whole number of units: customer 2 is reached 7e-6 after its window has ended."""
    windows = np.array([[0.0, 9.0], [1.0000079, 1.0000079], [0.0, 2.0000005]])
    places = np.array([[0.0, 0], [1, 0], [2, 0]])
    demands = np.array([0, 1, 1])
    library = LibraryInstance("t", places, demands, 10, time_windows=windows, rounding=Rounding.NONE)
    data = problem_data(library_integers(library))
    for routes in ([Route(0, (1, 2))], [Route(0, (1,)), Route(0, (2,))]):
        is_feasible = check_routes(library, routes).first_problem is None
        assert is_feasible == (len(routes) == 2)
        assert solution_of(data, routes_to_actions(routes, 1)).is_feasible() == is_feasible


def test_penalties_of_loads_stay_within_64_bits() -> None:
    """Beyond, PyVRP would loop for ever."""
    library = drawn_library("VRPB", 9, 0, Rounding.NONE)
    for factor in (1, 10**6, 10**12):
        large = dataclasses.replace(
            library,
            demands=library.demands * factor,
            pickups=np.asarray(library.pickups) * factor,
            capacity=library.capacity * factor,
        )
        integers = library_integers(large)
        loads = int(integers.delivery.sum() + integers.pickup.sum())
        assert loads * LARGEST_PENALTY <= LARGEST_COST
        assert int(integers.delivery[0]) * large.capacity == integers.vehicle_load * int(large.demands[1])
    with pytest.raises(DataError, match="too much for 64-bit costs; use a larger unit"):
        library_integers(dataclasses.replace(library, demands=library.demands * 10**14, capacity=10**16))


def test_more_customers_than_costs_have_room_for_are_refused_at_once() -> None:
    """Whatever the unit, so none is blamed; tables of all pairs of so many would take gigabytes."""
    assert largest_scale(MOST_CUSTOMERS, longest_leg=1000.0, longest_stay=0.0, bound=1) == (1, 2**32)
    nodes = MOST_CUSTOMERS + 2
    library = LibraryInstance("t", np.zeros((nodes, 2)), np.zeros(nodes, dtype=np.int64), 10)
    wanted = "20955 customers leave no room for 64-bit costs; divide them into parts of at most 20954"
    with pytest.raises(DataError, match=wanted):
        library_integers(library)


@pytest.mark.parametrize("rounding", Rounding)
def test_distances_of_all_are_those_of_each(rounding: Rounding) -> None:
    library = drawn_library("MDVRP", 9, 1, rounding)
    found = counted_distances(library)
    for start, (x, y) in enumerate(library.coordinates.tolist()):
        for end, (other_x, other_y) in enumerate(library.coordinates.tolist()):
            assert found[start, end] == rounding.of(float(np.sqrt((x - other_x) ** 2 + (y - other_y) ** 2)))


@pytest.mark.parametrize("kind", KINDS)
def test_routes_are_cut_until_they_break_no_rule(kind: str) -> None:
    library = twin(kind, Rounding.NEAREST)
    customers = tuple(range(library.num_depots, len(library.demands)))
    whole = [Route(library.num_depots - 1, customers)]
    pieces = split_to_feasible(library, whole)
    assert check_routes(library, pieces).first_problem is None
    assert tuple(customer for piece in pieces for customer in piece.customers) == customers
    assert split_to_feasible(library, pieces) == pieces


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"demands": np.array([0, 3, 99])}, "customer 2 cannot be served: a route to it alone has load 99"),
        (
            {"time_windows": np.array([[0.0, 9], [0, 9], [0, 3]])},
            "customer 2 .* alone serves customer 2 at 4.000000, its",
        ),
        (
            {"time_windows": np.array([[0.0, 7], [0, 9], [0, 9]])},
            "customer 2 .* alone returns at 8.000000, depot 0 closes",
        ),
        ({"distance_limit": 7.5}, "customer 2 .* alone has length 8.000000, the limit is 7.500000"),
        ({"distance_limit": 8.0, "service_times": np.array([0.0, 0, 1])}, "customer 2 .* alone has length 9.000000"),
    ],
)
def test_a_customer_that_nobody_can_serve_is_named_with_the_rule(changes: dict[str, object], message: str) -> None:
    places = np.array([[0.0, 0], [1, 0], [0, 4]])
    library = LibraryInstance("t", places, np.array([0, 3, 4]), 10)
    assert first_unservable_customer(library) is None
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(first_unservable_customer(dataclasses.replace(library, **changes)))  # type: ignore[arg-type]


def test_by_a_matrix_nothing_is_said_of_ways_through_others() -> None:
    """Customer 2 closes at 3: the way straight to it takes 9, the one through customer 1 takes 2."""
    places = np.array([[0.0, 0], [1, 0], [0, 4]])
    windows = np.array([[0.0, 20], [0, 9], [0, 3]])
    direct = LibraryInstance("t", places, np.array([0, 3, 4]), 10, time_windows=windows)
    by_matrix = dataclasses.replace(direct, matrix=np.array([[0.0, 1, 9], [1, 0, 1], [9, 1, 0]]))
    assert check_routes(by_matrix, [Route(0, (1, 2))]).first_problem is None
    with pytest.raises(DataError, match=r"customer 2 .*; routes that reach it through others are not tried$"):
        solve_library(by_matrix, None, seconds=0.1)
    with pytest.raises(DataError, match=r"customer 2 .*; there is no solution$"):
        solve_library(direct, None, seconds=0.1)
