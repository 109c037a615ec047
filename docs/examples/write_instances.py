"""Files to try ``polarvrp solve`` on: one of each form, generated but for one of Set-X with its best-known routes.

    python docs/examples/write_instances.py instances
    polarvrp solve instances --seconds 2 --output solved --plot

Generated instances carry the numbers of the published generator in whole units; their files look like those of the
public sets, whose own files are their authors' to give.
"""

import argparse
import dataclasses
import zipfile
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

import numpy as np

from polarvrp.problem.library_instances import LibraryInstance
from polarvrp.problem.library_twins import drawn_library

SET_X = "X-n101-k25"


def main() -> None:
    """Write them all."""
    parser = argparse.ArgumentParser(description="One file of each form that polarvrp solve reads.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--num-customers", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, text in generated_files(options.num_customers, options.seed).items():
        (options.folder / name).write_text(text, encoding="utf-8")
    with (
        resources.files("polarvrp").joinpath("data", "set_x.zip").open("rb") as file,
        zipfile.ZipFile(file) as archive,
    ):
        for suffix in ("vrp", "sol"):
            archive.extract(f"{SET_X}.{suffix}", options.folder)
    print(f"{len(list(options.folder.iterdir()))} files in {options.folder}")


def generated_files(num_customers: int, seed: int) -> dict[str, str]:
    """Text by file name."""

    def drawn(variant: str) -> LibraryInstance:
        return drawn_library(variant, num_customers, seed)

    limited, ten = drawn("VRPL"), np.full(num_customers + 1, 10.0)
    ten[0] = 0
    limited = dataclasses.replace(
        limited, service_times=ten, distance_limit=limited.distance_limit + 10 * num_customers / 4
    )
    return {
        "open.vrp": vrplib_text("open", drawn("OVRP"), "OVRP"),
        "limit.vrp": vrplib_text("limit", limited, "CVRP"),
        "backhauls.vrp": vrplib_text("backhauls", drawn("VRPB"), "VRPB"),
        "windows.vrp": vrplib_text("windows", drawn("VRPTW"), "VRPTW"),
        "matrix.vrp": matrix_text("matrix", drawn("CVRP")),
        "solomon.txt": solomon_text("R1", drawn("VRPTW")),
        "cordeau.txt": cordeau_text(drawn("MDVRP")),
    }


def vrplib_text(name: str, library: LibraryInstance, problem: str) -> str:
    """An instance of one depot in VRPLIB form."""
    keys = [
        f"NAME : {name}",
        "COMMENT : generated",
        f"TYPE : {problem}",
        f"DIMENSION : {len(library.demands)}",
        "EDGE_WEIGHT_TYPE : EUC_2D",
        f"CAPACITY : {library.capacity}",
    ]
    if np.isfinite(library.distance_limit):
        keys.append(f"DISTANCE : {library.distance_limit:g}")
    if library.service_times is not None and library.time_windows is None:
        keys.append(f"SERVICE_TIME : {library.service_times[1]:g}")
    sections = section("NODE_COORD_SECTION", library.coordinates) + section("DEMAND_SECTION", library.demands[:, None])
    if library.pickups is not None:
        sections += section("BACKHAUL_SECTION", library.pickups[:, None])
    if library.time_windows is not None and library.service_times is not None:
        sections += section("TIME_WINDOW_SECTION", library.time_windows)
        sections += section("SERVICE_TIME_SECTION", library.service_times[:, None])
    return "\n".join([*keys, *sections, "DEPOT_SECTION", "1", "-1", "EOF", ""])


def section(name: str, rows: Iterable[Iterable[float]]) -> list[str]:
    """A section with a row for every node."""
    return [name, *(f"{node} {row_text(row)}" for node, row in enumerate(rows, start=1))]


def row_text(numbers: Iterable[float]) -> str:
    """Numbers of a row, whole ones without a point."""
    return " ".join(f"{number:.10g}" for number in numbers)


def matrix_text(name: str, library: LibraryInstance) -> str:
    """An instance as the lower triangle of its distances, which are rounded, and no coordinates."""
    lengths = np.hypot(*(axis[:, None] - axis for axis in library.coordinates.T)).round()
    head = vrplib_text(name, library, "CVRP").split("NODE_COORD_SECTION")[0].replace("EUC_2D", "EXPLICIT")
    rows = [row_text(lengths[node, :node]) for node in range(1, len(lengths))]
    sections = ["EDGE_WEIGHT_SECTION", *rows, *section("DEMAND_SECTION", library.demands[:, None])]
    return head + "\n".join(["EDGE_WEIGHT_FORMAT : LOWER_ROW", *sections, "DEPOT_SECTION", "1", "-1", "EOF", ""])


def solomon_text(name: str, library: LibraryInstance) -> str:
    """An instance in Solomon's form."""
    windows, service = library.time_windows, library.service_times
    assert windows is not None and service is not None
    columns = np.column_stack((library.coordinates, library.demands, windows, service))
    rows = [f"{node} {row_text(row)}" for node, row in enumerate(columns)]
    fleet = ["VEHICLE", "NUMBER CAPACITY", f"{len(rows) - 1} {library.capacity}", ""]
    head = "CUST NO. XCOORD. YCOORD. DEMAND READY TIME DUE DATE SERVICE TIME"
    return "\n".join([name, "", *fleet, "CUSTOMER", head, "", *rows, ""])


def cordeau_text(library: LibraryInstance) -> str:
    """An instance of several depots in Cordeau's form: customers first, then depots."""
    depots = library.num_depots
    rows = [f"2 {library.num_customers} {library.num_customers} {depots}", *[f"0 {library.capacity}"] * depots]
    for number, node in enumerate([*range(depots, len(library.demands)), *range(depots)], start=1):
        visits = "1 1 1" if node >= depots else "0 0"
        rows.append(f"{number} {row_text(library.coordinates[node])} 0 {library.demands[node]} {visits}")
    return "\n".join([*rows, ""])


if __name__ == "__main__":
    main()
