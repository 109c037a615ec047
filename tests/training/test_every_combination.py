"""Every backbone, encoder and paradigm learns from given tours; every network decodes every variant feasibly."""

from functools import partial
from itertools import product

import pytest
import torch

from helpers.instances import drawn, mixed
from polarvrp.catalog.backbones import BACKBONES
from polarvrp.catalog.encoders import ENCODERS
from polarvrp.config.model import ModelConfig
from polarvrp.decoding.parallel import ParallelEngine
from polarvrp.decoding.rollout import Replay, multi_start
from polarvrp.decoding.sampling import Sampler
from polarvrp.decoding.scoring import score, score_gradient
from polarvrp.decoding.steps import ScoredSteps
from polarvrp.environment.environment import Environment
from polarvrp.local_search.refinement import Refiner, pad_actions
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy
from polarvrp.problem.instances import Instances, to_arrays
from polarvrp.problem.tours import check_tour, flat_actions
from polarvrp.problem.variants import VARIANTS
from polarvrp.training.objectives import loss_and_coefficients, preference, reinforce

PAIRS = [(backbone, encoder) for backbone, record in BACKBONES.items() for encoder in record.encoders]
PARADIGMS = ("rl", "po", "polar")
PAIRWISE = {
    (backbone, record.encoders[(shift + number) % len(record.encoders)], paradigm)
    for shift, (backbone, record) in enumerate(BACKBONES.items())
    for number, paradigm in enumerate(PARADIGMS)
}
"""Combinations in which every pair of two values occurs; the others take long together."""

SIZE, BATCH, STEPS = 10, 8, 15


def small(backbone: str, encoder: str) -> Policy:
    layers = {"shared": 2, "deep": 3, "ple": 1}[encoder]
    config = ModelConfig(backbone=backbone, encoder=encoder, width=32, heads=4, layers=layers, feedforward_width=32)
    if backbone == "moses":
        config = config.replace(adapters="none")  # the mixture's base is frozen: its first stage learns everything
    return build_policy(config, seed=1)


def fixed_tours(policy: Policy) -> tuple[Instances[torch.Tensor], torch.Tensor, ScoredSteps, Replay, torch.Tensor]:
    """One batch with sampled tours, and the refined best tour of each instance with its row."""
    instances = drawn(SIZE, BATCH)
    environment = Environment(instances)
    with torch.no_grad():
        embeddings = policy.encode(instances).embeddings
    sampler = Sampler(torch.Generator().manual_seed(1))
    engine, starts = ParallelEngine(), multi_start(environment)
    tours = engine.rollout(policy, embeddings, environment, starts, sampler, record=True)
    best = tours.cost.argmin(1)
    flat = [tours.actions[index, row].tolist() for index, row in enumerate(best.tolist())]
    with Refiner(0) as refiner:
        refined = refiner.refine(to_arrays(instances), [flat_actions(tour, 1) for tour in flat], list(range(BATCH)))
    replayed = engine.replay(environment, pad_actions([[tour.actions] for tour in refined]))
    assert replayed.legal.all()
    return instances, tours.cost, tours.decisions, replayed, best[:, None]


def test_every_pair_of_backbone_encoder_and_paradigm_occurs() -> None:
    assert {combination[:2] for combination in PAIRWISE} == set(PAIRS)
    assert {combination[::2] for combination in PAIRWISE} == set(product(BACKBONES, PARADIGMS))
    assert {combination[1:] for combination in PAIRWISE} == set(product(ENCODERS, PARADIGMS))


@pytest.mark.parametrize(
    ("backbone", "encoder", "paradigm"),
    [
        pytest.param(*pair, paradigm, marks=[] if (*pair, paradigm) in PAIRWISE else pytest.mark.long)
        for pair, paradigm in product(PAIRS, PARADIGMS)
    ],
)
def test_some_steps_on_fixed_tours_lower_the_loss(backbone: str, encoder: str, paradigm: str) -> None:
    policy = small(backbone, encoder)
    instances, cost, steps, replayed, row = fixed_tours(policy)
    policy.eval()  # without routing noise the loss is a function of the weights alone
    objective = reinforce if paradigm == "rl" else partial(preference, temperature=0.05)
    optimizer = torch.optim.AdamW([p for p in policy.parameters() if p.requires_grad], lr=1e-3)
    if paradigm == "polar":
        cost = cost.scatter(1, row, torch.minimum(replayed.cost, cost.gather(1, row)))
    losses = []
    for _ in range(STEPS):
        encoding = policy.encode(instances)
        leaf = encoding.embeddings.detach().requires_grad_()
        likelihood = score(policy, leaf.detach(), instances, steps)
        if paradigm == "polar":
            likelihood = likelihood.scatter(1, row, score(policy, leaf.detach(), instances, replayed.decisions))
        loss, coefficients = loss_and_coefficients(objective, cost, likelihood)
        losses.append(float(loss))
        if paradigm == "polar":
            score_gradient(policy, leaf, instances, replayed.decisions, coefficients.gather(1, row))
            coefficients = coefficients.scatter(1, row, 0.0)
        score_gradient(policy, leaf, instances, steps, coefficients)
        encoding.embeddings.backward(leaf.grad)
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < losses[0] - 0.02 * abs(losses[0])


@pytest.mark.parametrize(("backbone", "encoder"), PAIRS)
def test_all_variants_decode_feasibly_and_score_what_they_sampled(backbone: str, encoder: str) -> None:
    policy = small(backbone, encoder).eval()
    for depots in (1, 3):
        batch = mixed([name for name, variant in VARIANTS.items() if variant.num_depots == depots], SIZE, count=1)
        assert len(batch) == 24
        environment = Environment(batch)
        with torch.no_grad():
            embeddings = policy.encode(batch).embeddings
        sampler = Sampler(torch.Generator().manual_seed(3))
        engine, starts = ParallelEngine(), multi_start(environment)
        tours = engine.rollout(policy, embeddings, environment, starts, sampler, record=True)
        scored = engine.score(policy, embeddings, batch, tours.decisions)
        finite = tours.cost.isfinite()
        assert finite.any(1).all()
        torch.testing.assert_close(scored[finite], tours.log_likelihood[finite], rtol=1e-4, atol=1e-3)
        arrays = to_arrays(batch)
        for index, row in enumerate(tours.cost.argmin(1).tolist()):
            tour = tours.actions[index, row].tolist()
            report = check_tour(arrays, index, tour, time_tolerance=1e-5)
            assert report.first_problem is None
