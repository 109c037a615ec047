"""Both solvers on every variant, judged by the exact checker, and the instances that must not reach a solver."""

import dataclasses
import math
import re
from typing import Any

import numpy as np
import pytest

from helpers.instances import generated
from polarvrp.errors import ConfigError
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.nearest_neighbour import nearest_neighbour
from polarvrp.problem.tours import actions_to_routes, check_tour
from polarvrp.problem.variants import VARIANTS
from polarvrp.solvers import solve, versions
from polarvrp.solvers.integers import integer_instance
from polarvrp.solvers.ortools_model import routing_model, search
from polarvrp.solvers.solve import SOLVERS, SolverSettings, solve_instance
from polarvrp.tolerances import LOAD_TOLERANCE, REFERENCE_TOLERANCE

FEW_ITERATIONS = 60


def changed(instances: Instances[NodeArrays], **changes: dict[int, Any]) -> Instances[NodeArrays]:
    """The same instances with some nodes' values replaced in all of them: ``demand_linehaul={3: 1.5}``."""
    arrays = {}
    for name, values in changes.items():
        arrays[name] = getattr(instances, name).copy()
        for node, value in values.items():
            arrays[name][:, node] = value
    return dataclasses.replace(instances, **arrays)


def settings(solver: str, seconds: float = 20.0, iterations: int | None = FEW_ITERATIONS) -> SolverSettings:
    return SolverSettings(solver, seconds, seed=3, max_iterations=iterations)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_solved_and_exactly_feasible(variant: str, solver: str) -> None:
    instances = generated(variant, 10, 2)
    for index in range(2):
        row = solve_instance(instances, index, settings(solver), number=100 + index)
        assert row.cost is not None, row.reason
        report = check_tour(instances, index, row.actions)
        assert report.time_violation <= REFERENCE_TOLERANCE
        assert report.load_violation <= LOAD_TOLERANCE
        assert (row.cost, row.routes, row.max_violation) == (report.cost, report.num_routes, report.max_violation)
        assert row.cost <= check_tour(instances, index, nearest_neighbour(instances, index)).cost + 1e-6
        assert (row.variant, row.num_customers, row.instance, row.method) == (variant, 10, 100 + index, solver)
        assert (row.seed, row.limit_seconds, row.scale) == (3, 20.0, 10**7)


@pytest.mark.parametrize("variant", ["OVRP", "VRPTW", "VRPBL", "VRPMB", "MDVRP"])
def test_both_solvers_agree_on_small_instances(variant: str) -> None:
    """Seven customers: both find the optimum, so a difference would be one of the models."""
    instances = generated(variant, 7, 3)
    for index in range(3):
        pyvrp = solve_instance(instances, index, settings("pyvrp", iterations=300))
        ortools = solve_instance(instances, index, settings("ortools", iterations=300))
        assert pyvrp.cost == pytest.approx(ortools.cost, abs=1e-6)


def test_mixed_backhauls_are_not_treated_as_strict_ones() -> None:
    instances = generated("VRPMB", 20, 6, seed=8)
    strict = dataclasses.replace(instances, backhaul_class=np.ones(6, np.int64))
    for solver in SOLVERS:
        costs = [
            [solve_instance(s, i, settings(solver, iterations=200)).cost or math.inf for i in range(6)]
            for s in (instances, strict)
        ]
        assert np.mean(costs[0]) < 0.98 * np.mean(costs[1])


def test_goods_picked_up_are_not_delivered() -> None:
    """Loads of 0.6 out and 0.5 back fit one vehicle only if the delivery comes first."""
    instances = changed(
        generated("VRPMB", 2),
        locs={0: (0, 0), 1: (1, 0), 2: (0.5, 0)},
        demand_linehaul={1: 18 / 30, 2: 0.0},
        demand_backhaul={1: 0.0, 2: 15 / 30},
    )
    for solver in SOLVERS:
        row = solve_instance(instances, 0, settings(solver))
        assert row.cost == pytest.approx(2.0, abs=1e-6)
        assert row.actions == (1, 2)


WIDE = dict.fromkeys(range(11), (0.0, np.inf))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("variant", "changes", "reason"),
    [
        ("CVRP", {"demand_linehaul": {4: 33 / 30}}, r"customer 4: demand 1\.1 exceeds the capacity"),
        ("VRPMB", {"demand_backhaul": {4: 33 / 30}, "demand_linehaul": {4: 0.0}}, r"customer 4: demand 1\.1"),
        ("VRPL", {"locs": {7: (9.0, 9.0)}}, r"customer 7: the way there and back"),
        ("OVRPL", {"locs": {7: (9.0, 9.0)}}, r"customer 7: the way there is"),
        ("VRPTW", {"time_windows": {2: (0.0, 1e-3)}}, r"customer 2: its window ends"),
        ("VRPTW", {"time_windows": {2: (4.5, 4.55)}}, r"customer 2: the vehicle would be back at"),
        ("MDVRPL", {"locs": {7: (9.0, 9.0)}}, r"customer 7: .* \(no other depot helps\)"),
        ("CVRP", {"demand_linehaul": {4: 0.01}}, r"customer 4: demand is 0\.3 of capacity 30"),
        ("CVRP", {"locs": {4: (np.nan, 0.0)}}, r"coordinates .* must be finite"),
    ],
)
def test_impossible_instances_say_why(solver: str, variant: str, changes: dict[str, Any], reason: str) -> None:
    row = solve_instance(changed(generated(variant, 10), **changes), 0, settings(solver))
    assert row.cost is None
    assert row.max_violation is None
    assert row.actions == ()
    assert re.search(reason, str(row.reason)), row.reason


@pytest.mark.parametrize("solver", SOLVERS)
def test_strange_but_possible_instances(solver: str) -> None:
    everywhere = range(1, 11)
    cases = {
        "duplicates": changed(generated("VRPTW", 10), locs=dict.fromkeys(everywhere, (0.5, 0.5)), time_windows=WIDE),
        "all in the depot": changed(generated("CVRP", 10), locs=dict.fromkeys(range(11), (0.5, 0.5))),
        "no demand": changed(generated("CVRP", 10), demand_linehaul=dict.fromkeys(everywhere, 0.0)),
        "one without demand": changed(generated("VRPB", 10), demand_linehaul={3: 0.0}, demand_backhaul={3: 0.0}),
        "only backhauls": changed(
            generated("VRPBL", 10),
            demand_linehaul=dict.fromkeys(everywhere, 0.0),
            demand_backhaul=dict.fromkeys(everywhere, 6 / 30),
        ),
        "one customer": generated("OVRPBLTW", 1),
        "endless windows": changed(generated("VRPTW", 10), time_windows=WIDE),
    }
    for name, instances in cases.items():
        row = solve_instance(instances, 0, settings(solver))
        assert row.cost is not None, (name, row.reason)
        assert check_tour(instances, 0, row.actions).first_problem is None, name
    only_backhauls = solve_instance(cases["only backhauls"], 0, settings(solver))
    assert only_backhauls.routes >= 2
    assert solve_instance(cases["all in the depot"], 0, settings(solver)).cost == 0.0


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_customers_cost_nothing(solver: str) -> None:
    one = generated("MDVRPTW", 1)
    per_node = ("locs", "demand_linehaul", "demand_backhaul", "time_windows", "service_time")
    empty = dataclasses.replace(one, **{name: getattr(one, name)[:, :3] for name in per_node})
    row = solve_instance(empty, 0, settings(solver))
    assert (row.cost, row.actions, row.routes, row.reason) == (0.0, (), 0, None)


def test_nothing_found_in_time_is_a_row_with_a_reason() -> None:
    instances = generated("VRPTW", 100)
    row = solve_instance(instances, 0, settings("ortools", seconds=0.002, iterations=None))
    assert row.cost is None
    assert row.reason is not None
    assert "found nothing in" in row.reason
    assert row.limit_seconds == 0.002


def test_a_tour_nobody_can_drive_is_reported_by_pyvrp() -> None:
    """Each customer alone is possible within the tolerance of the check, but not in integers."""
    instances = generated("VRPL", 1)
    length = 2 * math.dist(*instances.locs[0].astype(float))
    row = solve_instance(dataclasses.replace(instances, distance_limit=np.array([length - 5e-7])), 0, settings("pyvrp"))
    assert row.reason == "PyVRP found nothing feasible in 20 s"
    assert row.iterations == FEW_ITERATIONS


@pytest.mark.parametrize("variant", ["OVRPTW", "MDVRPMBL"])
def test_warm_starts_are_never_made_worse(variant: str) -> None:
    instances = generated(variant, 50, 2)
    good = solve_instance(instances, 0, settings("pyvrp", iterations=400))
    again = solve_instance(instances, 0, settings("pyvrp", iterations=1), warm_start=good.actions)
    cold = solve_instance(instances, 0, settings("pyvrp", iterations=1))
    assert good.cost is not None
    assert again.cost is not None
    assert cold.cost is not None
    assert again.cost <= good.cost + 1e-6 < cold.cost


def test_seconds_are_kept_including_setting_up() -> None:
    instances = generated("CVRP", 200)
    for solver in SOLVERS:
        row = solve_instance(instances, 0, settings(solver, seconds=0.5, iterations=None))
        assert row.cost is not None
        assert row.seconds > 0.4
        assert (row.iterations is not None) == (solver == "pyvrp")


def test_ortools_serves_from_several_depots() -> None:
    instances = generated("MDVRPMBTW", 20)
    actions = search(routing_model(integer_instance(instances, 0), 10), 20.0, 0, FEW_ITERATIONS)
    assert isinstance(actions, list)
    assert len({route.depot for route in actions_to_routes(actions, 3)}) > 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("lkh", 1.0), "unknown solver 'lkh'"),
        (("pyvrp", 0.0), "seconds must be above 0"),
        (("pyvrp", math.nan), "seconds must be above 0"),
        (("pyvrp", 1.0, -1), "seed must be in"),
        (("pyvrp", 1.0, 0, 0), "iterations must be at least 1"),
    ],
)
def test_settings_are_checked(values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SolverSettings(*values)


@pytest.mark.parametrize("package", SOLVERS)
def test_other_releases_are_refused(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setattr(versions, "version", lambda name: "0.11.0")
    with pytest.raises(ConfigError, match=rf"{package} 0\.11\.0 is installed, .* pip install"):
        versions.installed_version(package)
    monkeypatch.setattr(solve, "_search", None)  # it is never asked
    with pytest.raises(ConfigError, match=rf"{package} 0\.11\.0 is installed"):
        solve_instance(generated("CVRP", 5, 1), 0, settings(package))
