"""The library face: the commands' numbers without files, every answer checked, nothing heavy at import."""

import doctest
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polarvrp
from polarvrp import api
from polarvrp.cli.main import main
from polarvrp.config.model import ModelConfig
from polarvrp.decoding.greedy import GreedySolver
from polarvrp.errors import ConfigError, DataError
from polarvrp.model.registry import build_policy
from polarvrp.model.saving import save_policy
from polarvrp.problem.library_prices import check_routes
from polarvrp.problem.tours import actions_to_routes
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS
from polarvrp.problem.vrplib import load_set_x
from polarvrp.solutions.solutions import read_solutions, solution_rows

RUN = "polarnet-ple-polar-n50-s0"
TRAINING = {"paradigm": "polar", "num_customers": 50}


def save_model(folder: Path, run: str = RUN, **training: object) -> Path:
    """An untrained network in a folder that says it was trained."""
    config = ModelConfig(num_customers=50, width=32, heads=4, layers=1, feedforward_width=32)
    spec = {"model": {"backbone": "polarnet", "encoder": "ple"}, "training": TRAINING | training}
    path = folder / "results" / "models" / run / "weights.safetensors"
    save_policy(path, build_policy(config, 0), {"run": run, "fingerprint": "abc", "spec": spec})
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project's folder with one model, as working directory."""
    save_model(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def test_importing_loads_nothing_heavy_and_offers_every_public_name() -> None:
    code = (
        "import sys, polarvrp\n"
        "heavy = {'torch', 'numpy', 'pandas', 'pyarrow', 'pyvrp', 'ortools', 'yaml', 'pydantic'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
        "assert set(polarvrp.__all__) <= set(dir(polarvrp))\n"
        "polarvrp.generate('CVRP', 5, 1), polarvrp.check, polarvrp.Solution\n"
        "print(sorted({'torch', 'pyvrp', 'pandas'} & sys.modules.keys()))\n"
        "for name in polarvrp.__all__: getattr(polarvrp, name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n[]\n", "")
    with pytest.raises(AttributeError, match="has no attribute 'solver'"):
        _ = polarvrp.solver


@pytest.mark.parametrize(
    "name", ["generate", "read_instances", "read_library", "load_model", "solve", "check", "describe"]
)
def test_the_example_of_each_function_is_true(name: str, folder: Path) -> None:
    function = getattr(api, name)
    (example,) = (test for test in doctest.DocTestFinder(recurse=False).find(function, name) if test.examples)
    result = doctest.DocTestRunner(verbose=False).run(example)
    assert (result.failed, result.attempted > 1) == (0, True)


def test_generated_instances_are_those_of_the_command(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    words = ["--variant", "MDOVRPMBLTW", "--num-customers", "9", "--instances", "3", "--seed", "1234"]
    assert main(["generate", *words, "--output", str(path)]) == 0
    generated, stored = polarvrp.generate("mdovrpmbltw", 9, 3), polarvrp.read_instances(path)
    for name in ("locs", "demand_linehaul", "demand_backhaul", "time_windows", "service_time", "distance_limit"):
        np.testing.assert_array_equal(getattr(generated, name), getattr(stored, name))
    np.testing.assert_array_equal(generated.flags, stored.flags)
    assert (generated.num_depots, generated.capacity) == (stored.num_depots, stored.capacity) == (3, 30)
    # First coordinate that seed 1234 draws, as in the published test sets of every variant.
    assert generated.locs[0, 0].tolist() == pytest.approx([0.19151945, 0.62210876], abs=1e-7)


def test_a_model_knows_what_it_was_trained_on(folder: Path) -> None:
    model = polarvrp.load_model(RUN, device="cpu")
    assert (model.run, model.num_customers, model.device.type) == (RUN, 50, "cpu")
    assert model.variants == TRAINING_VARIANTS
    by_path = save_model(folder / "elsewhere", stages=[{"name": "all", "variants": list(VARIANTS)}])
    assert polarvrp.load_model(by_path.parent).variants == tuple(VARIANTS)
    with pytest.raises(ConfigError, match="there is no device 'gpu' here; choose auto, cpu"):
        polarvrp.load_model(RUN, device="gpu")
    with pytest.raises(DataError, match="no model 'polarnet-ple-po-n50-s0'"):
        polarvrp.load_model("polarnet-ple-po-n50-s0")


@pytest.mark.parametrize("variant", ["OVRPBLTW", "MDVRPMB"])
def test_a_model_solves_as_the_command_does(folder: Path, variant: str) -> None:
    words = ["--variant", variant, "--num-customers", "10", "--instances", "3", "--seed", "7"]
    assert main(["generate", *words, "--output", "set.npz"]) == 0
    assert main(["evaluate", "set.npz", "--model", RUN, "--augmentations", "2", "--output", "out.parquet"]) == 0
    rows = solution_rows(read_solutions("out.parquet"))
    instances = polarvrp.generate(variant, 10, 3, seed=7)
    solutions = polarvrp.solve(instances, polarvrp.load_model(RUN), augmentations=2)
    assert [(s.cost, s.actions, len(s.routes), s.method) for s in solutions] == [
        (row.cost, row.actions, row.routes, row.method) for row in rows
    ]
    assert all(solution.feasible and solution.problem is None for solution in solutions)
    visited = [sorted(c for route in solution.routes for c in route.customers) for solution in solutions]
    assert visited == [list(range(instances.num_depots, instances.num_nodes))] * 3


@pytest.mark.parametrize(("solver", "workers"), [("pyvrp", 1), ("pyvrp", 2), ("ortools", 1)])
def test_a_solver_solves_each_instance_in_order(solver: str, workers: int) -> None:
    instances = polarvrp.generate("VRPL", 8, 3, seed=3)
    solutions = polarvrp.solve(instances, solver=solver, seconds=0.2, workers=workers)
    assert [solution.method for solution in solutions] == [solver] * 3
    report = polarvrp.check(instances, solutions)
    assert report.feasible.all() and report.max_violation.max() <= 1e-7
    assert report.costs.tolist() == [solution.cost for solution in solutions]
    assert report.summary == f"3 solutions, 3 feasible, mean cost {report.costs.mean():.6f}"


@pytest.mark.parametrize("by_model", [True, False])
def test_an_impossible_instance_has_a_problem_and_stops_no_other(folder: Path, by_model: bool) -> None:
    instances = polarvrp.generate("VRPL", 8, 3, seed=3)
    limit = instances.distance_limit.copy()
    limit[1] = 0.05
    instances = replace(instances, distance_limit=limit)
    model = polarvrp.load_model(RUN) if by_model else None
    solutions = polarvrp.solve(instances, model, seconds=None if by_model else 0.2)
    assert [solution.feasible for solution in solutions] == [True, False, True]
    unsolved = solutions[1]
    assert (unsolved.cost, unsolved.routes, unsolved.actions) == (None, (), ())
    assert str(unsolved.problem).startswith("customer ")
    report = polarvrp.check(instances, solutions)
    assert report.problems == (None, unsolved.problem, None)
    assert np.isnan(report.costs).tolist() == [False, True, False]
    assert report.summary.startswith("3 solutions, 2 feasible, mean cost ")


def test_check_prices_and_judges_lists_of_nodes() -> None:
    instances = polarvrp.generate("CVRP", 3, 2, seed=5)
    heavy = replace(instances, demand_linehaul=np.array([[0, 0.5, 0.5, 0.1]] * 2, dtype=np.float32))
    one, two = [1, 2, 3], [1, 2, 0, 3]
    report = polarvrp.check(heavy, [one, two])
    assert report.feasible.tolist() == [False, True]
    assert report.problems[0] == "route 1 leaves with load 1.100000 of 1"
    assert report.max_violation.tolist() == pytest.approx([0.1, 0.0], abs=1e-6)
    x, y = (instances.locs[index].astype(np.float64) for index in range(2))
    way, ways = x[[0, 1, 2, 3, 0]], y[[0, 1, 2, 0, 3, 0]]
    exact = [np.linalg.norm(np.diff(points, axis=0), axis=1).sum() for points in (way, ways)]
    assert report.costs.tolist() == pytest.approx(exact, abs=1e-12)
    with pytest.raises(DataError, match="must be one solution an instance, got 1 for 2"):
        polarvrp.check(heavy, [one])


def test_an_infeasible_solution_says_so_whatever_it_claims() -> None:
    instances = polarvrp.generate("CVRP", 4, 1, seed=5)
    (good,) = polarvrp.solve(instances, seconds=0.05)
    wrong = replace(good, actions=good.actions[:-1])
    report = polarvrp.check(instances, [wrong])
    assert not report.feasible[0] and "is not served" in str(report.problems[0])
    assert report.summary == "1 solutions, 0 feasible"


BAD_OPTIONS = [
    ({"augmentations": 0}, True, "augmentations must be from 1 to 8, got 0"),
    ({"seconds": 1.0}, True, "a model takes no time limit"),
    ({"seconds": 0.0}, False, "seconds must be above 0"),
    ({"solver": "lkh"}, False, "unknown solver 'lkh'"),
    ({"workers": 0}, False, "workers must be at least 1"),
]


@pytest.mark.parametrize(("options", "by_model", "message"), BAD_OPTIONS)
def test_bad_options_are_named(folder: Path, options: dict[str, Any], by_model: bool, message: str) -> None:
    model = polarvrp.load_model(RUN) if by_model else None
    with pytest.raises(ConfigError, match=message):
        polarvrp.solve(polarvrp.generate("CVRP", 5, 1), model, **options)


def test_a_set_of_several_variants_is_refused_before_it_is_solved(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = polarvrp.generate("CVRP", 5, 2, seed=0)
    opened = np.array([False, True])
    both = replace(closed, open_route=opened, flags=closed.flags | (opened[:, None] & np.eye(6, dtype=bool)[0]))
    monkeypatch.setattr(GreedySolver, "solve_each", lambda *_: pytest.fail("solves"))
    with pytest.raises(DataError, match="instances of one variant are needed, got 2 kinds"):
        polarvrp.solve(both, polarvrp.load_model(RUN, device="cpu"))


def test_a_file_too_large_for_the_memory_is_left_to_pyvrp(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_arguments: object) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: 9 bytes")

    monkeypatch.setattr("polarvrp.library.construction.construct", short)
    library, best_known, _ = load_set_x("X-n101-k25")
    (solution,) = polarvrp.solve(library, polarvrp.load_model(RUN, device="cpu"), seconds=0.5)
    assert solution.method == "pyvrp" and solution.cost is not None and best_known <= solution.cost < 1.2 * best_known


def test_a_path_is_no_instance() -> None:
    message = r"instances must come from generate, .*, got 'nosuch\.vrp' \(str\); read a file first"
    for use in (polarvrp.solve, lambda given: polarvrp.check(given, [[1]])):
        with pytest.raises(ConfigError, match=message):
            use("nosuch.vrp")  # type: ignore[arg-type]


def test_description_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "polarnet", "shared"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads(json.dumps(polarvrp.describe("polarnet", "shared"))) == printed
    with pytest.raises(ConfigError, match="no backbone 'cada' with encoder 'deep'"):
        polarvrp.describe("cada", "deep")


def test_library_instances_are_solved_by_both_or_by_pyvrp_alone(folder: Path) -> None:
    """Costs count distances as the set does; what the command says, the library says."""
    library, best_known, _ = load_set_x("X-n101-k25")
    both, alone = (
        polarvrp.solve(library, model, seconds=1.0)[0] for model in (polarvrp.load_model(RUN, device="cpu"), None)
    )
    for solution in (both, alone):
        assert solution.feasible and solution.problem is None
        report = check_routes(library, list(solution.routes))
        assert solution.cost == report.cost and best_known <= report.cost < 1.2 * best_known
        assert list(solution.routes) == actions_to_routes(solution.actions, 1)
        checked = polarvrp.check(library, [solution])
        assert (checked.costs.tolist(), checked.feasible.tolist()) == ([solution.cost], [True])
    wrong = polarvrp.check(library, [alone.actions[:-1]])
    assert not wrong.feasible[0] and "is not served" in str(wrong.problems[0])
    late = polarvrp.check(replace(library, capacity=150), [alone])
    assert late.costs[0] == alone.cost and "has load" in str(late.problems[0])
    assert alone.method == "pyvrp" and both.method in ("pyvrp", f"{RUN} + pyvrp")
    with pytest.raises(ConfigError, match="library instances are solved by pyvrp"):
        polarvrp.solve(library, solver="ortools")
    with pytest.raises(ConfigError, match="distances must be one of rounded, up, down, truncated, exact, got 'round'"):
        polarvrp.read_library("mine.vrp", distances="round")
