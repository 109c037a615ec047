"""Routing files of users: the forms of the public sets, read as the packages read them and priced by hand."""

import math
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pyvrp
import vrplib

from helpers.library_texts import (
    BACKHAULS,
    CORDEAU,
    EXPLICIT,
    LAYOUTS,
    PLAIN,
    SOLOMON,
    SYMMETRIC,
    TWINS,
    WINDOWS,
    vrp,
)
from polarvrp.cli.main import main
from polarvrp.errors import DataError
from polarvrp.problem.library_files import parse_library, read_library
from polarvrp.problem.library_instances import Rounding, points_of_matrix
from polarvrp.problem.library_prices import at_cheapest_depots, check_routes, first_unservable_customer
from polarvrp.problem.tours import Route, check_tour
from polarvrp.problem.vrplib import load_set_x, set_x_names, to_instances
from polarvrp.tolerances import POLICY_TOLERANCE

ROUTES = [Route(0, (1, 2)), Route(0, (3,))]


LEGS = (5.0, math.sqrt(13), math.sqrt(2), 2.5, 2.5)


def cost_of(text: str, **options: Any) -> float:
    report = check_routes(parse_library(text, "twin.vrp", **options), ROUTES)
    assert report.first_problem is None
    return report.cost


@pytest.mark.parametrize("name", ["A-n4-k2", "B-n4-k2", "E-n4-k2", "F-n4-k2", "M-n4-k2", "P-n4-k2", "X-n4-k2", "mine"])
def test_rounded_sets(name: str) -> None:
    """5 + 4 + 1 + 3 + 3: 2.5 rounds up."""
    assert cost_of(vrp(name)) == 16


@pytest.mark.parametrize("name", ["CMT1", "Golden_9", "Li_21", "tai75a", "Tai75a", "GOLDEN_1", "cmt14"])
def test_unrounded_sets(name: str) -> None:
    assert cost_of(vrp(name)) == pytest.approx(sum(LEGS), abs=1e-12)


@pytest.mark.parametrize(
    ("weights", "rounding", "cost"),
    [
        ("CEIL_2D", Rounding.UP, 5 + 4 + 2 + 3 + 3),
        ("FLOOR_2D", Rounding.DOWN, 5 + 3 + 1 + 2 + 2),
        ("EXACT_2D", Rounding.NONE, sum(LEGS)),
        ("euc_2d", Rounding.NEAREST, 16),
    ],
)
def test_edge_weight_types(weights: str, rounding: Rounding, cost: float) -> None:
    """A stated type outranks the set, an option outranks both."""
    assert parse_library(vrp("X-n4-k2", weights=weights), "twin").rounding is rounding
    assert cost_of(vrp("X-n4-k2", weights=weights)) == pytest.approx(cost, abs=1e-12)
    assert cost_of(vrp("CMT1", weights=weights), rounding=Rounding.ONE_DECIMAL) == pytest.approx(5 + 3.6 + 1.4 + 5)


def test_tenths_rounded_down_are_one_decimal() -> None:
    """As LKH states Solomon's instances."""
    library = parse_library(vrp("C101", "SCALE : 10\nSERVICE_TIME : 90\n", weights="FLOOR_2D"), "twin")
    assert library.rounding is Rounding.ONE_DECIMAL
    assert parse_library(vrp("CMT1", "SCALE : 1000\n", weights="EXACT_2D"), "twin").rounding is Rounding.NONE


def test_limits_with_service() -> None:
    """CMT6 and its like: the limit counts legs and service; Golden states no service."""
    longest = 5 + math.sqrt(13) + math.sqrt(2)
    for limit, service, problem in (
        (longest + 20, "SERVICE_TIME : 10\n", None),
        (longest + 19.9, "SERVICE_TIME : 10\n", "route 1 has length 30.019765, the limit is 29.919765"),
        (longest, "", None),
        (1e1, "", "route 1 has length 10.019765, the limit is 10.000000"),
    ):
        library = parse_library(vrp("CMT6", f"DISTANCE : {limit!r}\n{service}"), "twin")
        report = check_routes(library, ROUTES)
        assert (report.first_problem, report.cost) == (problem, pytest.approx(sum(LEGS)))
        if service:
            np.testing.assert_array_equal(library.service_times, [0, 10, 10, 10])
            instances = to_instances(library)  # a closing time, for vehicles that leave at 0
            assert instances.flags.tolist() == [[False, True, False, False, False, False]]
            np.testing.assert_allclose(instances.time_windows[0, 0], [0, limit / 5.5], rtol=1e-6)
            late = check_tour(instances, 0, [1, 2, 0, 3], POLICY_TOLERANCE).first_problem
            assert (late is None) == (problem is None)
        else:
            instances = to_instances(library)
            assert instances.flags.tolist() == [[False, False, True, False, False, False]]
            np.testing.assert_allclose(instances.distance_limit, limit / 5.5, rtol=1e-6)


@pytest.mark.parametrize(
    ("rounding", "limit"), [(Rounding.NEAREST, 10_000_009.0), (Rounding.ONE_DECIMAL, 10_000_009.9)]
)
def test_large_bounds_hide_no_unit(rounding: Rounding, limit: float) -> None:
    """Legs of 10 and two services of five millions; the second begins 4 after the first."""
    service = "SERVICE_TIME : 5000000\n"
    limited = parse_library(vrp("t", f"DISTANCE : {limit}\n{service}"), "twin", rounding)
    wanted = f"route 1 has length 10000010.000000, the limit is {limit:.6f}"
    assert check_routes(limited, ROUTES).first_problem == wanted
    windows = "TIME_WINDOW_SECTION\n1 0 20000000\n2 0 20000000\n3 0 5000008\n4 0 20000000\n"
    timed = parse_library(vrp("t", service, windows, "VRPTW"), "twin")
    late = "route 1 serves customer 2 at 5000009.000000, its window ends 5000008.000000"
    assert check_routes(timed, ROUTES).first_problem == late


@pytest.mark.parametrize("text", [SOLOMON, vrp("R199", sections=WINDOWS, problem="VRPTW")])
def test_time_windows_in_both_forms(text: str) -> None:
    """One decimal is cut off: 5 + 3.6 + 1.4 + 2.5 + 2.5; customer 2 is waited for, from 10.6 to 12."""
    library = parse_library(text, "R199.txt")
    assert library.rounding is Rounding.ONE_DECIMAL and library.name == "R199"
    np.testing.assert_array_equal(library.time_windows, [[0, 40], [0, 6], [12, 15], [0, 20]])
    np.testing.assert_array_equal(library.service_times, [0, 2, 2, 2])
    assert cost_of(text) == 15.0
    assert cost_of(text, rounding=Rounding.NONE) == pytest.approx(sum(LEGS))
    late = check_routes(library, [Route(0, (2, 1)), Route(0, (3,))])
    assert late.first_problem == "route 1 serves customer 1 at 17.600000, its window ends 6.000000"


def test_solomon_texts_in_their_dialects(tmp_path: Path) -> None:
    """CRLF, a mark of byte order, heads over two lines and in lower case, the fleet for information."""
    plain = parse_library(SOLOMON, "R199.txt")
    heads = SOLOMON.replace("READY TIME", "READY\nTIME")
    for text in (SOLOMON.replace("\n", "\r\n"), "\ufeff" + SOLOMON, heads, SOLOMON.lower(), SOLOMON.replace(" ", "\t")):
        (path := tmp_path / "R199.txt").write_bytes(text.encode())
        got = read_library(path)
        np.testing.assert_array_equal(got.coordinates, plain.coordinates)
        np.testing.assert_array_equal(got.demands, [0, 4, 6, 10])
        assert (got.capacity, got.vehicles, got.rounding) == (10, 25, Rounding.ONE_DECIMAL)


def test_several_depots() -> None:
    """Depots first; each route counts from its cheapest depot: 2 + 2 + 2 sqrt 50, open 1 + 1 + sqrt 50."""
    library = parse_library(CORDEAU, "p99.txt")
    np.testing.assert_array_equal(library.coordinates, [[0, 0], [10, 0], [1, 0], [9, 0], [5, 5]])
    assert (library.num_depots, library.num_customers, library.rounding) == (2, 3, Rounding.NONE)
    assert (library.name, library.distance_limit, library.vehicles) == ("p99", math.inf, 6)
    routes = at_cheapest_depots(library, [Route(0, (2,)), Route(0, (3,)), Route(0, (4,))])
    assert [route.depot for route in routes] == [0, 1, 0]
    assert check_routes(library, routes).cost == pytest.approx(4 + 2 * math.sqrt(50))
    opened = parse_library(CORDEAU, "p99.txt", open_routes=True)
    assert check_routes(opened, routes).cost == pytest.approx(2 + math.sqrt(50))
    report = check_tour(to_instances(library), 0, [0, 2, 1, 3, 0, 4])
    assert report.first_problem is None and report.cost == pytest.approx((4 + 2 * math.sqrt(50)) / 10)


@pytest.mark.parametrize("old", ["4 0 0 0 0 0 0", "5 10 0 0 0 0 0"])
def test_depots_without_a_number_of_combinations(old: str) -> None:
    library = parse_library(CORDEAU.replace(old, old[:-2]), "p99.txt")
    np.testing.assert_array_equal(library.coordinates[:2], [[0, 0], [10, 0]])


def test_several_depots_in_vrplib_form() -> None:
    """Depots need not be the first nodes; other types than MDVRP have one."""
    text = (
        PLAIN.replace("TYPE : CVRP", "TYPE : MDVRP").replace(" 1\n -1", " 1\n 4\n -1").replace("4 10\nDEP", "4 0\nDEP")
    )
    library = parse_library(text, "twin")
    np.testing.assert_array_equal(library.coordinates, [[0, 0], [-2.5, 0], [3, 4], [1, 1]])
    assert (library.num_depots, library.num_customers, library.rounding) == (2, 2, Rounding.NONE)
    with pytest.raises(DataError, match=r"DEPOT_SECTION must name one depot in 1 to 4, got \[1, 4\]"):
        parse_library(text.replace("MDVRP", "CVRP"), "twin")


def test_several_depots_as_pyvrp_writes_them(tmp_path: Path) -> None:
    """A type is not stated, vehicles are; the limit is called a duration."""
    keys = "VEHICLES : 3\nVEHICLES_MAX_DURATION : 100\n"
    text = vrp("t", keys, "VEHICLES_DEPOT_SECTION\n1 1\n2 1\n3 2\n").replace("TYPE : CVRP\n", "", 1)
    text = text.replace(" 1\n -1", " 1\n 2\n -1").replace("2 4\n", "2 0\n")
    (path := tmp_path / "t.vrp").write_text(text)
    library, solver = read_library(path), pyvrp.read(path)
    assert (library.num_depots, library.distance_limit, library.vehicles) == (solver.num_depots, 100, 3)
    assert library.demands[2:].tolist() == [client.delivery[0] for client in solver.clients()] == [6, 10]


def test_several_depots_with_windows_and_durations() -> None:
    """The time away counts service and waiting that no later departure saves.

    To customer 2 and back with a service of 3: 1 + 3 + 1; then to customer 4, whose window opens at 60, later than
    the depot at (0, 0) can be left for customer 2, at 9: 60 + 1 + the way back - 9.
    """
    rows = CORDEAU.replace("2 3 3 2", "6 3 3 2").replace("0 10\n0 10\n", "50 10\n50 10\n")
    ends = iter(("0 10", "0 90", "60 90", "0 100", "0 100"))
    head, body = rows.splitlines()[:3], rows.splitlines()[3:]
    body[0], body[2] = "1 1 0 3 4 1 2 1 2", "3 5 5 1 6 1 2 1 2"
    text = "\n".join([*head, *(f"{row} {next(ends)}" for row in body)])
    library = parse_library(text, "pr99")
    np.testing.assert_array_equal(library.time_windows[:2], [[0, 100], [0, 100]])
    np.testing.assert_array_equal(library.service_times, [0, 0, 3, 0, 1])
    alone = [Route(0, (2,)), Route(1, (3,)), Route(0, (4,))]
    assert check_routes(library, alone).first_problem is None
    joined = check_routes(library, [Route(0, (2, 4)), Route(1, (3,))])
    away = 60 + 1 + math.sqrt(50) - 9
    assert joined.first_problem == f"route 1 has length {away:.6f}, the limit is 50.000000"


@pytest.mark.parametrize("form", BACKHAULS)
def test_backhauls_in_both_forms(form: str) -> None:
    library = parse_library(BACKHAULS[form].replace("2 4\n", "2 5\n"), "twin")
    np.testing.assert_array_equal(library.demands, [0, 5, 0, 10])
    np.testing.assert_array_equal(library.pickups, [0, 0, 6, 0])
    assert check_routes(library, ROUTES).cost == 16 and check_routes(library, ROUTES).first_problem is None
    wrong = check_routes(library, [Route(0, (2, 1)), Route(0, (3,))])
    assert wrong.first_problem == "route 1 delivers to customer 1 after a pickup"
    over = check_routes(library, [Route(0, (1, 3, 2))])
    assert over.first_problem == "route 1 has load 15, the capacity is 10"
    np.testing.assert_allclose(to_instances(library).demand_backhaul, [[0, 0, 0.6, 0]])


def test_open_routes() -> None:
    """By type or by option; 5 + 4 + 3."""
    assert cost_of(vrp("X-n4-k2", problem="OVRP")) == cost_of(vrp("X-n4-k2"), open_routes=True) == 12


@pytest.mark.parametrize("layout", LAYOUTS)
def test_matrices(layout: str) -> None:
    """However the numbers are broken into lines; 10 + 15 + 20 + 30 + 30."""
    for text in (LAYOUTS[layout], LAYOUTS[layout].replace("\n", " "), LAYOUTS[layout].replace(" ", "\n")):
        library = parse_library(EXPLICIT.format(layout, text), "twin")
        np.testing.assert_array_equal(library.matrix, SYMMETRIC)
        assert check_routes(library, ROUTES).cost == 105
        assert to_instances(library).locs.shape == (1, 4, 2)
    with pytest.raises(DataError, match=f"EDGE_WEIGHT_SECTION must hold {len(text.split())} numbers as {layout}, got"):
        parse_library(EXPLICIT.format(layout, text + " 7"), "twin")


def test_asymmetric_matrices_and_depots_elsewhere() -> None:
    """From row to column; the depot's row moves to the front with its column."""
    matrix = "0 1 2 3\n40 0 5 6\n70 80 0 9\n10 11 12 0"
    text = EXPLICIT.format("FULL_MATRIX", matrix)
    assert check_routes(parse_library(text, "twin"), ROUTES).cost == 1 + 5 + 70 + 3 + 10
    moved = text.replace("1 0\n2 4", "1 4\n2 0").replace("DEPOT_SECTION\n1", "DEPOT_SECTION\n2")
    assert check_routes(parse_library(moved, "twin"), ROUTES).cost == 40 + 2 + 80 + 6 + 11


def test_points_of_a_matrix_have_its_distances() -> None:
    """Exact in a plane, whatever the place and turn; one place for a matrix of zeros."""
    places = np.random.default_rng(0).random((30, 2))
    matrix = np.linalg.norm(places[:, None] - places[None], axis=-1)
    points = points_of_matrix(matrix)
    np.testing.assert_allclose(np.linalg.norm(points[:, None] - points[None], axis=-1), matrix, atol=1e-7)
    assert (points_of_matrix(np.zeros((3, 3))) == 0).all()


@pytest.mark.parametrize("name", TWINS)
def test_other_readers_agree(name: str, tmp_path: Path) -> None:
    """The packages vrplib and PyVRP on what they both read: plain files with the depot first."""
    (path := tmp_path / "twin.vrp").write_text(TWINS[name])
    ours, theirs, solver = read_library(path), vrplib.read_instance(path), pyvrp.read(path)
    np.testing.assert_array_equal(ours.demands, theirs["demand"])
    if ours.matrix is None:
        np.testing.assert_array_equal(ours.coordinates, theirs["node_coord"])
    else:
        np.testing.assert_array_equal(ours.matrix, theirs["edge_weight"])
    if ours.time_windows is not None:
        np.testing.assert_array_equal(ours.time_windows, theirs["time_window"])
    clients = solver.clients()
    assert [client.delivery for client in clients] == [[load] for load in ours.demands[1:].tolist()]
    if ours.pickups is not None:
        assert [client.pickup for client in clients] == [[load] for load in ours.pickups[1:].tolist()]
    if ours.service_times is not None:
        assert [client.service_duration for client in clients] == ours.service_times[1:].tolist()


@pytest.mark.parametrize("name", [set_x_names()[0], set_x_names()[50], "X-n1001-k43"])
def test_gaps_of_best_known_solutions_are_zero(name: str) -> None:
    library, best_known, routes = load_set_x(name)
    report = check_routes(library, routes)
    assert f"{100 * (report.cost - best_known) / best_known:.3f} %" == "0.000 %" and report.first_problem is None


def test_keys_after_sections_and_comments_are_read() -> None:
    text = (
        PLAIN.replace("CAPACITY : 10\n", "").replace("EOF", "Capacity: 1e1\nEOF").replace("TYPE", "# a note\nTYPE", 1)
    )
    assert cost_of(text) == 16


def test_check_prices_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Solomon's text with a cost of one decimal; Cordeau's, whose customers are numbered after the depots."""
    (solomon := tmp_path / "R199.txt").write_text(SOLOMON)
    (sol := tmp_path / "a.sol").write_text("\ufeffRoute #1: 1 2\nRoute #2: 3\nCost 15.0\n", encoding="utf-8")
    assert main(["check", str(solomon), str(sol)]) == 0
    assert capsys.readouterr().out == f"{sol}: R199, 2 routes, cost 15: right\n"
    assert main(["check", str(solomon), str(sol), "--distances", "exact"]) == 1
    assert "with exact distances it is 15.01" in capsys.readouterr().out
    (cordeau := tmp_path / "p99.txt").write_text(CORDEAU)
    sol.write_text("Route #1: 2\nRoute #2: 3\nRoute #3: 4\nCost 9.07\n")
    assert main(["check", str(cordeau), str(sol), "--open"]) == 0
    assert main(["check", str(cordeau), str(sol)]) == 1
    sol.write_text("Route #1: 1\nRoute #2: 3\nRoute #3: 4\nCost 9.07\n")
    assert main(["check", str(cordeau), str(sol)]) == 1
    assert "customer 1 is the depot; routes list customers from 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (vrp("load").replace("4 10\n", "4 11\n", 1), "customer 3 cannot be served: a route to it alone has load 11"),
        (vrp("window", sections=WINDOWS.replace("2 0 6", "2 0 4")), "customer 1 cannot be served: a route to it alone"),
        (vrp("limit", "DISTANCE : 9\n"), "customer 1 cannot be served: a route to it alone has length 10"),
        (vrp("closing", sections=WINDOWS.replace("1 0 40", "1 0 11")), "customer 1 cannot be served: a route to it"),
    ],
)
def test_customers_out_of_reach_are_named_with_the_rule(file: str, reason: str) -> None:
    """Too much to carry, too late for a window, too far, back after the depot closes."""
    assert reason in str(first_unservable_customer(parse_library(file, "twin")))


def test_ten_thousand_nodes_are_read_and_priced_without_a_matrix(tmp_path: Path) -> None:
    """A third of Flanders2; a matrix of 10,001 nodes would take 800 MB."""
    nodes = 10_001
    places = np.random.default_rng(0).integers(0, 100_000, (nodes, 2)).tolist()
    (path := tmp_path / "Flanders9.vrp").write_text(
        f"NAME : Flanders9\nTYPE : CVRP\nDIMENSION : {nodes}\nEDGE_WEIGHT_TYPE : EUC_2D\nCAPACITY : 200\n"
        + "NODE_COORD_SECTION\n"
        + "".join(f"{node} {x} {y}\n" for node, (x, y) in enumerate(places, start=1))
        + "DEMAND_SECTION\n1 0\n"
        + "".join(f"{node} 2\n" for node in range(2, nodes + 1))
        + "DEPOT_SECTION\n1\n-1\nEOF\n"
    )
    routes = [Route(0, tuple(range(first, first + 100))) for first in range(1, nodes, 100)]
    tracemalloc.start()
    start = time.perf_counter()
    report = check_routes(read_library(path), routes)
    seconds, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    legs = [leg for route in routes for leg in pairwise([0, *route.customers, 0])]
    assert report.cost == sum(math.floor(math.dist(places[a], places[b]) + 0.5) for a, b in legs)
    assert report.first_problem is None and seconds < 20 and peak < 0.1e9
