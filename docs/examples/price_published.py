"""Do published solutions cost here what was published? Prices your own copies of the public files.

    python docs/examples/price_published.py FOLDER

FOLDER holds instances (``.vrp``, ``.txt``) with their ``.sol`` beside them, in subfolders too; those with a name below
are priced by the convention of their set. The command ends with 1 if a solution breaks a rule or has another cost.
"""

import argparse
from pathlib import Path

from polarvrp.errors import exit_on_mistake
from polarvrp.evaluation.gaps import shown_gap
from polarvrp.problem.library_files import read_library
from polarvrp.problem.library_prices import at_cheapest_depots, check_routes
from polarvrp.problem.vrplib import read_sol

PUBLISHED = {
    "A-n32-k5": 784,
    "Antwerp1": 477277,
    "C1_10_1": 42444.8,
    "F-n72-k4": 237,
    "Flanders2": 4373244,
    "Golden_1": 5623.47,
    "Li_21": 16212.83,
    "R101": 1637.7,
    "X-n1001-k43": 72355,
    "tai75a": 1618.36,
}
"""Costs of the routes that CVRPLIB gives, as it prints them."""


def main() -> int:
    """A line a solution."""
    parser = argparse.ArgumentParser(description="Prices your own copies of published solutions.")
    parser.add_argument("folder", type=Path)
    solutions = sorted(path for path in parser.parse_args().folder.rglob("*.sol") if path.stem in PUBLISHED)
    wrong = [path for path in solutions if not is_right(path)]
    missing = PUBLISHED.keys() - {path.stem for path in solutions}
    print(f"{len(solutions) - len(wrong)} of {len(solutions)} as published; not found: {', '.join(sorted(missing))}")
    return 1 if wrong or not solutions else 0


def is_right(path: Path) -> bool:
    """Prints the line of one."""
    published = PUBLISHED[path.stem]
    instance = next((file for end in (".vrp", ".txt") if (file := path.with_suffix(end)).is_file()), None)
    if instance is None:
        print(f"{path.stem}: no instance beside its solution")
        return False
    library = read_library(instance)
    report = check_routes(library, at_cheapest_depots(library, read_sol(path).routes))
    gap = f"{shown_gap(100 * (report.cost - published) / published)} %"
    problem = f", {report.first_problem}" if report.first_problem else ""
    print(f"{path.stem}: {report.cost:.10g} ({library.rounding} distances), published {published}, gap {gap}{problem}")
    return report.first_problem is None and gap == "0.000 %"


if __name__ == "__main__":
    with exit_on_mistake("mistake"):
        raise SystemExit(main())
