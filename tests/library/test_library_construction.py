"""Construction under a time limit: what the evaluation's decoding finds, as much of it as fits, and no longer."""

import dataclasses
import time
from pathlib import Path

import pytest
import torch

from helpers.library_texts import TWINS
from polarvrp.config.model import ModelConfig
from polarvrp.decoding.greedy import Decoding, GreedySolver
from polarvrp.errors import ConfigError, InfeasibleTourError
from polarvrp.evaluation.models import Model
from polarvrp.library.construction import construct
from polarvrp.library.inputs import InputFile
from polarvrp.library.results import Outcome, describe_steps
from polarvrp.library.solving import solve_library, warm_up
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy
from polarvrp.problem.instances import to_arrays, to_tensors
from polarvrp.problem.library_files import parse_library
from polarvrp.problem.library_twins import drawn_library
from polarvrp.problem.tours import check_tour
from polarvrp.problem.vrplib import load_set_x, to_instances
from polarvrp.solvers import versions


@pytest.fixture(scope="module")
def policy() -> Policy:
    return build_policy(ModelConfig(width=32, heads=4, layers=1, feedforward_width=32), seed=0).eval()


@pytest.mark.parametrize(("variant", "num_customers"), [("CVRP", 70), ("VRPTW", 20), ("MDOVRPB", 9)])
def test_with_time_it_finds_what_the_evaluation_finds(policy: Policy, variant: str, num_customers: int) -> None:
    """All starts under all symmetries; 70 starts come in two rounds."""
    instance = to_tensors(to_instances(drawn_library(variant, num_customers, seed=1)))
    found = construct(policy, instance, time.monotonic() + 60)
    (cost,), (tour,) = GreedySolver(policy, Decoding(8), bfloat16=False).solve(instance)
    assert (found.starts, found.symmetries) == (num_customers, 8)
    assert list(found.tours[0]) == tour
    arrays = to_arrays(instance)
    costs = [check_tour(arrays, 0, tour).cost for tour in found.tours]
    assert costs == sorted(costs) and costs[0] == pytest.approx(float(cost), rel=1e-5)
    assert len(set(found.tours)) == len(found.tours) > 1


def test_it_stops_in_time_and_keeps_what_is_finished(policy: Policy) -> None:
    """Rounds that would not end are not begun or given up: large instances end early, with less or nothing."""
    instance = to_tensors(to_instances(load_set_x("X-n303-k21")[0]))
    efforts = []
    for seconds in (0.02, 1.0):
        began_s = time.monotonic()
        found = construct(policy, instance, began_s + seconds)
        assert time.monotonic() - began_s < seconds + 0.5
        assert (len(found.tours) == 0) == (found.starts == 0) == (found.symmetries == 0)
        efforts.append(found.starts * found.symmetries)
    assert efforts[0] == 0 and efforts[1] < 8 * 302


def test_a_customer_beyond_the_networks_numbers_is_refused(policy: Policy) -> None:
    instance = to_tensors(to_instances(drawn_library("VRPL", 5, seed=1)))
    with pytest.raises(InfeasibleTourError, match="a customer cannot be served alone"):
        construct(policy, dataclasses.replace(instance, distance_limit=torch.full((1,), 0.01)), time.monotonic() + 1)


def test_a_network_that_cannot_serve_a_file_leaves_it_to_pyvrp(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(policy, "mine", {}, torch.device("cpu"), bfloat16=False, path=Path("mine"))
    library = drawn_library("VRPTW", 12, seed=2)
    limited = dataclasses.replace(library, distance_limit=9000.0)
    solved = solve_library(limited, model, seconds=0.3)
    assert solved.method == "pyvrp" and solved.problem is None and solved.construction is not None
    assert solved.construction.note is not None and "its limit counts service and waiting" in solved.construction.note
    monkeypatch.setattr("polarvrp.library.solving.LARGEST_NETWORK_NODES", 12)
    large = solve_library(library, model, seconds=0.2).construction
    assert large is not None and large.note == "more than 12 nodes take too much memory"


def test_another_release_of_pyvrp_is_refused_before_the_network_works(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(policy, "mine", {}, torch.device("cpu"), bfloat16=False, path=Path("mine"))
    monkeypatch.setattr(versions, "version", lambda name: "0.11.0")
    monkeypatch.setattr("polarvrp.library.solving._construct", None)
    with pytest.raises(ConfigError, match=r"pyvrp 0\.11\.0 is installed, 0\.14\.x is needed"):
        solve_library(drawn_library("CVRP", 5, seed=1), model, seconds=0.1)


def test_where_both_first_tours_cost_the_same_pyvrp_begins_at_its_own(policy: Policy) -> None:
    """And neither what is said nor the method claims that the network helped."""
    model = Model(policy, "mine", {}, torch.device("cpu"), bfloat16=False, path=Path("mine"))
    warm_up(model)
    library = parse_library(TWINS["A"], "A.vrp")  # 1 and 2 fit into a route: any local search ends at 16
    solved = solve_library(library, model, seconds=1.0)
    improved = solved.improvement
    assert improved is not None and improved.given_start == improved.own_start == 16
    assert not improved.from_network and solved.method == "pyvrp"
    said = describe_steps(Outcome(InputFile(Path("A.vrp"), Path("A")), library, solved), "mine")
    assert said[-2].endswith("makes 16 of it, 16 of PyVRP's own first tour: the network does not help, PyVRP alone")
    assert said[-1].endswith("+0.00 % from its own first tour, 16")
