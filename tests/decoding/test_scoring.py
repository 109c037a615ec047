"""Scoring all decisions in one parallel pass equals walking through the environment with an autograd graph."""

import pytest
import torch
from torch import Tensor

from helpers.instances import drawn, in_double, mixed, mixed_arrays, sample
from helpers.stepwise_oracle import ReferenceEngine
from polarvrp.config.model import ModelConfig
from polarvrp.decoding import scoring
from polarvrp.decoding.engine import make_engine
from polarvrp.decoding.graphs import CapturedCall, CaptureError
from polarvrp.decoding.parallel import ParallelEngine
from polarvrp.decoding.rollout import multi_start, with_greedy_row
from polarvrp.decoding.sampling import Sampler
from polarvrp.environment.environment import Environment
from polarvrp.local_search.refinement import pad_actions
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy
from polarvrp.problem.instances import Instances, to_tensors
from polarvrp.problem.tours import check_tour, flat_actions
from polarvrp.problem.variants import VARIANTS

SMALL = ModelConfig(width=32, heads=4, layers=2, feedforward_width=32)
OF_DEPOTS = {depots: [name for name, variant in VARIANTS.items() if variant.num_depots == depots] for depots in (1, 3)}
"""All variants; a batch may hold those of one number of depots."""


def policy_in_double(seed: int = 3) -> Policy:
    return build_policy(SMALL, seed).double()


def instances_of(name: str, num_customers: int, count: int) -> Instances[Tensor]:
    return sample(name, num_customers, count, seed=17, dtype=torch.float64)


def sampler(seed: int) -> Sampler:
    return Sampler(torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("depots", OF_DEPOTS)
def test_likelihoods_and_gradients_equal_those_of_a_stepwise_loop(depots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every variant, two instances each."""
    policy = policy_in_double()
    instances = in_double(mixed(OF_DEPOTS[depots], 6))
    monkeypatch.setitem(scoring.QUERIES_PER_CHUNK, "cpu", 32 * len(instances))  # several chunks
    environment = Environment(instances)
    starts = multi_start(environment)
    engines = (ReferenceEngine(), ParallelEngine(), ParallelEngine(graphed=True))
    gradients, coefficients = [], None
    source = sampler(2)
    for engine in engines:
        policy.zero_grad()
        encoding = policy.encode(instances)
        leaf = encoding.embeddings.detach().requires_grad_()
        for _ in range(2):  # a graph is captured when a shape occurs again
            source.generator.manual_seed(2)
            tours = engine.rollout(policy, leaf.detach(), environment, starts, source, record=True)
        servable = tours.cost.isfinite()  # starts that break a window or limit are dropped
        scored = engine.score(policy, leaf.detach(), instances, tours.decisions)
        torch.testing.assert_close(scored[servable], tours.log_likelihood[servable], rtol=0, atol=1e-10)
        if coefficients is None:
            coefficients = torch.randn(tours.cost.shape, dtype=torch.float64) * servable
            expected = tours
        torch.testing.assert_close(tours.cost, expected.cost, rtol=0, atol=0)
        torch.testing.assert_close(tours.log_likelihood, expected.log_likelihood, rtol=0, atol=1e-10)
        engine.score_gradient(policy, leaf, instances, tours.decisions, coefficients)
        encoding.embeddings.backward(leaf.grad)
        gradients.append({key: value.grad for key, value in policy.named_parameters() if value.grad is not None})
    for found in gradients[1:]:
        assert found.keys() == gradients[0].keys()
        for key, wanted in gradients[0].items():
            torch.testing.assert_close(found[key], wanted, rtol=1e-7, atol=1e-9)


def test_a_replayed_rollout_has_its_cost_and_likelihood() -> None:
    policy = policy_in_double()
    instances = instances_of("OVRPBLTW", 8, 3)
    environment = Environment(instances)
    embeddings = policy.encode(instances).embeddings.detach()
    starts = with_greedy_row(multi_start(environment))
    for engine in (ParallelEngine(), ReferenceEngine()):
        tours = engine.rollout(policy, embeddings, environment, starts, sampler(4), greedy_last=True)
        again = engine.replay(environment, tours.actions, num_free=1)
        assert again.legal.all()
        torch.testing.assert_close(again.cost, tours.cost)
        likelihood = engine.score(policy, embeddings, instances, again.decisions)
        torch.testing.assert_close(likelihood, tours.log_likelihood)


@pytest.mark.parametrize("mixture", ["full", "light"])
def test_a_mixture_in_training_scores_decisions_by_the_noise_that_they_were_made_by(mixture: str) -> None:
    """As the published code does, which scores while it decodes; by other noise another network would learn."""
    config = SMALL.replace(backbone="mvmoe", encoder="shared", mixture=mixture)
    policy = build_policy(config, 3).double().train()
    policy.draw_noise_from(torch.Generator().manual_seed(1))
    instances = instances_of("OVRPBLTW", 8, 3)
    environment = Environment(instances)
    embeddings = policy.encode(instances).embeddings.detach()
    starts, tours = with_greedy_row(multi_start(environment)), []
    for engine in (ReferenceEngine(), ParallelEngine(), ParallelEngine(graphed=True)):
        for seed in (4, 4):
            source = sampler(seed)
            made = engine.rollout(policy, embeddings, environment, starts, source, greedy_last=True, record=True)
            scored = engine.score(policy, embeddings, instances, made.decisions)
            torch.testing.assert_close(scored, made.log_likelihood, rtol=0, atol=1e-10)
            tours.append(made)
        again = engine.replay(environment, made.actions, 1, policy).decisions
        first, second = (engine.score(policy, embeddings, instances, again) for _ in range(2))
        assert torch.equal(first, second)
        assert not torch.allclose(first, made.log_likelihood, atol=1e-3)
    assert not torch.equal(tours[0].log_likelihood, tours[1].log_likelihood)


def test_the_greedy_row_equals_greedy_decoding_and_chooses_its_first_customer() -> None:
    policy = policy_in_double()
    instances = instances_of("VRPL", 8, 4)
    environment = Environment(instances)
    embeddings = policy.encode(instances).embeddings.detach()
    starts = with_greedy_row(multi_start(environment))
    mixed = ParallelEngine().rollout(policy, embeddings, environment, starts, sampler(0), greedy_last=True)
    greedy = ParallelEngine().rollout(policy, embeddings, environment, starts[-1:])
    length = min(mixed.actions.shape[2], greedy.actions.shape[2])
    assert torch.equal(mixed.actions[:, -1, :length], greedy.actions[:, 0, :length])
    torch.testing.assert_close(mixed.cost[:, -1], greedy.cost[:, 0])


def test_replaying_an_illegal_tour_says_so() -> None:
    instances = instances_of("CVRP", 20, 1)
    environment = Environment(instances)
    one_route = pad_actions([[list(range(1, 21))]])
    assert not ParallelEngine().replay(environment, one_route).legal.any()


@pytest.mark.parametrize("level", ["parallel", "fused"])
def test_backward_passes_run_without_autocast(level: str) -> None:
    """Under it the float32 regions of the decoder would get bfloat16 gradients."""
    policy = build_policy(SMALL.replace(heads=2), 3)
    instances = sample("CVRP", 4, 1, seed=17)
    environment = Environment(instances)
    engine, states = make_engine(policy, 5, level), []
    policy.decoder.head.register_full_backward_hook(lambda *_: states.append(torch.is_autocast_enabled("cpu")))
    with torch.autocast("cpu", torch.bfloat16):
        leaf = policy.encode(instances).embeddings.detach().requires_grad_()
        tours = engine.rollout(policy, leaf.detach().float(), environment, multi_start(environment)[:2], record=True)
        engine.score_gradient(policy, leaf, instances, tours.decisions, torch.ones(1, 2))
    assert states == [False]


def test_samples_follow_the_probabilities() -> None:
    policy = policy_in_double()
    instances = instances_of("CVRP", 4, 1)
    environment = Environment(instances)
    embeddings = policy.encode(instances).embeddings.detach()
    cache = policy.cache(embeddings, instances)
    starts = torch.zeros(20_000, 1, dtype=torch.int64)
    tours = ParallelEngine().rollout(policy, embeddings, environment, starts, sampler(9))
    state = environment.step(environment.reset(1), torch.zeros(1, 1, dtype=torch.int64))
    log_probs, _ = policy.log_probs(cache, state.current, environment.features(state), state.mask)
    probabilities = log_probs.exp()[0, 0]
    observed = torch.bincount(tours.actions[0, :, 1], minlength=5).double()
    expected = probabilities * 20_000
    assert observed[0] == 0
    chi_squared = ((observed - expected)[1:] ** 2 / expected[1:]).sum()
    assert chi_squared < 16.3  # 3 degrees of freedom, p = 0.001


@pytest.mark.parametrize("depots", OF_DEPOTS)
def test_sampled_and_greedy_tours_pass_the_exact_checker(depots: int) -> None:
    """Of every variant, two instances each."""
    arrays = mixed_arrays(OF_DEPOTS[depots], 20, seed=23)
    instances = to_tensors(arrays)
    policy = build_policy(SMALL, 1)
    environment = Environment(instances)
    embeddings = policy.encode(instances).embeddings.detach()
    for source in (None, sampler(1)):
        tours = ParallelEngine().rollout(policy, embeddings, environment, multi_start(environment), source)
        assert tours.cost.isfinite().any(1).all()
        for index in range(len(arrays)):
            for actions, cost in zip(tours.actions[index].tolist(), tours.cost[index].tolist(), strict=True):
                if cost == float("inf"):
                    continue
                flat = flat_actions(actions, arrays.num_depots)
                report = check_tour(arrays, index, flat, time_tolerance=1e-5)
                assert report.first_problem is None
                assert cost == pytest.approx(report.cost, abs=1e-4)


def test_illegal_starts_of_several_depots_cost_infinity() -> None:
    instances = sample("MDVRPLTW", 50, 50)
    environment = Environment(instances)
    policy = build_policy(SMALL, 1)
    engine, embeddings = ParallelEngine(), policy.encode(instances).embeddings.detach()
    tours = engine.rollout(policy, embeddings, environment, multi_start(environment))
    dropped = tours.cost.isinf().float()
    assert not dropped[:, :50].any()  # every customer can be served from depot 0
    assert 0.02 < dropped.mean() < 0.04  # 2.9 to 3.0 % over the whole test set
    legal = engine.replay(environment, tours.actions).legal
    assert torch.equal(legal, tours.cost.isfinite())


def test_mixed_batches_share_one_pass() -> None:
    """A batch of all training variants gives each instance what it gets alone."""
    policy = policy_in_double()
    instances = in_double(drawn(8, 6, seed=8))
    environment = Environment(instances)
    embeddings = policy.encode(instances).embeddings.detach()
    engine = ParallelEngine()
    together = engine.rollout(policy, embeddings, environment, multi_start(environment))
    for index in range(len(instances)):
        one = instances[index : index + 1]
        alone = Environment(one)
        tours = engine.rollout(policy, policy.encode(one).embeddings.detach(), alone, multi_start(alone))
        torch.testing.assert_close(tours.cost[0], together.cost[index])


def test_parts_of_a_batch_draw_what_the_whole_draws() -> None:
    policy = policy_in_double()
    instances = in_double(drawn(8, 5, seed=8))
    whole = Environment(instances)
    starts, engine = multi_start(whole), ParallelEngine()
    embeddings = policy.encode(instances).embeddings.detach()
    together = engine.rollout(policy, embeddings, whole, starts, sampler(3))
    for first, last in ((0, 2), (2, 5)):
        part = Environment(instances[first:last])
        source = Sampler(torch.Generator().manual_seed(3), first, 5)
        tours = engine.rollout(policy, embeddings[first:last], part, starts, source)
        length = min(tours.actions.shape[2], together.actions.shape[2])
        assert torch.equal(tours.actions[..., :length], together.actions[first:last, :, :length])


def test_a_graphed_rollout_takes_new_instances_and_new_parameters() -> None:
    policy, engine = policy_in_double(), ParallelEngine(graphed=True)
    for seed in range(4):
        instances = in_double(drawn(8, 3, seed))
        environment = Environment(instances)
        embeddings, starts = policy.encode(instances).embeddings.detach(), multi_start(environment)
        wanted = ParallelEngine().rollout(policy, embeddings, environment, starts)
        found = engine.rollout(policy, embeddings, environment, starts)
        assert torch.equal(found.cost, wanted.cost)
        torch.testing.assert_close(found.log_likelihood, wanted.log_likelihood)
        with torch.no_grad():
            policy.decoder.query.weight.mul_(1.1)


def test_greedy_rollouts_go_on_where_steps_cannot_be_captured(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What a failed capture drew from is of no use any more, so rollouts that sample are made again by the training."""

    def refuse(self: CapturedCall[None], *arguments: object) -> None:
        raise CaptureError(reason)

    monkeypatch.setattr(CapturedCall, "__init__", refuse)
    policy, instances = policy_in_double(), in_double(drawn(8, 3, 0))
    environment = Environment(instances)
    embeddings, starts = policy.encode(instances).embeddings.detach(), multi_start(environment)
    wanted = ParallelEngine(graphed=False).rollout(policy, embeddings, environment, starts)
    reason = "CUDA error: not permitted\nmore"
    engine, strict, scarce = (ParallelEngine(graphed=True) for _ in range(3))
    for _ in range(3):
        found = engine.rollout(policy, embeddings, environment, starts)
        assert torch.equal(found.cost, wanted.cost)
    said = "CUDA error: not permitted; steps of rollouts run one by one from here on"
    assert [record.getMessage() for record in caplog.records] == [said]
    samples = sampler(1)
    strict.rollout(policy, embeddings, environment, starts, samples)
    with pytest.raises(CaptureError):
        strict.rollout(policy, embeddings, environment, starts, samples)
    reason = "CUDA out of memory"
    scarce.rollout(policy, embeddings, environment, starts)
    with pytest.raises(CaptureError, match="out of memory"):  # decoding in smaller parts may help
        scarce.rollout(policy, embeddings, environment, starts)
