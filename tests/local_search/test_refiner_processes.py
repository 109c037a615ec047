"""The refiner's processes and shared memory: what they hand over, and what happens when something fails."""

import dataclasses
import fcntl
import multiprocessing
import os
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from helpers.instances import generated
from helpers.local_search import mixed_batch, some_tours
from polarvrp.decoding.rollout import replay_actions
from polarvrp.environment.environment import Environment
from polarvrp.errors import ConfigError, DataError, InfeasibleTourError
from polarvrp.local_search import refinement, shared_memory, table_refinement
from polarvrp.local_search.refinement import PendingTours, RefinedTours, RefinementError, Refiner, pad_actions
from polarvrp.local_search.shared_memory import PREFIX, RefinedTour, Segment, Shape, remove_leftovers
from polarvrp.problem.instances import Instances, NodeArrays, to_tensors
from polarvrp.problem.tours import Route, check_tour, flat_actions, routes_to_actions
from polarvrp.solvers import versions
from polarvrp.tolerances import COST_TOLERANCE


def test_errors_of_workers_surface_and_the_refiner_lives_on(two_workers: Refiner) -> None:
    instances = generated("CVRP", 10, 4)
    tours = some_tours(instances)
    start_s = time.monotonic()
    with pytest.raises(RefinementError, match=r"InfeasibleTourError: customer 10 is not served"):
        two_workers.refine(instances, [*tours[:3], [1, 2, 3, 4, 5, 6, 7, 8, 9]], seeds=[0] * 4)
    assert time.monotonic() - start_s < 10
    refined = two_workers.refine(instances, tours, seeds=[0] * 4)
    assert all(
        result.cost <= check_tour(instances, index, tour).cost + COST_TOLERANCE
        for index, (tour, result) in enumerate(zip(tours, refined, strict=True))
    )
    with pytest.raises(InfeasibleTourError):
        Refiner(0).refine(instances, [[1]] * 4, seeds=[0] * 4)


def submitted(
    refiner: Refiner, instances: Instances[NodeArrays], tours: list[list[list[int]]], seeds: list[int]
) -> PendingTours:
    """Tours in flat form, k an instance, handed over as a rollout would."""
    return refiner.submit(to_tensors(instances), pad_actions(tours), seeds)


def as_list(tours: RefinedTours, num_depots: int) -> list[list[RefinedTour]]:
    cost, improved = tours.cost.tolist(), tours.improved.tolist()
    return [
        [
            RefinedTour(flat_actions(actions, num_depots), cost[index][number], improved[index][number])
            for number, actions in enumerate(row)
        ]
        for index, row in enumerate(tours.actions.tolist())
    ]


@pytest.mark.parametrize("variant", ["mixed", "MDOVRPMBLTW"])
def test_halves_in_work_at_once_equal_the_whole(variant: str, two_workers: Refiner) -> None:
    instances = mixed_batch(20) if variant == "mixed" else generated(variant, 20, 16)
    tours, seeds = some_tours(instances), [5**index for index in range(16)]
    for _ in range(6):
        tours[::3] = [result.actions for result in Refiner(0).refine(instances[::3], tours[::3], seeds[::3])]
    whole = Refiner(0).refine(instances, tours, seeds)
    assert {result.improved for result in whole} == {True, False}
    for refiner in (Refiner(0), two_workers):
        halves = [
            submitted(refiner, instances[cut], [[tour] for tour in tours[cut]], seeds[cut])
            for cut in (slice(0, 8), slice(8, 16))
        ]
        later, sooner = halves[1].result(), halves[0].result()
        found = as_list(sooner, instances.num_depots) + as_list(later, instances.num_depots)
        assert [row[0] for row in found] == whole
        assert halves[0].result() is sooner


@pytest.mark.parametrize("variant", ["OVRPBLTW", "MDVRPB"])
def test_tours_of_one_instance_do_not_touch_each_other(variant: str, two_workers: Refiner) -> None:
    instances = generated(variant, 20, 5)
    good = some_tours(instances)
    better = [result.actions for result in Refiner(0).refine(instances, good, seeds=[0] * 5)]
    pairs = [list(pair) for pair in zip(good, better, strict=True)]
    together = as_list(submitted(two_workers, instances, pairs, list(range(10))).result(), instances.num_depots)
    assert [row[0] for row in together] == Refiner(0).refine(instances, good, seeds=range(0, 10, 2))
    assert [row[1] for row in together] == Refiner(0).refine(instances, better, seeds=range(1, 10, 2))


@pytest.mark.parametrize("variant", ["VRPMBL", "MDOVRPBTW"])
def test_results_are_tours_of_the_environment(variant: str, two_workers: Refiner) -> None:
    instances = generated(variant, 20, 6)
    environment = Environment(to_tensors(instances))
    found = submitted(two_workers, instances, [[tour] for tour in some_tours(instances)], list(range(6))).result()
    assert found.actions.shape == (6, 1, environment.max_actions)
    assert (found.actions.dtype, found.cost.dtype, found.improved.dtype) == (torch.int64, torch.float64, torch.bool)
    replayed = replay_actions(environment, found.actions)
    assert replayed.legal.all()
    torch.testing.assert_close(replayed.cost.double(), found.cost, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("variant", ["CVRP", "MDVRPTW"])
def test_routes_of_one_customer_have_room(variant: str, two_workers: Refiner) -> None:
    """The longest flat form there is; at one place no other tour is shorter."""
    instances = generated(variant, 10, 2)
    same_place = dataclasses.replace(instances, locs=np.zeros_like(instances.locs))
    depots = instances.num_depots
    longest = routes_to_actions([Route(depots - 1, (depots + index,)) for index in range(10)], depots)
    found = submitted(two_workers, same_place, [[longest]] * 2, [0, 1]).result()
    assert as_list(found, depots) == [[RefinedTour(longest, 0.0, improved=False)]] * 2


def test_a_tour_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    too_long = RefinedTour([1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0], 1.0, improved=True)
    monkeypatch.setattr(table_refinement, "refine_tours", lambda *_: [too_long])
    with pytest.raises(ValueError, match="could not broadcast"):
        submitted(Refiner(0), generated("CVRP", 4, 1), [[[1, 2, 3, 4]]], [0])


def test_rollouts_that_are_longer_than_usual_are_taken(two_workers: Refiner) -> None:
    instances = generated("CVRP", 10, 1)
    tour = some_tours(instances)[0]
    usual = as_list(submitted(two_workers, instances, [[tour]], [0]).result(), 1)
    assert as_list(submitted(two_workers, instances, [[tour + [0] * 40]], [0]).result(), 1) == usual


def test_precision_of_the_instances_is_kept(two_workers: Refiner) -> None:
    exact = dataclasses.replace(
        (single := generated("VRPTW", 20, 2)), locs=single.locs.astype(np.float64) + np.linspace(0, 1e-9, 21)[:, None]
    )
    tours = some_tours(exact)
    found = as_list(submitted(two_workers, exact, [[tour] for tour in tours], [0, 0]).result(), 1)
    assert [check_tour(exact, index, row[0].actions).cost for index, row in enumerate(found)] == [
        row[0].cost for row in found
    ]


def test_failures_keep_to_their_submission(two_workers: Refiner) -> None:
    instances = generated("CVRP", 10, 8)
    tours = some_tours(instances)
    good = submitted(two_workers, instances, [[tour] for tour in tours], list(range(8)))
    bad = submitted(two_workers, instances, [[tour[:-1]] for tour in tours], list(range(8)))
    for _ in range(2):
        with pytest.raises(RefinementError, match="is not served"):
            bad.result()
    assert [row[0] for row in as_list(good.result(), 1)] == Refiner(0).refine(instances, tours, seeds=range(8))


def test_killed_workers_cost_no_tour() -> None:
    instances = generated("VRPTW", 50, 16)
    tours, seeds = some_tours(instances), list(range(16))
    before = {child.pid for child in multiprocessing.active_children()}
    with Refiner(2) as refiner:
        pending = submitted(refiner, instances, [[tour] for tour in tours], seeds)
        for child in multiprocessing.active_children():
            if child.pid not in before:
                child.kill()
        assert [row[0] for row in as_list(pending.result(), 1)] == Refiner(0).refine(instances, tours, seeds)


def segments(pid: int) -> list[str]:
    return [path.name for path in Path("/dev/shm").glob(f"{PREFIX}{pid}-*")]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="shared memory cannot be listed")
def test_shared_memory_is_reused_and_goes_with_the_refiner() -> None:
    instances = generated("CVRP", 10, 4)
    tours = [[tour] for tour in some_tours(instances)]
    before = set(segments(os.getpid()))
    refiner = Refiner(1)
    for _ in range(3):
        halves = [submitted(refiner, instances, tours, [0] * 4) for _ in range(2)]
        assert [half.result().improved.any() for half in halves] == [True, True]
        submitted(refiner, instances, tours, [0] * 4)  # dropped while in work
        assert submitted(refiner, instances, tours, [0] * 4).result().improved.any()
        del halves
    assert len(set(segments(os.getpid())) - before) <= 3
    left = submitted(refiner, instances, tours, [0] * 4)
    refiner.close()
    assert set(segments(os.getpid())) <= before
    with pytest.raises(RefinementError, match="closed"):
        left.result()
    with pytest.raises(RefinementError, match="closed"):
        submitted(refiner, instances, tours, [0] * 4)


LEAVER = """
import os, sys
import torch
from polarvrp.problem.torch_generator import generate_batch
from polarvrp.local_search.refinement import Refiner

if __name__ == "__main__":
    instances = generate_batch(50, 64, torch.Generator().manual_seed(0), "cpu")
    tours = torch.arange(1, 51).expand(64, 1, 50)
    refiner = Refiner(1)
    pending = refiner.submit(instances, tours, range(64))
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="shared memory cannot be listed")
@pytest.mark.parametrize("killed", [True, False])
def test_shared_memory_goes_with_the_process(killed: bool, tmp_path: Path) -> None:
    """Whether it is killed or ends without closing its refiner; then without a warning."""
    script = tmp_path / "leaver.py"
    script.write_text(LEAVER)
    command, pipe = [sys.executable, str(script)], subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert len(segments(pid)) == 1
        if killed:
            process.kill()
        _, said = process.communicate()
    assert killed or said == ""
    deadline_s = time.monotonic() + 20
    while segments(pid):
        assert time.monotonic() < deadline_s, "the segment is still there"
        time.sleep(0.05)


def test_leftovers_of_killed_groups_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "FOLDER", tmp_path)
    old, locked, young, foreign = (
        tmp_path / name for name in (f"{PREFIX}1-old", f"{PREFIX}1-locked", f"{PREFIX}1-young", "other-1-old")
    )
    for path in (old, locked, young, foreign):
        path.touch()
        if path != young:
            os.utime(path, (0, 0))
    with locked.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        remove_leftovers()
        assert set(tmp_path.iterdir()) == {locked, young, foreign}
    remove_leftovers()
    assert set(tmp_path.iterdir()) == {young, foreign}


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="shared memory cannot be listed")
def test_segments_in_use_are_no_leftovers(two_workers: Refiner, monkeypatch: pytest.MonkeyPatch) -> None:
    two_workers.refine(instances := generated("CVRP", 10, 1), some_tours(instances), [0])
    before = segments(os.getpid())
    monkeypatch.setattr(shared_memory, "SECONDS_TO_LOCK", -1.0)
    monkeypatch.setattr(shared_memory, "PREFIX", f"{PREFIX}{os.getpid()}-")
    remove_leftovers()
    assert before == segments(os.getpid()) != []


def test_workers_need_no_torch() -> None:
    code = "import sys, polarvrp.local_search.table_refinement; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_training_steps_that_refine_nothing_need_no_pyvrp() -> None:
    """A bare machine with a card may lack it; with it goes vrplib, which PyVRP loads."""
    code = (
        "import sys; sys.modules['pyvrp'] = sys.modules['vrplib'] = None;"
        "import polarvrp.training.step, polarvrp.evaluation.evaluate;"
        "from polarvrp.local_search.refinement import Refiner; Refiner(0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_pyvrp_is_told_with_the_first_tours(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(versions, "version", version)
    instances, refiner = generated("CVRP", 10, 1), Refiner(0)
    with pytest.raises(ConfigError, match=r"pyvrp is missing, 0\.14\.x is needed: pip install 'pyvrp==0\.14\.\*'"):
        refiner.refine(instances, some_tours(instances), [0])
    with pytest.raises(ConfigError, match="pyvrp is missing"):
        Refiner(1)


def test_memory_that_cannot_be_pinned_is_used_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Some containers limit locked memory; the copies then wait, and the error must not surface at a later launch."""
    unregistered: list[int] = []
    launched: list[str] = []
    runtime = SimpleNamespace(cudaHostRegister=lambda *_: 801, cudaHostUnregister=unregistered.append)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)

    def launch(_size: int, device: str) -> None:
        launched.append(device)
        raise RuntimeError("CUDA error: operation not supported")

    slot = refinement._Slot(Shape(2, 6, 1, 40, 1, 12, 4), shared=True)
    assert slot._segment is not None
    monkeypatch.setattr(torch, "zeros", launch)
    slot._register(slot._segment.memory)
    assert "cannot be pinned (CUDA error 801)" in caplog.text
    assert launched == ["cuda"]
    slot.close()
    assert unregistered == []


def test_close_is_safe_after_errors_and_twice() -> None:
    instances = generated("CVRP", 10, 2)
    refiner = Refiner(1)
    with pytest.raises(RefinementError):
        refiner.refine(instances, [[1], [1]], seeds=[0, 0])
    refiner.close()
    refiner.close()


def test_numbers_of_tours_and_seeds_must_match() -> None:
    instances = generated("CVRP", 10, 2)
    with pytest.raises(ValueError, match="2 instances"):
        Refiner(0).refine(instances, some_tours(instances), seeds=[0])


def test_shared_memory_that_is_full_is_one_line_and_leaves_nothing() -> None:
    """Memory that is found missing only when it is written to would end the process by a signal."""
    before = set(Path("/dev/shm").glob("polarvrp-*"))
    with pytest.raises(DataError, match=r"/dev/shm has no room for \d+ MB of tours .*--workers 1"):
        Segment(10**13)
    assert set(Path("/dev/shm").glob("polarvrp-*")) == before
