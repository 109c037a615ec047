"""One training step: learning signal, refinement in place of the refined tour, reproducible streams."""

import pytest
import torch

from polarvrp.config import ModelConfig, TrainConfig
from polarvrp.decoding.rollout import multi_start, rollout, with_greedy_row
from polarvrp.decoding.scoring import score, score_gradient
from polarvrp.decoding.steps import StepRecorder
from polarvrp.environment.environment import Environment
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy
from polarvrp.problem.torch_generator import generate_batch
from polarvrp.training.objectives import loss_and_coefficients, preference, reinforce
from polarvrp.training.refinement import RefinedTour, Refiner
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


@pytest.mark.parametrize("objective", [reinforce, lambda c, ll: preference(c, ll, 0.05)])
def test_fifty_steps_on_one_batch_of_tours_lower_its_loss(objective) -> None:
    policy = build_policy(SMALL, 0)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    instances = generate_batch(10, 8, torch.Generator().manual_seed(0), "cpu")
    environment = Environment(instances)
    with torch.no_grad():
        cache = policy.cache(policy.encode(instances).embeddings, instances)
    recorder = StepRecorder(environment)
    starts = multi_start(environment)
    generator = torch.Generator().manual_seed(1)
    tours = rollout(policy, cache, environment, starts, generator=generator, recorder=recorder)
    steps = recorder.pack()
    losses = []
    for _ in range(50):
        encoding = policy.encode(instances)
        leaf = encoding.embeddings.detach().requires_grad_()
        loss, coefficients = loss_and_coefficients(
            objective, tours.cost, score(policy, leaf.detach(), instances, steps)
        )
        losses.append(float(loss))
        score_gradient(policy, leaf, instances, steps, coefficients)
        encoding.embeddings.backward(leaf.grad)
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < losses[0] - 0.05 * abs(losses[0])


def test_refined_tours_take_the_place_of_the_best_and_only_if_shorter() -> None:
    policy = build_policy(SMALL, 0)
    with Refiner(0) as refiner:
        trainer = step_of(policy, config("polar", refined_tours=2), refiner)
        instances = generate_batch(10, 6, torch.Generator().manual_seed(3), "cpu")
        environment = Environment(instances)
        with torch.no_grad():
            embeddings = policy.encode(instances).embeddings
            tours = rollout(
                policy,
                policy.cache(embeddings, instances),
                environment,
                with_greedy_row(multi_start(environment)),
                generator=torch.Generator().manual_seed(5),
                greedy_last=True,
            )
        refinement = trainer._refine(refiner, environment, tours, (0, 2, 0))
    assert torch.equal(refinement.row, tours.cost.topk(2, dim=1, largest=False).indices)
    replaced = refinement.put(tours.cost, refinement.replayed.cost)
    assert (replaced <= tours.cost).all()
    assert refinement.accepted.any()
    untouched = torch.ones_like(tours.cost, dtype=torch.bool).scatter(1, refinement.row, ~refinement.accepted)
    assert torch.equal(replaced[untouched], tours.cost[untouched])
    assert refinement.replayed.legal[refinement.accepted].all()


class Spoiler(Refiner):
    """Returns a single route through all customers, which breaks the capacity."""

    def __init__(self) -> None:
        super().__init__(0)

    def refine(self, instances, tours, seeds):  # type: ignore[no-untyped-def]
        return [RefinedTour(list(range(1, 11)), 0.0, True) for _ in tours]


def test_a_refined_tour_that_the_environment_refuses_is_discarded() -> None:
    policy = build_policy(SMALL, 0)
    trainer = step_of(policy, config("polar"), Spoiler())
    sums = trainer.run(0, 2, 0, 4)
    assert sums["refined_tours"] == 0
    assert sums["refinement_improvement"] == 0
