"""Training batches: laws of the attributes, all sixteen variants, one generator that decides everything."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from polarvrp.problem.datasets import instances_from_arrays
from polarvrp.problem.instances import Instances, NodeArrays, to_arrays
from polarvrp.problem.nearest_neighbour import nearest_neighbour
from polarvrp.problem.numpy_generator import generate_arrays
from polarvrp.problem.torch_generator import draw_variants, generate_batch
from polarvrp.problem.tours import check_tour
from polarvrp.problem.variants import FLAG_NAMES, TRAINING_VARIANTS, VARIANTS, capacity_for

BATCH = 16_000
FIELDS = (
    "locs",
    "demand_linehaul",
    "demand_backhaul",
    "time_windows",
    "service_time",
    "distance_limit",
    "open_route",
    "backhaul_class",
    "flags",
)


def draw(num_customers: int = 20, batch_size: int = BATCH, seed: int = 1) -> Instances[Tensor]:
    return generate_batch(num_customers, batch_size, torch.Generator().manual_seed(seed), "cpu")


@pytest.fixture(scope="module")
def batch() -> Instances[NodeArrays]:
    return to_arrays(draw())


def flag(batch: Instances[NodeArrays], name: str) -> NDArray[np.bool_]:
    return batch.flags[:, FLAG_NAMES.index(name)]


def test_state_of_the_generator_decides_the_batch() -> None:
    """Same state, same batch; the next batch of a generator differs; the global generator is not touched."""
    torch.manual_seed(3)
    state = torch.get_rng_state()
    generator = torch.Generator().manual_seed(7)
    first, second = generate_batch(10, 8, generator, "cpu"), generate_batch(10, 8, generator, "cpu")
    again = draw(10, 8, seed=7)
    for field in FIELDS:
        assert torch.equal(getattr(first, field), getattr(again, field)), field
    assert not torch.equal(first.locs, second.locs)
    assert torch.equal(state, torch.get_rng_state())


def test_types_and_shapes() -> None:
    batch = draw(10, 4)
    floats = ("locs", "demand_linehaul", "demand_backhaul", "time_windows", "service_time", "distance_limit")
    assert {getattr(batch, name).dtype for name in floats} == {torch.float32}
    assert batch.open_route.dtype == batch.flags.dtype == torch.bool and batch.backhaul_class.dtype == torch.int64
    assert (batch.num_nodes, batch.num_depots, batch.capacity) == (11, 1, 30)


def test_variants_are_equally_likely(batch: Instances[NodeArrays]) -> None:
    """Each of the sixteen has probability 1/16: 1000 expected, deviation 31; five of them are allowed."""
    counts = Counter(map(tuple, batch.flags.tolist()))
    assert set(counts) == {VARIANTS[name].flags for name in TRAINING_VARIANTS}
    assert all(abs(count - BATCH / 16) < 5 * 31 for count in counts.values())


def test_demands(batch: Instances[NodeArrays]) -> None:
    """One whole demand of 1 to 9 for everybody, uniform; a fifth are backhauls where the attribute is kept."""
    linehaul, backhaul = batch.demand_linehaul[:, 1:], batch.demand_backhaul[:, 1:]
    assert (batch.demand_linehaul[:, 0] == 0).all() and (batch.demand_backhaul[:, 0] == 0).all()
    assert ((linehaul > 0) ^ (backhaul > 0)).all()
    units = (linehaul + backhaul) * capacity_for(20)
    np.testing.assert_allclose(units, np.rint(units), atol=1e-5)
    kept = flag(batch, "B")
    for values in (units[linehaul > 0], units[backhaul > 0], units[~kept]):
        shares = np.bincount(np.rint(values).astype(int).ravel(), minlength=10)[1:] / values.size
        np.testing.assert_allclose(shares, 1 / 9, atol=0.005)
    assert not backhaul[~kept].any()
    assert abs((backhaul[kept] > 0).mean() - 0.2) < 0.005


def test_removed_backhauls_keep_their_demand() -> None:
    """Up to the removal two batches of one seed are equal, so demands agree whoever has the attribute."""
    batch = draw(10, 200)
    total = batch.demand_linehaul + batch.demand_backhaul
    kept = batch.flags[:, FLAG_NAMES.index("B")]
    assert kept.any() and not kept.all()
    assert (total[:, 1:] > 0).all()
    # The draws in the documented order, by hand.
    generator = torch.Generator().manual_seed(1)
    torch.rand(200, 11, 2, generator=generator)
    deliveries, pickups = (
        torch.randint(1, 10, (200, 10), generator=generator, dtype=torch.float32) / 30 for _ in range(2)
    )
    is_backhaul = torch.rand(200, 10, generator=generator) < 0.2
    assert torch.equal(total[:, 1:], torch.where(is_backhaul, pickups, deliveries))
    assert torch.equal(batch.demand_backhaul[:, 1:] > 0, is_backhaul & kept[:, None])


def test_windows(batch: Instances[NodeArrays]) -> None:
    """Removed windows bind nothing; kept ones follow the law of the test sets."""
    kept = flag(batch, "TW")
    gone = batch.time_windows[~kept]
    assert (gone[..., 0] == 0).all() and np.isposinf(gone[..., 1]).all()
    assert (batch.service_time[~kept] == 0).all()
    windows = batch.time_windows[kept].astype(np.float64)
    assert (windows[:, 0] == [0.0, np.float32(4.6)]).all() and (batch.service_time[kept][:, 0] == 0).all()
    service, length = batch.service_time[kept][:, 1:], windows[:, 1:, 1] - windows[:, 1:, 0]
    assert 0.15 <= service.min() < 0.1501 and 0.1799 < service.max() <= 0.18 + 1e-7
    assert 0.18 - 1e-6 <= length.min() < 0.1801 and 0.1999 < length.max() <= 0.2 + 1e-6
    out = np.linalg.norm(batch.locs[kept][:, 1:] - batch.locs[kept][:, :1], axis=-1)
    # Position of the start between its bounds is uniform.
    share = (windows[:, 1:, 0] - out) / (4.6 - service - length - 2 * out)
    assert share.min() > -1e-5 and share.max() < 1 + 1e-5
    np.testing.assert_allclose(np.quantile(share, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.01)
    assert (np.maximum(out, windows[:, 1:, 0]) + service + out <= 4.6).all()


def test_limits(batch: Instances[NodeArrays]) -> None:
    kept = flag(batch, "L")
    assert np.isposinf(batch.distance_limit[~kept]).all()
    limit = batch.distance_limit[kept].astype(np.float64)
    farthest = np.linalg.norm(batch.locs[kept, 1:] - batch.locs[kept, :1], axis=-1).max(axis=1)
    assert (limit > 2 * farthest).all()
    roomy = 2 * farthest < 2.7
    share = (limit - 2 * farthest)[roomy] / (2.8 - 2 * farthest)[roomy]
    assert share.max() <= 1 + 1e-5
    np.testing.assert_allclose(np.quantile(share, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.03)


@pytest.mark.parametrize("name", ["CVRP", "VRPBLTW"])
def test_same_laws_as_the_test_sets(batch: Instances[NodeArrays], name: str) -> None:
    """Mean and deviation of every number agree with the NumPy generator's, to five standard errors."""
    of_variant = batch[(batch.flags == np.array(VARIANTS[name].flags)).all(axis=1)]
    reference = instances_from_arrays(generate_arrays(VARIANTS[name], 20, 4000, 11))
    for field in FIELDS[:6]:
        ours, theirs = (getattr(b, field).astype(np.float64) for b in (of_variant, reference))
        if not np.isfinite(ours).all():
            assert np.array_equal(np.isfinite(ours[:1]), np.isfinite(theirs[:1]))
            continue
        # Means of instances: customers of an instance are correlated.
        ours, theirs = ours.reshape(len(ours), -1), theirs.reshape(len(theirs), -1)
        for statistic in (ours.mean(axis=1), theirs.mean(axis=1)), (ours.std(axis=1), theirs.std(axis=1)):
            error = math.hypot(*(s.std() / math.sqrt(len(s)) for s in statistic))
            assert abs(statistic[0].mean() - statistic[1].mean()) <= 5 * error + 1e-7, field


def test_every_instance_has_a_solution() -> None:
    """Each customer can be served alone, so nobody is stranded in training."""
    batch = to_arrays(draw(15, 200, seed=4))
    for index in range(len(batch)):
        report = check_tour(batch, index, nearest_neighbour(batch, index))
        assert report.first_problem is None


def test_a_customer_at_the_depot_has_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Distance 0 gives numbers, not NaN."""
    rand = torch.rand

    def crowded(size: tuple[int, ...], **options: Any) -> Tensor:
        return torch.full(size, 0.5) if len(size) == 3 else rand(size, **options)

    monkeypatch.setattr(torch, "rand", crowded)
    batch = draw(5, 64)
    for field in FIELDS[:6]:
        assert not getattr(batch, field).isnan().any(), field
    assert (batch.time_windows[..., 0] <= batch.time_windows[..., 1]).all()


def test_a_batch_of_one_variant_and_batches_of_chosen_variants() -> None:
    generator = torch.Generator().manual_seed(0)
    seen = set()
    for _ in range(60):
        flags = generate_batch(5, 8, generator, "cpu", mixed=False).flags
        assert (flags == flags[0]).all()
        seen.add(tuple(flags[0].tolist()))
    assert len(seen) > 10
    chosen = generate_batch(5, 64, generator, "cpu", variants=("OVRP", "VRPBL")).flags
    wanted = [list(VARIANTS[name].flags) for name in ("OVRP", "VRPBL")]
    assert all(row in wanted for row in chosen.tolist())
    assert 16 < chosen[:, 0].sum() < 48


def of(*variants: str, batch_size: int = 4000, num_customers: int = 20, seed: int = 5) -> Instances[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return generate_batch(num_customers, batch_size, generator, "cpu", variants=variants)


@pytest.mark.parametrize("name", ["VRPMB", "MDVRP", "MDOVRPB", "MDVRPMBLTW"])
def test_unseen_variants_follow_the_laws_of_the_test_sets(name: str) -> None:
    """Several depots and mixed backhauls: every array agrees with the NumPy generator's, to five standard errors."""
    batch, reference = to_arrays(of(name)), instances_from_arrays(generate_arrays(VARIANTS[name], 20, 4000, 11))
    assert (batch.num_depots, batch.capacity, batch.num_nodes) == (
        reference.num_depots,
        reference.capacity,
        reference.num_nodes,
    )
    for field in ("open_route", "backhaul_class", "flags"):
        ours, theirs = getattr(batch, field), getattr(reference, field)
        assert ours.dtype == theirs.dtype and (ours == theirs).all(), field
    for field in FIELDS[:6]:
        ours, theirs = (getattr(b, field).astype(np.float64) for b in (batch, reference))
        assert np.array_equal(np.isfinite(ours[0]), np.isfinite(theirs[0])), field
        depots = batch.num_depots
        if field not in ("distance_limit", "locs"):
            assert np.array_equal(ours[:, :depots], theirs[:, :depots]), field
        of_published_trainings = field in ("time_windows", "distance_limit") and depots > 1
        if of_published_trainings or not np.isfinite(ours).all():
            continue
        ours, theirs = ours.reshape(len(ours), -1), theirs.reshape(len(theirs), -1)
        for first, second in ((ours.mean(axis=1), theirs.mean(axis=1)), (ours.std(axis=1), theirs.std(axis=1))):
            error = math.hypot(first.std() / math.sqrt(len(first)), second.std() / math.sqrt(len(second)))
            assert abs(first.mean() - second.mean()) <= 5 * error + 1e-7, field


def test_windows_and_limits_of_several_depots_are_those_of_published_trainings() -> None:
    """Windows leave time for the farthest depot; limits reach from one depot to all customers, not between depots."""
    batch = to_arrays(of("MDVRPLTW"))
    locs = batch.locs.astype(np.float64)
    away = np.linalg.norm(locs[:, :3, None] - locs[:, None, 3:], axis=-1)  # [B, K, n]
    farthest = away.max(axis=1)
    opens, closes = batch.time_windows[:, 3:].astype(np.float64).transpose(2, 0, 1)
    share = (opens - farthest) / (4.6 - batch.service_time[:, 3:] - (closes - opens) - 2 * farthest)
    assert share.min() > -1e-5 and share.max() < 1 + 1e-5
    np.testing.assert_allclose(np.quantile(share, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.01)
    reach = 2 * away.max(axis=2).min(axis=1)
    limit = batch.distance_limit.astype(np.float64)
    assert (limit > reach).all()
    share = (limit - reach) / (2.8 - reach)
    assert share.max() <= 1 + 1e-5
    np.testing.assert_allclose(np.quantile(share, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.03)


def test_every_instance_of_an_unseen_variant_has_a_solution() -> None:
    for name in ("MDVRPMBLTW", "MDOVRPL", "VRPMBTW"):
        batch = to_arrays(of(name, batch_size=60, num_customers=15))
        for index in range(len(batch)):
            assert check_tour(batch, index, nearest_neighbour(batch, index)).first_problem is None


@pytest.mark.parametrize("mixed", [True, False])
def test_a_batch_has_one_number_of_depots_in_proportion_to_the_variants(mixed: bool) -> None:
    """Of all 48 half have three depots, of CVRP, OVRP and MDVRPTW a third; five deviations are allowed."""
    generator = torch.Generator().manual_seed(3)
    for variants, share in ((tuple(VARIANTS), 1 / 2), (("CVRP", "MDVRPTW", "OVRP"), 1 / 3)):
        batches = [generate_batch(5, 4, generator, "cpu", variants, mixed) for _ in range(600)]
        for batch in batches:
            several = batch.flags[:, FLAG_NAMES.index("MD")]
            assert (several == (batch.num_depots > 1)).all()
            assert batch.num_nodes == batch.num_depots + 5
        found = sum(batch.num_depots == 3 for batch in batches) / 600
        assert abs(found - share) < 5 * math.sqrt(share * (1 - share) / 600)
        kinds = {tuple(row) for batch in batches for row in batch.flags.tolist()}
        assert kinds == {VARIANTS[name].flags for name in variants}


def test_variants_of_one_number_of_depots_need_no_choice() -> None:
    """Nothing is drawn, so batches of the training variants are what they always were."""
    generator = torch.Generator().manual_seed(3)
    state = generator.get_state()
    several = tuple(name for name in VARIANTS if VARIANTS[name].multi_depot)
    assert draw_variants(TRAINING_VARIANTS, generator) == TRAINING_VARIANTS
    assert draw_variants(several, generator) == several
    assert torch.equal(generator.get_state(), state)
    assert set(draw_variants(tuple(VARIANTS), generator)) in (set(several), set(VARIANTS) - set(several))
