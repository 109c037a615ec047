"""The kernels of the rollout against environment and network, in Triton's interpreter on tiny instances."""

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from polarvrp.decoding.fused.packing import Segments
from polarvrp.decoding.fused.rollout import FusedTours
from polarvrp.decoding.steps import Moves
from polarvrp.model.policy import Policy
from polarvrp.problem.instances import Instances

pytest.importorskip("triton")

import triton.language as tl
from triton.runtime import interpreter

from helpers.instances import mixed, sample
from helpers.model_samples import policy_of, shaken
from helpers.walks import random_walk
from polarvrp.decoding.fused.packing import TILE, pack
from polarvrp.decoding.fused.rollout import ROWS, fused_replay, fused_rollout, supports
from polarvrp.decoding.parallel import ParallelEngine
from polarvrp.decoding.rollout import multi_start, replay_actions, with_greedy_row
from polarvrp.decoding.sampling import Sampler
from polarvrp.environment.environment import Environment, Protocol
from polarvrp.local_search.refinement import pad_actions
from polarvrp.model.decoder import STATE_FEATURES, PointerDecoder
from polarvrp.model.heads import GatedHead, PlainHead, ReldHead
from polarvrp.model.linear import Linear
from polarvrp.problem.instances import to_arrays
from polarvrp.problem.tours import check_tour, flat_actions
from polarvrp.tolerances import POLICY_TOLERANCE

# With a GPU kernels are compiled and take no tensors of main memory; test_engine.py puts them to the test there.
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter serves where there is no GPU")

WIDTH, HIDDEN = 32, 48
HEADS = {
    "plain": lambda s: PlainHead(Linear(WIDTH, WIDTH, bias=s == 5)),
    "gated": lambda s: GatedHead(WIDTH, 2, HIDDEN, s),
    "reld": lambda s: ReldHead(WIDTH, HIDDEN, s),
}
ONE_DEPOT = ("CVRP", "OVRPTW", "VRPBL", "OVRPBLTW", "VRPMBL", "OVRPMBTW")
SEVERAL_DEPOTS = ("MDCVRP", "MDOVRPBTW", "MDVRPMBLTW", "MDOVRPL")
FORMS = [
    ("gated", "full", False, "hard", 1.0),
    ("gated", "full", True, "plus_one", 0.4),
    ("gated", "remaining_open", False, "none", torch.tensor(1.0)),
    ("plain", "remaining", True, "none", 1.0),
    ("plain", "remaining_open", True, "plus_one", 1.0),
    ("plain", "full", False, "hard", 1.0),
    ("reld", "full", False, "hard", torch.tensor(0.3)),
    ("reld", "remaining", True, "plus_one", 1.0),
    ("reld", "remaining_open", False, "none", 1.0),
]


@functools.cache
def network(
    head: str = "gated",
    state: Any = "full",
    map_logit_keys: bool = False,
    glimpse_mask: Any = "hard",
    ramp: float | Tensor = 1.0,
) -> Policy:
    """A small policy with a decoder of that form."""
    torch.manual_seed(5)
    policy = policy_of()
    policy.decoder = PointerDecoder(
        WIDTH,
        2,
        state=state,
        map_logit_keys=map_logit_keys,
        head=HEADS[head](STATE_FEATURES[state]),
        glimpse_mask=glimpse_mask,
    )
    policy.ramp = ramp
    return shaken(policy, scale=1.0)


def embeddings_of(policy: Policy, instances: Instances[Tensor]) -> Tensor:
    with torch.no_grad():
        return policy.encode(instances).embeddings


def sampler(seed: int, first: int = 0, total: int | None = None) -> Sampler:
    return Sampler(torch.Generator().manual_seed(seed), first, total)


def recorded(segments: Segments, instance: int) -> list[Tensor]:
    """Row, current node, action, features and mask of an instance's decisions, by row and, within it, by time."""
    parts = (segments.row, segments.current, segments.action, segments.features, segments.mask)
    counts = segments.count[instance].tolist()
    joined = [torch.cat([values[instance, g, :count] for g, count in enumerate(counts)]) for values in parts]
    order = torch.argsort(joined[0], stable=True)
    return [values[order] for values in joined]


def assert_same_decisions(segments: Segments | None, moves: Moves | None, rows: Tensor) -> None:
    """What the kernel recorded of those rows (bool ``[B, S]``) is exactly what the environment shows."""
    assert segments is not None and moves is not None
    for instance, wanted in enumerate(rows):
        decided = moves.decided[instance].t() & wanted[:, None]  # [S, T]
        found = recorded(segments, instance)
        of_rows = wanted[found[0].long()]
        row, current, action, features, mask = (values[of_rows] for values in found)
        assert torch.equal(row.long(), decided.nonzero()[:, 0])
        assert torch.equal(current.long(), moves.current[instance].t()[decided])
        assert torch.equal(action.long(), moves.action[instance].t()[decided])
        assert torch.equal(features, moves.features[instance].transpose(0, 1)[decided])
        assert torch.equal(mask, moves.mask[instance].transpose(0, 1)[decided])


def log_likelihood(
    policy: Policy, embeddings: Tensor, environment: Environment, actions: Tensor, num_free: int
) -> Tensor:
    """Of given tours, step by step through environment and network."""
    cache = policy.cache(embeddings, environment.instances)
    state = environment.reset(actions.shape[1])
    total = torch.zeros_like(state.time)
    for step in range(actions.shape[2]):
        action = torch.where(environment.all_served(state), state.depot, actions[..., step])
        if step >= num_free:
            log_probs, _ = policy.log_probs(cache, state.current, environment.features(state), state.mask)
            decided = (state.mask.sum(-1) > 1) & ~environment.all_served(state)
            total += torch.where(decided, log_probs.gather(-1, action[..., None]).squeeze(-1), 0.0)
        state = environment.step(state, action)
    return total


def assert_true_to_environment(
    policy: Policy, embeddings: Tensor, environment: Environment, starts: Tensor, tours: FusedTours
) -> None:
    """Costs equal, decisions equal, log-likelihoods close, tours legal."""
    num_forced = starts.shape[1]
    walked = replay_actions(environment, tours.actions, num_free=num_forced)
    servable = tours.cost.isfinite()
    assert servable.any()
    assert int(tours.unserved) == 0
    assert torch.equal(walked.legal, servable)
    assert torch.equal(tours.cost[servable], walked.cost[servable])
    expected = log_likelihood(policy, embeddings, environment, tours.actions, num_forced)
    torch.testing.assert_close(tours.log_likelihood, expected, rtol=0, atol=1e-4)
    assert_same_decisions(tours.segments, walked.moves, servable)
    arrays = to_arrays(environment.instances)
    for instance, row in servable.nonzero().tolist():
        flat = flat_actions(tours.actions[instance, row].tolist(), environment.num_depots)
        report = check_tour(arrays, instance, flat)
        assert report.max_violation <= POLICY_TOLERANCE
        assert report.cost == pytest.approx(float(tours.cost[instance, row]), abs=1e-5)


@pytest.mark.parametrize(
    ("head", "state", "map_logit_keys", "glimpse_mask", "ramp", "num_depots"),
    [(*form, 1) for form in FORMS] + [(*form, 3) for form in FORMS[1::3]],
)
@torch.no_grad()
def test_every_form_of_the_decoder(
    head: str, state: Any, map_logit_keys: bool, glimpse_mask: Any, ramp: float | Tensor, num_depots: int
) -> None:
    policy = network(head, state, map_logit_keys, glimpse_mask, ramp)
    instances = mixed(("OVRPBLTW", "VRPL") if num_depots == 1 else ("MDOVRPBTW", "MDVRPL"), 5, 1)
    environment, embeddings = Environment(instances), embeddings_of(policy, instances)
    starts = multi_start(environment)
    tours = fused_rollout(policy, embeddings, environment, starts, record_length=TILE * 15)
    assert_true_to_environment(policy, embeddings, environment, starts, tours)
    expected = ParallelEngine().rollout(policy, embeddings, environment, starts)
    length = min(expected.actions.shape[2], tours.actions.shape[2])
    assert torch.equal(tours.actions[..., :length], expected.actions[..., :length])
    torch.testing.assert_close(tours.log_likelihood, expected.log_likelihood, rtol=0, atol=1e-4)
    assert torch.equal(tours.cost, expected.cost)


@pytest.mark.parametrize(
    ("variants", "rule"),
    # The rules differ where backhauls are mixed.
    [
        (ONE_DEPOT, "strict"),
        (SEVERAL_DEPOTS, "strict"),
        (ONE_DEPOT[-2:], "published"),
        (SEVERAL_DEPOTS[2:3], "published"),
    ],
    ids=["one depot", "several depots", "one depot, published", "several depots, published"],
)
@torch.no_grad()
def test_sampled_tours_under_all_rules(variants: tuple[str, ...], rule: Protocol) -> None:
    policy, instances = network("plain", "remaining"), mixed(variants, 5, 1)
    environment, embeddings = Environment(instances, rule), embeddings_of(policy, instances)
    starts = multi_start(environment)
    if environment.num_depots == 1:
        starts = with_greedy_row(starts)
    tours = fused_rollout(
        policy, embeddings, environment, starts, sampler(3), greedy_last=True, record_length=TILE * 32
    )
    assert_true_to_environment(policy, embeddings, environment, starts, tours)
    greedy = ParallelEngine().rollout(policy, embeddings, environment, starts[-1:])
    length = min(greedy.actions.shape[2], tours.actions.shape[2])
    assert torch.equal(tours.actions[:, -1, :length], greedy.actions[:, 0, :length])


@torch.no_grad()
def test_more_than_64_nodes() -> None:
    policy, instances = network("plain", "remaining"), sample("OVRPBLTW", 70, 1)
    environment, embeddings = Environment(instances), embeddings_of(policy, instances)
    starts = multi_start(environment, 7)
    tours = fused_rollout(policy, embeddings, environment, starts, sampler(0), record_length=TILE * 140)
    assert_true_to_environment(policy, embeddings, environment, starts, tours)


@torch.no_grad()
def test_half_precision_stays_close() -> None:
    policy, instances = network(), mixed(("OVRPBLTW", "VRPMBL"), 6, 1)
    environment, starts = Environment(instances), torch.zeros(1, 1, dtype=torch.int64)
    with torch.autocast("cpu", torch.float16):  # the interpreter multiplies the bit patterns of bfloat16
        embeddings = embeddings_of(policy, instances)
        tours = fused_rollout(policy, embeddings, environment, starts.expand(7, 1), sampler(1), record_length=700)
    expected = log_likelihood(policy, embeddings.float(), environment, tours.actions, 1)
    torch.testing.assert_close(tours.log_likelihood, expected, rtol=0, atol=0.1)


@pytest.mark.parametrize("variants", [ONE_DEPOT, SEVERAL_DEPOTS], ids=["one depot", "several depots"])
@pytest.mark.parametrize("num_customers", [8, 66])
def test_replay_of_legal_and_illegal_tours(variants: tuple[str, ...], num_customers: int) -> None:
    environment = Environment(mixed(variants[-2:], num_customers, 1))
    generator = torch.Generator().manual_seed(1)
    num_rows = 5 if num_customers < 10 else 3  # two programs or one
    legal, _ = random_walk(environment, num_rows, generator)
    num_nodes = environment.num_depots + num_customers
    wild = torch.randint(0, num_nodes, legal.shape, generator=generator)
    swapped = legal.clone()
    swapped[..., [1, 4]] = legal[..., [4, 1]]
    actions = torch.cat((legal, wild, swapped, legal[..., :1].expand_as(legal)), dim=1)
    cost, is_legal, segments = fused_replay(environment, actions, 2, actions.shape[1] * actions.shape[2])
    expected = replay_actions(environment, actions, num_free=2)
    assert torch.equal(is_legal, expected.legal)
    assert is_legal[:, :num_rows].all()
    assert not is_legal.all()
    assert torch.equal(cost, expected.cost)
    assert_same_decisions(segments, expected.moves, torch.ones_like(is_legal))


def test_a_depot_named_first_by_one_depot_tours_is_no_move() -> None:
    environment = Environment(sample("CVRP", 4, 1))
    one_by_one = [node for customer in (1, 2, 3, 4) for node in (customer, 0)]
    actions = pad_actions([[one_by_one, [0, *one_by_one], [0, 0, *one_by_one]]])
    cost, legal, _ = fused_replay(environment, actions, 0, 100)
    assert legal.tolist() == [[True, True, False]]
    assert torch.equal(cost, replay_actions(environment, actions).cost)


@torch.no_grad()
def test_samples_follow_the_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROWS, torch.float32, TILE)
    policy, instances = network("plain", "remaining"), sample("CVRP", 3, 1)
    environment, embeddings = Environment(instances), embeddings_of(policy, instances)
    num_rows = 512
    starts = torch.zeros(num_rows, 1, dtype=torch.int64)
    tours = fused_rollout(policy, embeddings, environment, starts, sampler(9))
    state = environment.step(environment.reset(1), torch.zeros(1, 1, dtype=torch.int64))
    cache = policy.cache(embeddings, instances)
    log_probs, _ = policy.log_probs(cache, state.current, environment.features(state), state.mask)
    expected = num_rows * log_probs.exp()[0, 0]
    observed = torch.bincount(tours.actions[0, :, 1], minlength=4)
    assert observed[0] == 0
    assert expected[1:].min() > 20
    assert ((observed - expected)[1:] ** 2 / expected[1:]).sum() < 13.8  # two degrees of freedom, one in a thousand
    assert len({tuple(tour) for tour in tours.actions[0].tolist()}) > 3


@torch.no_grad()
def test_samples_depend_on_the_seed_and_the_place_in_the_whole_batch() -> None:
    policy, instances = network("plain", "remaining"), mixed(("CVRP", "OVRPL"), 4, 1)
    embeddings = embeddings_of(policy, instances)
    starts = multi_start(Environment(instances))

    def drawn(part: slice, source: Sampler) -> FusedTours:
        return fused_rollout(policy, embeddings[part], Environment(instances[part]), starts, source)

    whole = drawn(slice(None), sampler(4))
    again = drawn(slice(None), sampler(4))
    other = drawn(slice(None), sampler(5))
    halves = [drawn(slice(0, 1), sampler(4, 0, 2)), drawn(slice(1, 2), sampler(4, 1, 2))]
    assert torch.equal(whole.actions, again.actions)
    assert torch.equal(whole.log_likelihood, again.log_likelihood)
    assert not torch.equal(whole.actions, other.actions)
    assert torch.equal(whole.actions, torch.cat([half.actions for half in halves]))
    same_instance = dataclasses.replace(instances[[0, 0]])
    twins = fused_rollout(policy, embeddings[[0, 0]], Environment(same_instance), starts, sampler(4))
    assert not torch.equal(twins.actions[0], twins.actions[1])


@torch.no_grad()
def test_several_programs_and_too_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROWS, torch.float32, TILE)
    policy, instances = network("plain", "remaining"), sample("CVRP", 4, 1)
    environment, embeddings = Environment(instances), embeddings_of(policy, instances)
    starts = multi_start(environment).repeat(17, 1)[:66]
    roomy, narrow = (
        fused_rollout(policy, embeddings, environment, starts, sampler(2), record_length=length)
        for length in (TILE * 9, 20)
    )
    assert_true_to_environment(policy, embeddings, environment, starts, roomy)
    assert roomy.segments.count.shape == (1, 2)
    assert torch.equal(roomy.segments.count, narrow.segments.count)
    made = int(roomy.segments.count.sum())
    kept = int(roomy.segments.count.clamp(max=20).sum())
    assert roomy.segments is not None and narrow.segments is not None
    packed = [pack(segments, 66, environment.max_actions, 16 * TILE) for segments in (roomy.segments, narrow.segments)]
    assert [int(table.dropped) for table in packed] == [0, made - kept]
    assert int(packed[0].valid.sum()) == made


@pytest.mark.parametrize("variant", ["VRPL", "MDVRPL"])
@torch.no_grad()
def test_tours_that_cannot_serve_everyone_are_counted(variant: str) -> None:
    policy, instances = network("plain", "remaining"), sample(variant, 4, 2)
    limit = instances.distance_limit.clone()
    limit[1] = 0.01
    instances = dataclasses.replace(instances, distance_limit=limit)
    environment, embeddings = Environment(instances), embeddings_of(policy, instances)
    starts = multi_start(environment)[:3]
    tours = fused_rollout(policy, embeddings, environment, starts, record_length=TILE * 22)
    assert int(tours.unserved) == 3
    assert tours.cost.isfinite().tolist() == [[True] * 3, [False] * 3]
    assert ((tours.actions >= 0) & (tours.actions < instances.num_nodes)).all()


def maximum_as_compiled(self: Any, input: Any) -> tuple[Any, Any]:
    """Compiled kernels compare two numbers at a time, and take the second where one of them is not a number."""
    values = input.handle.data
    largest, place = values[:, 0], np.zeros(len(values), np.int32)
    for index in range(1, values.shape[1]):
        kept = largest >= values[:, index]
        largest, place = np.where(kept, largest, values[:, index]), np.where(kept, place, index)
    return self.to_tensor(largest, input.dtype), self.to_tensor(place, tl.int32)


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")  # the interpreter's maximum of scores
def test_tours_of_a_network_that_diverged_stay_within_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that do not exist would leave a GPU unusable once the decisions are scored."""
    policy, environment = network(), Environment(mixed(["CVRP", "OVRPBLTW"], 5, count=1))
    unknown = torch.full_like(embeddings_of(policy, environment.instances), torch.nan)
    starts = with_greedy_row(multi_start(environment))
    whole = interpreter.ReduceOps.min_max

    def maximum(self: Any, input: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
        if idx_reduce_op is None:
            return whole(self, input, val_reduce_op)
        return maximum_as_compiled(self, input)

    monkeypatch.setattr(interpreter.ReduceOps, "min_max", maximum)
    tours = fused_rollout(policy, unknown, environment, starts, sampler(1), greedy_last=True, record_length=640)
    assert ((tours.actions >= 0) & (tours.actions < environment.instances.num_nodes)).all()
    assert tours.log_likelihood.isnan().all()


def test_limits_need_not_lie_side_by_side() -> None:
    policy, instances = network(state="remaining"), mixed(["VRPL", "OVRPL"], 5, count=1)
    wanted = instances.distance_limit[:1].clone()
    embeddings = embeddings_of(policy, instances)

    def likelihood(limit: Tensor) -> Tensor:
        environment = Environment(dataclasses.replace(instances, distance_limit=limit))
        return fused_rollout(policy, embeddings, environment, multi_start(environment)).log_likelihood

    assert torch.equal(likelihood(wanted.expand(2)), likelihood(wanted.repeat(2)))


def test_networks_that_the_kernels_do_not_serve() -> None:
    assert supports(network(), 128) is None
    assert "up to 128 nodes" in supports(network(), 129)
    assert "MixtureOutput" in supports(policy_of("mvmoe", "shared"), 21)
    assert "LightHead" in supports(policy_of("mvmoe", "shared", mixture="light"), 21)
    assert "adapters" in supports(policy_of("moses", "shared"), 21)
    assert "powers of two" in supports(policy_of(heads=4), 21)
    assert supports(policy_of("routefinder", "shared"), 101) is None
