"""Routing files that cannot be read as they are: one line that names the place, whatever is wrong."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.library_texts import (
    BACKHAULS,
    CORDEAU,
    EXPLICIT,
    PLAIN,
    SOLOMON,
    TWINS,
    WINDOWS,
    vrp,
)
from polarvrp.errors import DataError
from polarvrp.problem.library_files import parse_library
from polarvrp.problem.library_instances import LibraryInstance
from polarvrp.problem.library_prices import check_routes
from polarvrp.problem.tours import Route

REFUSED = [
    (PLAIN.replace("2 4\n", "2 1e19\n"), "line 14 of DEMAND_SECTION holds 1e19; numbers go up to 1e+15"),
    (PLAIN.replace("2 3 4", "2 3 1e200"), "line 9 of NODE_COORD_SECTION holds 1e200"),
    (PLAIN.replace("2 3 4", "2 3 1e999"), "line 9 of NODE_COORD_SECTION holds 1e999"),
    (PLAIN.replace("2 3 4", "2 3 NaN"), "line 9 of NODE_COORD_SECTION must hold numbers, got 'NaN'"),
    (PLAIN.replace("2 3 4", "2 3 1_0"), "line 9 of NODE_COORD_SECTION must hold numbers, got '1_0'"),
    (PLAIN.replace("CAPACITY : 10", "CAPACITY : 1e19"), "CAPACITY must be at most 1e+15, got 1e19"),
    (PLAIN.replace("CAPACITY", "CAPACITY : 9\nCAPACITY"), "line 7 states CAPACITY a second time"),
    (PLAIN.replace("DIMENSION : 4", "DIMENSION : 5"), "NODE_COORD_SECTION must hold 5 nodes, got 4"),
    (PLAIN.replace("DIMENSION : 4", "DIMENSION : 3"), "line 11 of NODE_COORD_SECTION: node 4 is repeated or not in 1"),
    (PLAIN.replace("DIMENSION : 4", "DIMENSION : 1e15"), "NODE_COORD_SECTION must hold 1000000000000000 nodes, got 4"),
    (vrp("t", "SCALE : 100\n"), "SCALE is not supported with EDGE_WEIGHT_TYPE EUC_2D"),
    (vrp("t", "SCALE : 100\n", weights="FLOOR_2D"), "SCALE is not supported with EDGE_WEIGHT_TYPE FLOOR_2D, but for"),
    (vrp("t", "DISTANCE : 9\nVEHICLES_MAX_DURATION : 9\n"), "DISTANCE and VEHICLES_MAX_DURATION both state a limit"),
    (
        vrp("t", sections="VEHICLES_DEPOT_SECTION\n1 2\n"),
        "line 18 of VEHICLES_DEPOT_SECTION must hold a vehicle and its",
    ),
    (vrp("t", sections="VEHICLES_DEPOT_SECTION\n"), "depot 1 has no vehicles in VEHICLES_DEPOT_SECTION"),
    (vrp("t", "SCALE : x\n", weights="FLOOR_2D"), "SCALE must be a number, got x"),
    (vrp("t", sections="LINEHAUL_SECTION\n"), "LINEHAUL_SECTION and DEMAND_SECTION state the same"),
    (vrp("t", "SERVICE_TIME : 1\n", "SERVICE_TIME_SECTION\n"), "SERVICE_TIME and SERVICE_TIME_SECTION state the same"),
    (vrp("t", problem="VRPTW"), "TIME_WINDOW_SECTION is missing"),
    (vrp("t", problem="VRPB"), "BACKHAUL_SECTION is missing"),
    (
        vrp("t", sections=WINDOWS.replace("2 0 6", "2 7 6")),
        "the window of node 2 must begin at 0 or later and",
    ),
    (vrp("t", sections=WINDOWS.replace("4 2\n", "4 -2\n")), "service times must not be negative, got one at node 4"),
    (vrp("t", "SERVICE_TIME : -1\n"), "service times must not be negative, got one at node 2"),
    (vrp("t", sections="BACKHAUL_SECTION\n1 0\n2 0\n3 6\n4 0\n"), "node 3 has a delivery and a pickup"),
    (vrp("t", sections="BACKHAUL_SECTION\n1 -1\n"), "BACKHAUL_SECTION names 1, which is no customer"),
    (vrp("t", sections="BACKHAUL_SECTION\n1 0\n2 0\n"), "BACKHAUL_SECTION must hold 4 nodes, got 2"),
    (EXPLICIT.format("", "1"), "EDGE_WEIGHT_FORMAT is missing; supported are FULL_MATRIX"),
    (EXPLICIT.format("UPPER_COL", "1"), "EDGE_WEIGHT_FORMAT UPPER_COL is not supported; supported are FULL_MATRIX"),
    (EXPLICIT.format("LOWER_ROW", "10\n20 -15\n30 25 5"), "line 9 of EDGE_WEIGHT_SECTION holds a negative distance"),
    (SOLOMON.replace("    2      1", "    4      1"), "line 12 of CUSTOMER must hold node 2 and six numbers"),
    (SOLOMON.replace("         6         12", "       6.5         12"), "demand on line 12 must be a whole number"),
    (SOLOMON.replace("12         15", "16         15"), "line 12: no window from 16 to 15"),
    (SOLOMON.replace("  25         10\n", ""), "VEHICLE must hold one row, number and capacity"),
    (CORDEAU.replace("2 3 3 2", "1 3 3 2"), "type 1 (PVRP) is not supported; supported are 2 (MDVRP) and 6 (MDVRPTW)"),
    (CORDEAU.replace("2 3 3 2", "2 3 4 2"), "2 fleets, 4 customers and 2 depots must follow the first row, got 7 rows"),
    (CORDEAU.replace("0 10\n0 10", "0 10\n0 11"), "line 3 must hold the longest duration and the capacity, the same"),
    (CORDEAU.replace("3 5 5", "3 5"), "line 6: visits must be 1 for customers and 0 for depots, got 2"),
    (CORDEAU.replace("3 5 5 0", "3 5"), "line 6 must hold node 3, x, y, service, demand, frequency, combinations"),
    (CORDEAU.replace("3 5 5", "3 inf 5"), "line 6 of the file must hold numbers, got 'inf'"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_refusals_take_one_line_and_name_the_place(text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_library(text, "bad.vrp")
    assert str(caught.value).startswith("bad.vrp: ") and message in str(caught.value) and "\n" not in str(caught.value)


WORDS = (
    "1e19",
    "-1",
    "nan",
    "0",
    "5",
    "1e-300",
    "99999999999999999999",
    "EOF",
    ":",
    "DEMAND_SECTION",
    "VEHICLE",
    "x",
    "",
)


SEVERAL_DEPOTS = vrp("t", "VEHICLES_MAX_DURATION : 90\n", "VEHICLES_DEPOT_SECTION\n1 1\n", "MDVRP")


MUTABLE = (*TWINS.values(), SOLOMON, CORDEAU, BACKHAULS["a list"], SEVERAL_DEPOTS)


@st.composite
def mutated_texts(draw: st.DrawFn) -> str:
    """A file with a few words replaced, lines dropped, repeated or swapped, or its end cut off."""
    lines = [line.split(" ") for line in draw(st.sampled_from(MUTABLE)).split("\n")]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(("word", "word", "word", "drop", "repeat", "swap", "cut")))
        if kind == "word":
            word = draw(st.sampled_from(WORDS) | st.text(max_size=4))
            lines[at][draw(st.integers(0, len(lines[at]) - 1))] = word
        elif kind == "drop" and len(lines) > 1:
            del lines[at]
        elif kind == "repeat":
            lines.insert(at, list(lines[at]))
        elif kind == "swap":
            lines[at], lines[-1 - at] = lines[-1 - at], lines[at]
        elif at > 0:
            del lines[at:]
    return "\n".join(" ".join(words) for words in lines)


def customers_of(library: LibraryInstance) -> range:
    return range(library.num_depots, len(library.demands))


@settings(max_examples=400, deadline=None)
@given(text=mutated_texts())
def test_mutated_files_are_read_or_refused_in_one_line(text: str) -> None:
    start = time.perf_counter()
    try:
        library = parse_library(text, "bad.vrp")
    except DataError as error:
        assert len(str(error).splitlines()) == 1 and str(error).startswith("bad.vrp: ")
    else:
        assert isinstance(library, LibraryInstance) and np.isfinite(library.coordinates).all()
        assert math.isfinite(check_routes(library, [Route(0, (c,)) for c in customers_of(library)]).cost)
    assert time.perf_counter() - start < 5.0
