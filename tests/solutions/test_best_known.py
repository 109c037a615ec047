"""Best known tours and warm starts taken from files, with every file checked against the set."""

import dataclasses
from pathlib import Path

import pytest

from helpers.instances import generated
from polarvrp.errors import DataError
from polarvrp.problem.instances import Instances, NodeArrays, instance_digests
from polarvrp.problem.nearest_neighbour import nearest_neighbour
from polarvrp.problem.tours import check_tour
from polarvrp.solutions.best_known import best_known, read_warm_starts
from polarvrp.solutions.origin import DIGESTS
from polarvrp.solutions.rows import SolutionRow
from polarvrp.solutions.solutions import write_solutions


@pytest.fixture(scope="module")
def instances() -> Instances[NodeArrays]:
    return generated("VRPTW", 10, 4, seed=2)


def row(instances: Instances[NodeArrays], index: int, actions: list[int], method: str) -> SolutionRow:
    report = check_tour(instances, index, actions)
    return SolutionRow("VRPTW", 10, index, method, report.cost, tuple(actions), 1, 0.0, report.max_violation)


def single_customer_routes(num_customers: int) -> list[int]:
    return [node for customer in range(1, num_customers + 1) for node in (0, customer)][1:]


def test_the_cheapest_feasible_tour_wins(instances: Instances[NodeArrays], tmp_path: Path) -> None:
    singles, one_route = single_customer_routes(10), list(range(1, 11))
    nearest = [nearest_neighbour(instances, index) for index in range(4)]
    write_solutions(tmp_path / "a.parquet", [row(instances, i, singles, "pyvrp") for i in range(3)])
    run = [row(instances, 0, one_route, "policy"), row(instances, 1, nearest[1], "policy")]
    lying = dataclasses.replace(row(instances, 2, singles, "policy"), cost=0.5)
    write_solutions(tmp_path / "b.parquet", [*run, lying], "run")
    assert check_tour(instances, 0, one_route).first_problem is not None
    best = best_known(instances, [tmp_path / "a.parquet", tmp_path / "b.parquet"])
    assert [(number, known.source.name, known.row.method) for number, known in best.items()] == [
        (0, "a.parquet", "pyvrp"),
        (1, "b.parquet", "policy"),
        (2, "a.parquet", "pyvrp"),
    ]
    for number, known in best.items():
        report = check_tour(instances, number, known.row.actions)
        assert (known.row.cost, known.row.routes) == (report.cost, report.num_routes)


def test_rows_of_other_sets_are_refused(instances: Instances[NodeArrays], tmp_path: Path) -> None:
    good, path = row(instances, 0, nearest_neighbour(instances, 0), "pyvrp"), tmp_path / "x.parquet"
    for wrong, message in (
        (
            dataclasses.replace(good, variant="CVRP"),
            r"x\.parquet holds CVRP with 10 customers, the instances are VRPTW",
        ),
        (dataclasses.replace(good, num_customers=20), "VRPTW with 20 customers"),
        (dataclasses.replace(good, instance=4), "holds instance 4, the set has 4"),
    ):
        write_solutions(path, [wrong])
        with pytest.raises(DataError, match=message):
            best_known(instances, [path])
        with pytest.raises(DataError, match=message):
            read_warm_starts(path, instances)


def test_solutions_of_other_instances_of_the_variant_are_refused(
    instances: Instances[NodeArrays], tmp_path: Path
) -> None:
    """They may even be feasible, at costs that no tour of this instance has to do with."""
    other = generated("VRPTW", 10, 4, seed=3)
    path = tmp_path / "x.parquet"
    rows = [row(other, 0, nearest_neighbour(other, 0), "pyvrp")]
    write_solutions(path, rows, metadata={DIGESTS: dict(enumerate(instance_digests(other)))})
    message = r"x\.parquet solves another instance 0 than the set holds"
    with pytest.raises(DataError, match=message):
        best_known(instances, [path])
    with pytest.raises(DataError, match=message):
        read_warm_starts(path, instances)
    assert list(best_known(other, [path])) == [0]


def test_warm_starts(instances: Instances[NodeArrays], tmp_path: Path) -> None:
    tour, path = nearest_neighbour(instances, 2), tmp_path / "x.parquet"
    unsolved = SolutionRow("VRPTW", 10, 1, "policy", None, (), 0, 0.0, None, reason="nothing found")
    write_solutions(path, [row(instances, 2, tour, "policy"), unsolved], "run")
    assert read_warm_starts(path, instances) == {2: tuple(tour)}
    write_solutions(path, [dataclasses.replace(row(instances, 2, tour, "policy"), actions=tuple(tour[:-1]))], "run")
    with pytest.raises(DataError, match=r"x\.parquet, instance 2: customer \d+ is not served"):
        read_warm_starts(path, instances)
