"""Routing files in the forms that users have, small enough to price by hand."""

import math

import numpy as np

PLACES = "1 0 0\n2 3 4\n3 1 1\n4 -2.5 0"


"""Legs: depot to 1 is 5, to 2 is sqrt 2, to 3 is 2.5; from 1 to 2 it is sqrt 13, from 2 to 3 sqrt 13.25."""


def vrp(name: str, keys: str = "", sections: str = "", problem: str = "CVRP", weights: str = "EUC_2D") -> str:
    """A twin in VRPLIB form; each row ends where the real sets end theirs."""
    return (
        f"NAME : {name}\nCOMMENT : (made up: a twin)\nTYPE : {problem}\nDIMENSION : 4\nEDGE_WEIGHT_TYPE : {weights}\n"
        f"CAPACITY : 10\n{keys}NODE_COORD_SECTION\n{PLACES}\nDEMAND_SECTION\n1 0\n2 4\n3 6\n4 10\n{sections}"
        "DEPOT_SECTION\n 1\n -1\nEOF\n"
    )


PLAIN = vrp("tiny")


WINDOWS = "TIME_WINDOW_SECTION\n1 0 40\n2 0 6\n3 12 15\n4 0 20\nSERVICE_TIME_SECTION\n1 0\n2 2\n3 2\n4 2\n"


SOLOMON = """R199

VEHICLE
NUMBER     CAPACITY
  25         10

CUSTOMER
CUST NO.  XCOORD.   YCOORD.    DEMAND   READY TIME  DUE DATE   SERVICE   TIME

    0      0         0          0          0         40          0
    1      3         4          4          0          6          2
    2      1         1          6         12         15          2
    3     -2.5       0         10          0         20          2
"""


CORDEAU = """2 3 3 2
0 10
0 10
1 1 0 0 4 1 2 1 2
2 9 0 0 6 1 2 1 2
3 5 5 0 10 1 2 1 2
4 0 0 0 0 0 0
5 10 0 0 0 0 0
"""


BACKHAULS = {
    "a row a node": vrp("X-n4-50-k2", sections="BACKHAUL_SECTION\n1 0\n2 0\n3 6\n4 0\n", problem="VRPB").replace(
        "3 6\n4 10\nBACK", "3 0\n4 10\nBACK"
    ),
    "a list": vrp("X-n4-50-k2", sections="BACKHAUL_SECTION\n 3 -1\n", problem="VRPB"),
}


EXPLICIT = (
    "NAME : E-n4-k2\nTYPE : CVRP\nDIMENSION : 4\nEDGE_WEIGHT_TYPE : EXPLICIT\nEDGE_WEIGHT_FORMAT : {}\nCAPACITY : 10\n"
    "EDGE_WEIGHT_SECTION\n{}\nDEMAND_SECTION\n1 0\n2 4\n3 6\n4 10\nDEPOT_SECTION\n1\n-1\nEOF\n"
)


SYMMETRIC = np.array([[0, 10, 20, 30], [10, 0, 15, 25], [20, 15, 0, 5], [30, 25, 5, 0]])


LAYOUTS = {
    "FULL_MATRIX": "0 10 20 30\n10 0 15 25\n20 15 0 5\n30 25 5 0",
    "LOWER_ROW": "10\n20 15\n30 25 5",
    "UPPER_ROW": "10 20 30\n15 25\n5",
    "LOWER_DIAG_ROW": "0 10 0 20\n15 0 30 25\n5 0",
    "UPPER_DIAG_ROW": "0 10 20 30\n0 15 25\n0 5\n0",
}


TWINS = {
    "A": vrp("A-n4-k2"),
    "CMT": vrp("CMT6", "DISTANCE : 200\nSERVICE_TIME : 10\n"),
    "windows": vrp("R199", sections=WINDOWS, problem="VRPTW"),
    "backhauls": BACKHAULS["a row a node"],
    "matrix": EXPLICIT.format("LOWER_ROW", LAYOUTS["LOWER_ROW"]),
}


RINGS = {"Golden_1": (6, 550, 650), "Li_21": (14, 1200, 1800)}
"""Rings, capacity and limit of published instances that are places on rings of 40 around the depot."""


def rings(name: str) -> str:
    """A published instance, made by its authors' rule."""
    count, capacity, limit = RINGS[name]
    angles = [math.pi * step / 20 for step in range(40)]
    places = [(30 * ring * math.cos(a), 30 * ring * math.sin(a)) for ring in range(1, count + 1) for a in angles]
    rows = "".join(f"{node} {x:.4f} {y:.4f}\n" for node, (x, y) in enumerate([(0.0, 0.0), *places], start=1))
    loads = "".join(f"{node + 2} {(10, 30, 30, 10)[node % 4]}\n" for node in range(len(places)))
    return (
        f"NAME : {name}\nTYPE : CVRP\nDIMENSION : {len(places) + 1}\nEDGE_WEIGHT_TYPE : EUC_2D\nCAPACITY : {capacity}\n"
        f"DISTANCE : {limit}\nNODE_COORD_SECTION\n{rows}DEMAND_SECTION\n1 0\n{loads}DEPOT_SECTION\n1\n-1\nEOF\n"
    )
