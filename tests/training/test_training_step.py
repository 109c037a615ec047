"""One training step: learning signal, refinement in place of the refined tour, reproducible streams."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from helpers.instances import drawn
from polarvrp.config.model import ModelConfig
from polarvrp.config.training import TrainConfig
from polarvrp.decoding.parallel import ParallelEngine
from polarvrp.local_search.refinement import Refiner
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy
from polarvrp.training import shaped_step
from polarvrp.training.group import Group, Share
from polarvrp.training.microbatch import SUMS, Microbatch, StepContext
from polarvrp.training.objectives import preference, reinforce
from polarvrp.training.step import TrainingStep

SMALL = ModelConfig(width=32, heads=4, layers=2, feedforward_width=64)


def config(paradigm: str, **changes: object) -> TrainConfig:
    return TrainConfig(paradigm=paradigm, num_customers=10, batch_size=4, refinement_start_epoch=1, **changes)  # type: ignore[arg-type]


def step_of(policy: Policy, settings: TrainConfig, refiner: Refiner | None) -> TrainingStep:
    optimizer = torch.optim.AdamW(policy.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    return TrainingStep(policy, optimizer, settings, False, refiner)


@pytest.mark.parametrize("paradigm", ["rl", "po", "polar"])
def test_the_same_seed_gives_the_same_update_and_another_seed_another(paradigm: str) -> None:
    def weights_after(seed: int) -> torch.Tensor:
        policy = build_policy(SMALL, 0)
        with Refiner(0) as refiner:
            trainer = step_of(policy, config(paradigm, seed=seed), refiner)
            for epoch in (1, 2):
                trainer.run(0, epoch, 0, 4)
        return torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])

    assert torch.equal(weights_after(0), weights_after(0))
    assert not torch.equal(weights_after(0), weights_after(1))


def microbatch_of(policy: Policy, settings: TrainConfig) -> Microbatch:
    """A microbatch of six instances whose tours are built and chosen."""
    objective = partial(preference, temperature=0.05)
    context = StepContext(policy, ParallelEngine(), settings, False, objective, None)
    microbatch = Microbatch(context, Group().shares(6, 1)[0], torch.Generator(), torch.Generator())
    microbatch.seed((0, 2, 0))
    microbatch.take(drawn(10, 6, 3))
    microbatch.encode()
    microbatch.decode()
    microbatch.select_tours()
    return microbatch


def test_refined_tours_take_the_place_of_the_best_and_only_if_shorter() -> None:
    microbatch = microbatch_of(build_policy(SMALL, 0), config("polar", refined_tours=2))
    with Refiner(0) as refiner:
        microbatch.submit(refiner, (0, 2, 0))
        microbatch.collect()
    microbatch.replay()
    tours, refinement = microbatch.tours, microbatch.refinement
    assert refinement is not None
    assert torch.equal(refinement.row, tours.cost.topk(2, dim=1, largest=False).indices)
    replaced = refinement.put(tours.cost, refinement.replayed.cost)
    assert (replaced <= tours.cost).all()
    assert refinement.accepted.any()
    untouched = torch.ones_like(tours.cost, dtype=torch.bool).scatter(1, refinement.row, ~refinement.accepted)
    assert torch.equal(replaced[untouched], tours.cost[untouched])
    assert refinement.replayed.legal[refinement.accepted].all()


def test_a_refined_tour_that_the_environment_refuses_is_discarded() -> None:
    microbatch = microbatch_of(build_policy(SMALL, 0), config("polar"))
    with Refiner(0) as refiner:
        microbatch.submit(refiner, (0, 2, 0))
        microbatch.collect()
    one_route = torch.arange(1, 11)  # breaks the capacity
    microbatch.found.zero_()[..., :10] = one_route
    microbatch.replay()
    microbatch.compute_loss()
    sums = dict(zip(SUMS, microbatch.sums.tolist(), strict=True))
    assert sums["refined_tours"] == sums["refinement_improvement"] == sums["refinement_likelihood_change"] == 0


@pytest.mark.parametrize(("paradigm", "changes"), [("po", {}), ("polar", {}), ("polar", {"refinement_ramp": 0.5})])
def test_halves_of_a_batch_add_up_to_the_whole(
    paradigm: str, changes: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums and update do not depend on how a batch is split into microbatches."""

    def outcome(microbatches: int) -> tuple[dict[str, float], torch.Tensor]:
        monkeypatch.setattr(shaped_step, "MICROBATCHES_WHILE_REFINING", microbatches)
        policy = build_policy(SMALL, 0)
        with Refiner(0) as refiner:
            # plain gradient descent: Adam's first step is as long for a gradient of next to nothing
            optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
            step = TrainingStep(policy, optimizer, config(paradigm, **changes), False, refiner)
            step.refinement_gap = 0.8
            sums = step.run(0, 2, 0, 5)
        numbers = torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])
        return {key: value for key, value in sums.items() if not key.startswith("seconds")}, numbers

    (whole, whole_numbers), (halves, halves_numbers) = outcome(1), outcome(2)
    assert halves == pytest.approx(whole, rel=1e-5)
    torch.testing.assert_close(halves_numbers, whole_numbers, rtol=0, atol=2e-6)


@pytest.mark.parametrize("paradigm", ["rl", "polar"])
def test_fewer_starts_are_drawn_anew_for_each_batch_and_alike_for_its_microbatches(paradigm: str) -> None:
    settings = config(paradigm, starts=4, seed=3)
    context = StepContext(build_policy(SMALL, 0), ParallelEngine(), settings, False, reinforce, None)
    instances = drawn(10, 5, 3)

    def starts_of(now: tuple[int, int, int], share: Share) -> list[int]:
        microbatch = Microbatch(context, share, torch.Generator(), torch.Generator())
        microbatch.seed(now)
        microbatch.take(instances)
        microbatch.encode()
        microbatch.decode()
        first = microbatch.tours.actions[..., 0]
        assert first.shape == (share.size, 4 + (paradigm == "polar"))
        assert (first == first[0]).all()
        if paradigm == "polar":
            assert first[0, 4] == 0  # the greedy tour chooses its first customer
        return first[0, :4].tolist()

    halves = [share for rank in range(2) for share in Group(rank, 2).shares(5, 1)]
    chosen = []
    for step in range(12):
        one, other = (starts_of((0, 1, step), share) for share in halves)
        assert one == other and len(set(one)) == 4
        chosen.append(tuple(one))
    assert len(set(chosen)) > 8
    assert {node for nodes in chosen for node in nodes} == set(range(1, 11))
    assert starts_of((0, 1, 0), halves[0]) == list(chosen[0])
    other_seed = settings.replace(seed=4)
    context = replace(context, config=other_seed)
    assert [tuple(starts_of((0, 1, step), halves[0])) for step in range(12)] != chosen


def test_as_many_starts_as_customers_are_all_of_them() -> None:
    def weights_after(**changes: object) -> torch.Tensor:
        policy = build_policy(SMALL, 0)
        step_of(policy, config("po", **changes), None).run(0, 1, 0, 4)
        return torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])

    assert torch.equal(weights_after(starts=10), weights_after())
    assert not torch.equal(weights_after(starts=9), weights_after())


def test_every_instance_belongs_to_one_part_of_one_process() -> None:
    for total in (2, 5, 256, 391):
        for size in (1, 2):
            for microbatches in (1, 2, 3):
                shares = [share for rank in range(size) for share in Group(rank, size).shares(total, microbatches)]
                assert [place for share in shares for place in range(total)[share.slice]] == list(range(total))
                assert all(share.size > 0 and share.total == total for share in shares)
