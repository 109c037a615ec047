"""Library files: dialects read alike, unsupported types refused by name, Set-X priced exactly."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import vrplib

from polarvrp.errors import DataError, InfeasibleTourError
from polarvrp.outputs import MARK, marked, stated_subject
from polarvrp.problem.library_files import parse_library, read_library
from polarvrp.problem.library_instances import Convention, Rounding
from polarvrp.problem.library_prices import check_routes
from polarvrp.problem.tours import Route, check_tour, routes_to_actions
from polarvrp.problem.vrplib import (
    convention_stated,
    load_set_x,
    parse_sol,
    read_sol,
    set_x_names,
    to_instances,
    write_sol,
)

PLAIN = """NAME : tiny
COMMENT : five nodes (made up)
TYPE : CVRP
DIMENSION : 5
EDGE_WEIGHT_TYPE : EUC_2D
CAPACITY : 10
NODE_COORD_SECTION
1 0 0
2 3 4
3 3 0
4 0 1
5 1 1
DEMAND_SECTION
1 0
2 4
3 6
4 10
5 1
DEPOT_SECTION
1
-1
EOF
"""

DIALECTS = {
    "crlf": PLAIN.replace("\n", "\r\n"),
    "tabs": PLAIN.replace(" ", "\t"),
    "colon after sections": PLAIN.replace("SECTION\n", "SECTION:\n"),
    "spaced colon after sections": PLAIN.replace("SECTION\n", "SECTION : \n"),
    "no blank before the colon": PLAIN.replace(" : ", ":"),
    "several blanks, indented": re.sub(r"^", "  ", PLAIN.replace(" ", "   "), flags=re.MULTILINE),
    "no EOF": PLAIN.removesuffix("EOF\n"),
    "no line end at the end": PLAIN.removesuffix("\nEOF\n"),
    "blank lines": PLAIN.replace("\n", "\n\n") + "\n\n",
    "lower case": "\n".join(line.lower() if line[:1].isalpha() else line for line in PLAIN.split("\n")),
    "floats": re.sub(r"(?<![\w.-])(\d+)$", r"\1.0", PLAIN, flags=re.MULTILINE).replace("\n4 0 1.0", "\n4.0 0e0 1.00"),
    "text after EOF": PLAIN + "1 2 3\nanything",
    "depots on one line": PLAIN.replace("1\n-1", "1 -1"),
    "informative keys": PLAIN.replace("TYPE", "NODE_COORD_TYPE : TWOD_COORDS\nVEHICLES : 3\nTYPE", 1),
    "nodes in another order": PLAIN.replace("2 3 4\n3 3 0\n", "3 3 0\n2 3 4\n"),
    "byte of another encoding": PLAIN.replace("made up", "Clarke \udc96 Wright"),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_harmless_dialects(dialect: str, tmp_path: Path) -> None:
    """Each copy reads to the same arrays as the plain file."""
    path = tmp_path / "tiny.vrp"
    path.write_bytes(DIALECTS[dialect].encode("utf-8", errors="surrogateescape"))
    got, plain = read_library(path), parse_library(PLAIN, "plain")
    np.testing.assert_array_equal(got.coordinates, [[0, 0], [3, 4], [3, 0], [0, 1], [1, 1]])
    np.testing.assert_array_equal(got.coordinates, plain.coordinates)
    np.testing.assert_array_equal(got.demands, [0, 4, 6, 10, 1])
    assert (got.name.lower(), got.capacity, got.num_customers) == ("tiny", 10, 4)
    assert (got.coordinates.dtype, got.demands.dtype) == (np.float64, np.int64)


def test_depot_with_another_number_comes_first() -> None:
    """Customers keep their order; the depot's demand moves with it."""
    text = PLAIN.replace("1\n-1", "3\n-1").replace("1 0\n2 4\n3 6", "1 6\n2 4\n3 0")
    library = parse_library(text, "text")
    np.testing.assert_array_equal(library.coordinates, [[3, 0], [0, 0], [3, 4], [0, 1], [1, 1]])
    np.testing.assert_array_equal(library.demands, [0, 6, 4, 10, 1])


def test_decimal_and_negative_coordinates() -> None:
    library = parse_library(PLAIN.replace("2 3 4", "2 -3.25 4.5e0"), "text")
    assert library.coordinates[1].tolist() == [-3.25, 4.5]


SOLOMON = (
    "C101\r\n\r\nVEHICLE\r\nNUMBER     CAPACITY\r\n  25         200\r\n\r\nCUSTOMER\r\nCUST NO.  XCOORD.\r\n 0 40 50"
)

REFUSED = [
    (PLAIN.replace("TYPE : CVRP", "TYPE : SDVRP"), "TYPE SDVRP is not supported; supported are CVRP, DCVRP"),
    (PLAIN.replace("EUC_2D", "EXPLICIT"), "EDGE_WEIGHT_SECTION is missing; is the file complete?"),
    (PLAIN.replace("EUC_2D", "GEO"), "EDGE_WEIGHT_TYPE GEO is not supported; supported are EUC_2D, CEIL_2D"),
    (PLAIN.replace("EDGE_WEIGHT_TYPE : EUC_2D\n", ""), "EDGE_WEIGHT_TYPE missing is not supported"),
    (PLAIN.replace("TYPE", "NODE_COORD_TYPE : THREED_COORDS\nTYPE", 1), "NODE_COORD_TYPE THREED_COORDS"),
    (PLAIN.replace("CAPACITY", "DISTANCE : 0\nCAPACITY"), "DISTANCE must be above 0, got 0"),
    (PLAIN.replace("CAPACITY", "MAX_TRIPS : 2\nCAPACITY"), "MAX_TRIPS is not supported and would change the problem"),
    (PLAIN.replace("DEPOT_S", "PRIZE_SECTION\n1 0\nDEPOT_S"), "PRIZE_SECTION is not supported and would change"),
    (PLAIN.replace("DEPOT_S", "TIME_WINDOW_SECTION\n1 0 9\nDEPOT_S"), "TIME_WINDOW_SECTION must hold 5 nodes, got 1"),
    (PLAIN.replace("1\n-1", "1\n2\n-1"), "DEPOT_SECTION must name one depot in 1 to 5, got [1, 2]"),
    (PLAIN.replace("1\n-1", "6\n-1"), "DEPOT_SECTION must name one depot in 1 to 5, got [6]"),
    (PLAIN.replace("DEPOT_SECTION\n1\n-1\n", ""), "DEPOT_SECTION must name one depot in 1 to 5, got none"),
    (PLAIN.replace("DIMENSION : 5\n", ""), "DIMENSION must be a number, got none"),
    (PLAIN.replace("DIMENSION : 5", "DIMENSION : 1"), "DIMENSION must be at least 2 and CAPACITY at least 1"),
    (PLAIN.replace("CAPACITY : 10", "CAPACITY : ten"), "CAPACITY must be a number, got ten"),
    (PLAIN.replace("2 4\n", "2 4.5\n"), "demand of node 2 must be a whole number, got 4.5; scale the file"),
    (PLAIN.replace("2 4\n", "2 -4\n"), "demands must be 0 at depots and never negative, got -4 at node 2"),
    (PLAIN.replace("1 0\n2 4\n", "1 2\n2 4\n"), "demands must be 0 at depots and never negative, got 2 at node 1"),
    (PLAIN.replace("5 1 1\n", ""), "NODE_COORD_SECTION must hold 5 nodes, got 4; is the file complete?"),
    (PLAIN.replace("5 1 1\n", "4 1 1\n"), "line 12 of NODE_COORD_SECTION: node 4 is repeated or not in 1 to 5"),
    (PLAIN.replace("5 1 1\n", "6 1 1\n"), "line 12 of NODE_COORD_SECTION: node 6 is repeated or not in 1 to 5"),
    (PLAIN.replace("5 1 1\n", "5 1\n"), "line 12 of NODE_COORD_SECTION must hold a node and 2 number(s)"),
    (PLAIN.replace("5 1 1\n", "5 1 nan\n"), "line 12 of NODE_COORD_SECTION must hold numbers, got 'nan'"),
    (PLAIN[: PLAIN.index("DEPOT")].removesuffix("5 1\n"), "DEMAND_SECTION must hold 5 nodes, got 4"),  # cut short
    (PLAIN.replace("DEMAND_SECTION", "what is this"), "line 13 is no key, section or row of one: 'what is this'"),
    (SOLOMON, "line 9 of CUSTOMER must hold node 0 and six numbers (x, y, demand, ready time"),
    ("Dear reader,\nthis is a letter.\n", "unknown format; wanted is a VRPLIB file (NAME, TYPE : CVRP"),
    ("", "unknown format; wanted is a VRPLIB file"),
    ("\x00\x01\x02", "unknown format; wanted is a VRPLIB file"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_refusals_name_file_and_reason(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.vrp"
    path.write_text(text)
    with pytest.raises(DataError, match=re.escape(f"{path}: ") + ".*" + re.escape(message)) as caught:
        read_library(path)
    assert "\n" not in str(caught.value)


def test_missing_files(tmp_path: Path) -> None:
    for read in (read_library, read_sol):
        with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'no'} does not exist")):
            read(tmp_path / "no")


@pytest.mark.parametrize(
    "text",
    [
        "Route #1: 1 2\nRoute #2: 3\nRoute #3: 4\nCost 21\n",
        "Route #1: 1 2 \r\nRoute #2: 3\r\nRoute #3: 4\r\nCost 21.0\r\n",
        "route 1 : 1\t2\n\nroute 2 : 3\nROUTE #3: 4\nTime 3.2\ncost: 21",
        "Route #1: 1 2\nRoute #2:\nRoute #3: 3\nRoute #4: 4\nCost 21\n",  # an empty route
        "Costs are whole numbers\nRoute #1: 1 2\nRoute #2: 3\nRoute #3: 4\nCost21\nCosting took 3 s\n",  # comments
    ],
)
def test_dialects_of_solutions(text: str) -> None:
    solution = parse_sol(text, "text")
    assert solution.routes == [Route(0, (1, 2)), Route(0, (3,)), Route(0, (4,))]
    assert solution.cost == 21.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "no solution file; expected lines 'Route #1: 5 3 8'"),
        ("Cost 12", "no solution file"),
        ("Route #1: 1 two", "line 1 must list customers, numbers from 1, got 'Route #1: 1 two'"),
        (f"Route #1: {'7' * 5000}", "line 1 must list customers, numbers from 1"),
        ("Route #1: \u0663", "line 1 must list customers, numbers from 1"),
        ("Route #1: 1\nCost 1e999", "line 2 must state the cost as a number, got 'Cost 1e999'"),
        ("Route #1: 1\nRoute #2: 0 2", "line 2 must list customers, numbers from 1"),
        ("Route #1: 1\nCost lots", "line 2 must state the cost as a number, got 'Cost lots'"),
    ],
)
def test_solutions_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(f"a.sol: {message}")):
        parse_sol(text, "a.sol")


def test_written_solutions_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "out" / "tiny.sol"
    routes = [Route(0, (1, 2)), Route(0, (4, 3))]
    write_sol(path, routes, 123456)
    assert path.read_text() == "Route #1: 1 2\nRoute #2: 4 3\nCost 123456\n"
    assert read_sol(path).routes == routes and read_sol(path).cost == 123456
    write_sol(path, routes, 784.25)
    assert read_sol(path).cost == 784.25


def test_our_solutions_say_how_they_count(tmp_path: Path) -> None:
    """In a comment that vrplib skips, whatever the name; others' comments say nothing."""
    library, path = parse_library(PLAIN, "tiny", Rounding.NONE, open_routes=True), tmp_path / "Route 1.sol"
    comment = marked({"solution": path.stem} | convention_stated(library))
    write_sol(path, [Route(0, (1, 2)), Route(0, (4, 3))], 12.5, comment)
    assert read_sol(path).convention == Convention(Rounding.NONE, open_routes=True)
    assert stated_subject(path) == {"solution": "Route 1", "distances": "exact", "open": True}
    foreign = vrplib.read_solution(str(path))
    assert (foreign["routes"], foreign["cost"]) == ([[1, 2], [4, 3]], 12.5)
    for said in (
        marked({"solution": "a"}),
        marked({"distances": "by eye", "open": True}),
        f"{MARK}{{",
        f"{MARK}[1]",
        "x",
    ):
        assert parse_sol(f"Route #1: 1\nComment {said}\n", "a").convention is None


def test_prices_by_hand() -> None:
    """Depot (0,0): 5 + 4 + 3 = 12; 1 + 1 = 2; there and back to (1,1) 1.41 + 1.41, rounded 1 + 1."""
    library = parse_library(PLAIN, "tiny")
    report = check_routes(library, [Route(0, (1, 2)), Route(0, (3,)), Route(0, (4,))])
    assert (report.cost, report.num_routes, report.first_problem) == (16, 3, None)
    assert report.length == pytest.approx(14 + 2 * 2**0.5, abs=1e-12)
    overloaded = check_routes(library, [Route(0, (1, 2, 4)), Route(0, (3,)), Route(0, ())])
    assert overloaded.first_problem == "route 1 has load 11, the capacity is 10"
    assert overloaded.num_routes == 2


def test_half_a_unit_is_rounded_up() -> None:
    """floor(d + 0.5): 2.5 costs 3, where rounding half to even gives 2."""
    library = parse_library(PLAIN.replace("2 3 4", "2 2.5 0"), "tiny")
    assert check_routes(library, [Route(0, (1,)), Route(0, (2,)), Route(0, (3,)), Route(0, (4,))]).cost == 6 + 6 + 2 + 2


ROUNDED = ("A-n32-k5", "X-n101-k25", "Antwerp1", "P-n16-k8", "Leuven1")
UNROUNDED = ("Li_21", "Golden_9", "tai75a", "Tai75a", "CMT1")


@pytest.mark.parametrize(
    ("name", "rounded"), [*((name, True) for name in ROUNDED), *((name, False) for name in UNROUNDED)]
)
def test_rounding_is_a_convention_of_the_set(name: str, rounded: bool) -> None:
    """All these files say EUC_2D; only the set tells how published costs count."""
    assert parse_library(PLAIN.replace("tiny", name), "text").rounding is (
        Rounding.NEAREST if rounded else Rounding.NONE
    )


@pytest.mark.parametrize(
    ("customers", "message"),
    [
        ([(1, 2), (3,)], "customer 4 is not served"),
        ([(1, 2), (3, 4), (1,)], "customer 1 is served twice"),
        ([(1, 2), (3, 4, 5)], "node 5 does not exist"),
        ([(1, 0, 2), (3, 4)], "customer 0 is the depot"),
        ([(1, -2), (3, 4)], "node -2 does not exist"),
    ],
)
def test_routes_that_are_no_solution(customers: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(InfeasibleTourError, match=message):
        check_routes(parse_library(PLAIN, "tiny"), [Route(0, c) for c in customers])


@pytest.mark.parametrize(("depot", "message"), [(-1, "node -1 does not exist"), (1, "node 1 is no depot")])
def test_routes_begin_at_depots(depot: int, message: str) -> None:
    """Number -1 would index the last customer."""
    with pytest.raises(InfeasibleTourError, match=message):
        check_routes(parse_library(PLAIN, "tiny"), [Route(depot, (1, 2, 3, 4))])


def test_normalisation() -> None:
    """One scale for both axes, the depot included; demands are fractions of the capacity."""
    instances = to_instances(parse_library(PLAIN.replace("1 0 0", "1 -5 0", 1), "tiny"))
    np.testing.assert_array_equal(
        instances.locs[0], np.array([[0, 0], [8, 4], [8, 0], [5, 1], [6, 1]], dtype=np.float32) / 8
    )
    np.testing.assert_array_equal(instances.demand_linehaul[0], np.array([0, 4, 6, 10, 1]) / 10)
    assert instances.capacity == 10 and len(instances) == 1 and not instances.flags.any()
    assert (instances.locs.dtype, instances.demand_linehaul.dtype) == (np.float32, np.float64)


def test_all_nodes_in_one_place() -> None:
    """A range of 0 is no division by 0."""
    text = re.sub(r"^(\d) \d \d$", r"\1 7 7", PLAIN, flags=re.MULTILINE)
    assert (to_instances(parse_library(text, "tiny")).locs == 0).all()


def test_set_x_is_complete_and_ordered() -> None:
    names = set_x_names()
    assert len(names) == 100
    sizes = [int(re.fullmatch(r"X-n(\d+)-k\d+", name).group(1)) for name in names]
    assert sizes == sorted(sizes) and (sizes[0], sizes[-1]) == (101, 1001)
    # The groups of the paper's averages.
    assert Counter((size > 250) + (size > 500) for size in sizes) == {0: 32, 1: 36, 2: 32}
    with pytest.raises(DataError, match="Set-X has no instance 'X-n100-k1'; names are like X-n101-k25"):
        load_set_x("X-n100-k1")


def test_best_known_solutions_of_set_x() -> None:
    """All 100: routes respect the capacity and cost, with rounded distances, what is stored."""
    excess = []
    for name in set_x_names():
        library, best_known, routes = load_set_x(name)
        assert library.name == name and library.num_customers == int(name.split("-")[1][1:]) - 1
        report = check_routes(library, routes)
        assert (report.cost, report.first_problem) == (best_known, None), name
        excess.append(100 * (report.length - best_known) / best_known)
    assert np.mean(excess) == pytest.approx(0.034, abs=0.0005)
    assert (min(excess), max(excess)) == (pytest.approx(-0.019, abs=0.0005), pytest.approx(0.114, abs=0.0005))


@pytest.mark.parametrize(
    ("name", "cost", "num_routes"),
    [("X-n101-k25", 27591, 26), ("X-n502-k39", 69226, 39), ("X-n1001-k43", 72355, 43)],
)
def test_published_best_known_costs(name: str, cost: int, num_routes: int) -> None:
    """The k of a name is no limit: X-n101-k25 has 26 routes."""
    _, best_known, routes = load_set_x(name)
    assert (best_known, len(routes)) == (cost, num_routes)


def test_normalised_instances_keep_lengths_and_demands() -> None:
    """The unit square's cost times the scale is the unrounded length, and the exact checker agrees on capacity."""
    library, _, routes = load_set_x("X-n125-k30")
    instances = to_instances(library)
    assert instances.locs.min() == 0.0 and instances.locs.max() == 1.0
    np.testing.assert_array_equal(np.rint(instances.demand_linehaul[0] * library.capacity), library.demands)
    report = check_tour(instances, 0, routes_to_actions(routes, 1))
    assert report.first_problem is None
    scale = np.ptp(library.coordinates, axis=0).max()
    assert report.cost * scale == pytest.approx(check_routes(library, routes).length, rel=1e-6)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be-bom"])
def test_a_byte_order_mark_changes_nothing(tmp_path: Path, encoding: str) -> None:
    instance, solution = "\r\n".join(PLAIN.splitlines()), "Route #1: 1 2\nCost 7\n"
    for name, text in (("x.vrp", instance), ("x.sol", solution)):
        content = b"\xfe\xff" + text.encode("utf-16-be") if "be" in encoding else text.encode(encoding)
        (tmp_path / name).write_bytes(content)
    assert read_library(tmp_path / "x.vrp").name == parse_library(PLAIN, "x").name
    assert read_sol(tmp_path / "x.sol").cost == 7
