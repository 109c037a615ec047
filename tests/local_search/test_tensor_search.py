"""Local search in tensors: exact against plain loops on every variant, and without a step that depends on data."""

import dataclasses
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.instances import drawn, generated, mixed_arrays, sample
from helpers.local_search import some_tours
from helpers.walks import random_walk
from polarvrp.environment.environment import Environment
from polarvrp.errors import ConfigError
from polarvrp.local_search import tensor_search
from polarvrp.local_search.move_selection import SelectedMoves
from polarvrp.local_search.moves import TAILS, TURN, BetweenRoutes, WithinRoutes
from polarvrp.local_search.refinement import Refiner, pad_actions
from polarvrp.local_search.route_segments import FORBIDDEN, Rules, TourState
from polarvrp.local_search.tensor_search import improve, routes_searched
from polarvrp.problem.instances import Instances, NodeArrays, to_arrays, to_tensors
from polarvrp.problem.tours import actions_to_routes, check_tour, flat_actions
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS
from polarvrp.tolerances import POLICY_TOLERANCE

ONE_DEPOT = [name for name in VARIANTS if not name.startswith("MD")]
CPU = torch.device("cpu")


def nearest(instances: Instances[NodeArrays]) -> Tensor:
    return pad_actions([[tour] for tour in some_tours(instances)])


def starts(instances: Instances[NodeArrays], num_random: int) -> Tensor:
    """Of each instance a nearest neighbour tour and random ones, ``[B, k, T]``."""
    generator = torch.Generator().manual_seed(3)
    walks, _ = random_walk(Environment(to_tensors(instances)), num_random, generator)
    first = nearest(instances)
    length = max(walks.shape[2], first.shape[2])
    return torch.cat([torch.nn.functional.pad(tours, (0, length - tours.shape[2])) for tours in (first, walks)], dim=1)


def reports(instances: Instances[NodeArrays], tours: Tensor) -> Iterator[tuple[int, list[int], Any]]:
    for index, rows in enumerate(tours.tolist()):
        for row in rows:
            actions = flat_actions(row, 1)
            yield index, actions, check_tour(instances, index, actions, POLICY_TOLERANCE)


@pytest.mark.parametrize("num_customers", [7, 20])
def test_never_longer_never_infeasible(num_customers: int) -> None:
    """Six tours of six instances of each variant."""
    instances = mixed_arrays(ONE_DEPOT, num_customers, count=6)
    tours = starts(instances, num_random=5)
    improved = improve(to_tensors(instances), tours)
    assert improved.shape == (6 * len(ONE_DEPOT), 6, 2 * num_customers + 2)
    shorter = dict.fromkeys(ONE_DEPOT, 0)
    for (index, old, before), (_, new, after) in zip(
        reports(instances, tours), reports(instances, improved), strict=True
    ):
        assert before.first_problem is None and after.first_problem is None
        assert after.cost < before.cost or new == old
        shorter[ONE_DEPOT[index // 6]] += after.cost < before.cost
    assert min(shorter.values()) >= 30


def neighbours_of(routes: list[list[int]]) -> Iterator[list[list[int]]]:
    """Every solution one move away from these routes, in plain loops."""
    routes = [*routes, []]
    for a, first in enumerate(routes):
        rest = [route for index, route in enumerate(routes) if index != a]
        for i in range(len(first)):
            for j in range(i + 2, len(first) + 1):
                yield [*rest, first[:i] + first[i:j][::-1] + first[j:]]
            for length in (1, 2, 3):
                block, left = first[i : i + length], first[:i] + first[i + length :]
                if len(block) < length:
                    continue
                for moved in (block, block[::-1]):
                    for place in range(len(left) + 1):
                        yield [*rest, left[:place] + moved + left[place:]]
                    for b, other in enumerate(rest):
                        for place in range(len(other) + 1):
                            changed = other[:place] + moved + other[place:]
                            yield [*rest[:b], changed, *rest[b + 1 :], left]
        for b in range(a + 1, len(routes)):
            others = [route for index, route in enumerate(routes) if index not in (a, b)]
            for pair in exchanges_between(first, routes[b]):
                yield [*others, *pair]


def exchanges_between(one: list[int], two: list[int]) -> Iterator[tuple[list[int], list[int]]]:
    for i in range(len(one) + 1):
        for j in range(len(two) + 1):
            yield one[:i] + two[j:], two[:j] + one[i:]
            for a, b in ((1, 1), (1, 2), (2, 1), (2, 2)):
                given, received = one[i : i + a], two[j : j + b]
                if len(given) < a or len(received) < b:
                    continue
                for forth in (given, given[::-1]):
                    for back in (received, received[::-1]):
                        yield one[:i] + back + one[i + a :], two[:j] + forth + two[j + b :]


@pytest.mark.parametrize("variant", ONE_DEPOT)
def test_no_move_shortens_what_comes_back(variant: str) -> None:
    instances = generated(variant, 7, 4)
    improved = improve(to_tensors(instances), starts(instances, num_random=1), rounds=100)
    tried = 0
    for index, actions, report in reports(instances, improved):
        routes = [list(route.customers) for route in actions_to_routes(actions, 1)]
        for changed in neighbours_of(routes):
            tour = [node for route in changed if route for node in (0, *route)]
            other = check_tour(instances, index, tour)
            assert other.first_problem is not None or other.cost > report.cost - 2e-5
            tried += 1
    assert tried > 2000


@pytest.mark.parametrize("variant", ["CVRP", "OVRPL", "VRPTW", "OVRPBLTW", "VRPBL", "VRPMB", "VRPMBLTW", "OVRPMBTW"])
def test_every_move_gains_what_it_promises(variant: str) -> None:
    """Each admissible pair of positions, its move made alone: change of cost and rules by the exact check."""
    instances = generated(variant, 9, 3)
    rules = Rules.of(to_tensors(instances), 2)
    sequence, _ = tensor_search._sequence(starts(instances, num_random=1).flatten(0, 1), 9, 10)
    positions = sequence.shape[1]
    state = TourState.of(rules, sequence, positions - 1, torch.full((6,), 10))
    change, kinds = BetweenRoutes(rules, state, positions).best()
    alone, second, codes = WithinRoutes(rules, state, positions).best()
    route, after = state.route[:, :positions], state.after[:, :positions]
    cases: list[tuple[int, int, int, int, float]]
    cases = [
        (case[0], case[1], case[2], int(kinds[tuple(case)]), change[tuple(case)].item()) for case in admissible(change)
    ]
    cases += [
        (row, p, int(second[row, p]), int(codes[row, p]), alone[row, p].item())
        for row, p in admissible(alone)
        if alone[row, p] < 0  # only these are held to the limit of length, by being shorter
    ]
    assert len(cases) > 200
    for row, p, q, code, promised in cases:
        involved = (route[row, p], route[row, q])
        kind = torch.zeros(1, routes_searched(9), dtype=torch.int64)
        kind[0, list(involved)] = code
        choice = SelectedMoves(torch.full_like(kind, p), torch.full_like(kind, q), kind)
        order = choice.order(route[row : row + 1], after[row : row + 1])[0]
        old, new = (flat_actions(nodes.tolist(), 1) for nodes in (sequence[row], sequence[row][order]))
        before, now = (check_tour(instances, row // 2, tour, POLICY_TOLERANCE) for tour in (old, new))
        assert now.first_problem is None
        assert now.cost - before.cost == pytest.approx(promised, abs=3e-6)


def admissible(change: Tensor) -> list[list[int]]:
    return (change < FORBIDDEN / 2).nonzero().tolist()


def test_moves_of_all_kinds_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: set[int] = set()
    original = SelectedMoves.of.__func__

    def noting(cls: type[SelectedMoves], *arguments: Any) -> SelectedMoves:
        choice = original(cls, *arguments)
        made.update(choice.kind.unique().tolist())
        return choice

    monkeypatch.setattr(SelectedMoves, "of", classmethod(noting))
    instances = drawn(40, 16, variants=("OVRP", "CVRP", "VRPTW"))
    improve(instances, random_walk(Environment(instances), 4, torch.Generator().manual_seed(1))[0])
    relocations = {4, 8, 8 + 32, 12, 12 + 32, 1, 2, 2 + 16, 3 + 16}  # 3 behind a longer block is rare
    exchanges = {5, 6, 6 + 16, 10, 10 + 16, 10 + 32}
    assert made >= relocations | exchanges | {TAILS, TURN, 0}


def test_on_a_par_with_the_search_on_cores() -> None:
    instances = drawn(50, 32, 4)
    arrays = to_arrays(instances)
    tours = nearest(arrays)
    before = [report.cost for _, _, report in reports(arrays, tours)]
    after = [report.cost for _, _, report in reports(arrays, improve(instances, tours))]
    peers = [result.cost for result in Refiner(0).refine(arrays, [row[0] for row in tours.tolist()], range(32))]
    ours, theirs = (1 - sum(costs) / sum(before) for costs in (after, peers))
    assert ours > 0.25
    assert ours > theirs - 0.01


@pytest.mark.parametrize("variant", ["CVRP", "OVRPBL", "VRPTW", "VRPBLTW", "VRPMB"])
def test_more_routes_than_there_is_place_for(variant: str) -> None:
    """The last ones wait, then have their turn: in the end no move of theirs is left either."""
    instances = generated(variant, 30, 4)
    alone = torch.zeros(4, 1, 60, dtype=torch.int64)
    alone[..., ::2] = torch.arange(1, 31)
    assert routes_searched(30) < 25
    once, often = (improve(to_tensors(instances), alone, rounds=rounds) for rounds in (1, 60))
    for tours in (once, often):
        for (_, _, before), (_, _, after) in zip(reports(instances, alone), reports(instances, tours), strict=True):
            assert after.first_problem is None
            assert after.cost < before.cost
    assert torch.equal(improve(to_tensors(instances), often), often)
    assert all(report.num_routes < routes_searched(30) for _, _, report in reports(instances, often))


def test_infeasible_tours_come_back_as_they_are() -> None:
    instances = generated("VRPTW", 12, 4)
    good = nearest(instances)[:, 0]
    late = torch.zeros_like(good)
    late[:, :12] = torch.arange(1, 13)
    twice = good.clone()
    twice[:, 0] = good[:, 1]
    tours = torch.stack((late, twice, good), dim=1)
    improved = improve(to_tensors(instances), tours)
    assert torch.equal(improved[:, :2, : tours.shape[2]], tours[:, :2])
    assert not improved[:, :2, tours.shape[2] :].any()
    assert (improved[:, 2, : tours.shape[2]] != good).any(1).all()


def test_forms_of_tours_do_not_matter() -> None:
    instances = generated("VRPBTW", 15, 3)
    tours, tensors = starts(instances, num_random=2), to_tensors(instances)
    improved = improve(tensors, tours)
    assert torch.equal(improve(tensors, tours.flatten(0, 1)), improved.flatten(0, 1))
    assert torch.equal(improve(tensors, torch.nn.functional.pad(tours, (1, 0))), improved)
    double = dataclasses.replace(tensors, locs=tensors.locs.double())
    assert torch.equal(improve(double, tours), improved)
    for index in range(3):
        assert torch.equal(improve(tensors[index : index + 1], tours[index : index + 1])[0], improved[index])


def test_empty_routes_are_left_out() -> None:
    improved = improve(sample("CVRP", 10, 4), torch.tensor([[1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 7, 8, 9, 0, 10]] * 4))
    for tour in improved.tolist():
        while tour and tour[-1] == 0:
            tour.pop()
        assert tour[0] > 0
        assert all(pair != (0, 0) for pair in pairwise(tour))


def test_mistakes() -> None:
    with pytest.raises(ConfigError, match="serves one depot"):
        improve(sample("MDVRP", 7, 1), torch.zeros(1, 9, dtype=torch.int64))
    with pytest.raises(ValueError, match="cannot have tours"):
        improve(sample("CVRP", 7, 2), torch.zeros(3, 9, dtype=torch.int64))


class NothingDependsOnData(TorchDispatchMode):
    """Fails on operations that wait for the device or whose results have no static shape."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        assert name not in {"_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique2", "item", "equal"}
        self.calls += 1
        return func(*args, **(kwargs or {}))


def test_a_round_depends_on_no_data() -> None:
    instances = drawn(20, len(TRAINING_VARIANTS))
    tours = nearest(to_arrays(instances))[:, 0]
    with NothingDependsOnData() as mode:
        rules = Rules.of(instances, 1)
        sequence, _ = tensor_search._sequence(tours, 20, routes_searched(20))
        before, shape, idle = mode.calls, sequence.shape, torch.zeros(len(tours), dtype=torch.bool)
        counts = []
        for _ in range(3):
            sequence = tensor_search._round(rules, sequence, idle, look_within=True)
            counts.append(mode.calls - before)
            before = mode.calls
        tensor_search._feasible(rules, tours)
    assert sequence.shape == shape
    assert counts[1] == counts[2]


def test_everything_stays_on_the_device_and_never_waits() -> None:
    """Tensors without data: reading a value, or a stray tensor elsewhere, would fail."""
    instances = drawn(20, 4)
    tours = nearest(to_arrays(instances))
    improved = improve(instances._map(lambda tensor: tensor.to("meta")), tours.to("meta"), rounds=2)
    assert improved.shape == (4, 1, 42)
    assert improved.device.type == "meta"
