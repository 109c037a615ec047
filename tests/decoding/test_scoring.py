"""Scoring all decisions in one parallel pass equals walking through the environment with an autograd graph."""

import pytest
import torch
from torch import Tensor

from polarvrp.config import ModelConfig
from polarvrp.decoding import scoring
from polarvrp.decoding.rollout import multi_start, pad_actions, replay, rollout, with_greedy_row
from polarvrp.decoding.scoring import score, score_gradient
from polarvrp.decoding.steps import StepRecorder
from polarvrp.environment.environment import Environment
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy
from polarvrp.problem.datasets import instances_from_arrays
from polarvrp.problem.instances import Instances, to_arrays, to_tensors
from polarvrp.problem.numpy_generator import generate_arrays
from polarvrp.problem.torch_generator import generate_batch
from polarvrp.problem.tours import check_tour, flat_actions
from polarvrp.problem.variants import VARIANTS, parse_variant

SMALL = ModelConfig(width=32, heads=4, layers=2, feedforward_width=32)


def policy_in_double(seed: int = 3) -> Policy:
    return build_policy(SMALL, seed).double()


def instances_of(name: str, num_customers: int, count: int) -> Instances[Tensor]:
    arrays = generate_arrays(parse_variant(name), num_customers, count, seed=17)
    return to_tensors(instances_from_arrays(arrays), dtype=torch.float64)


def stepwise_log_likelihood(policy: Policy, environment: Environment, actions: Tensor, num_forced: int) -> Tensor:
    """Log-likelihoods with their graph: encode, then one decoder call an action, as the definition says."""
    instances = environment.instances
    cache = policy.cache(policy.encode(instances).embeddings, instances)
    state = environment.reset(actions.shape[1])
    total = torch.zeros(actions.shape[:2], dtype=torch.float64)
    for index in range(actions.shape[2]):
        log_probs, _ = policy.log_probs(cache, state.current, environment.features(state), state.mask)
        chosen = log_probs.gather(-1, actions[:, :, index, None]).squeeze(-1)
        counts = ~environment.all_served(state) & (index >= num_forced)
        total = total + torch.where(counts, chosen, torch.zeros_like(chosen))
        state = environment.step(state, actions[:, :, index])
    return total


@pytest.mark.parametrize("name", VARIANTS)
def test_likelihoods_and_gradients_equal_those_of_a_stepwise_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(scoring.QUERIES_PER_CHUNK, "cpu", 64)  # several chunks
    policy = policy_in_double()
    instances = instances_of(name, 6, 2)
    environment = Environment(instances)
    encoding = policy.encode(instances)
    starts = multi_start(environment)
    recorder = StepRecorder(environment)
    with torch.no_grad():
        cache = policy.cache(encoding.embeddings, instances)
    generator = torch.Generator().manual_seed(2)
    tours = rollout(policy, cache, environment, starts, generator=generator, recorder=recorder)
    steps = recorder.pack()
    servable = tours.cost.isfinite()  # starts that break a window or limit are dropped

    expected = stepwise_log_likelihood(policy, environment, tours.actions, starts.shape[1])
    torch.testing.assert_close(tours.log_likelihood[servable], expected[servable].detach(), rtol=0, atol=1e-10)
    scored = score(policy, encoding.embeddings.detach(), instances, steps)
    torch.testing.assert_close(scored[servable], expected[servable].detach(), rtol=0, atol=1e-10)

    coefficients = torch.randn(tours.cost.shape, generator=generator, dtype=torch.float64) * servable
    policy.zero_grad()
    torch.where(servable, expected, 0.0).mul(coefficients).sum().backward()
    wanted = {key: parameter.grad.clone() for key, parameter in policy.named_parameters() if parameter.grad is not None}
    policy.zero_grad()
    leaf = encoding.embeddings.detach().requires_grad_()
    score_gradient(policy, leaf, instances, steps, coefficients)
    encoding.embeddings.backward(leaf.grad)
    for key, parameter in policy.named_parameters():
        if key in wanted:
            torch.testing.assert_close(parameter.grad, wanted[key], rtol=1e-7, atol=1e-9)


def test_a_replayed_rollout_has_its_cost_and_likelihood() -> None:
    policy = policy_in_double()
    instances = instances_of("OVRPBLTW", 8, 3)
    environment = Environment(instances)
    embeddings = policy.encode(instances).embeddings.detach()
    tours = rollout(
        policy,
        policy.cache(embeddings, instances),
        environment,
        with_greedy_row(multi_start(environment)),
        generator=torch.Generator().manual_seed(4),
        greedy_last=True,
    )
    again = replay(environment, tours.actions, num_free=1)
    assert again.legal.all()
    torch.testing.assert_close(again.cost, tours.cost)
    torch.testing.assert_close(score(policy, embeddings, instances, again.steps), tours.log_likelihood)


def test_the_greedy_row_equals_greedy_decoding_and_chooses_its_first_customer() -> None:
    policy = policy_in_double()
    instances = instances_of("VRPL", 8, 4)
    environment = Environment(instances)
    cache = policy.cache(policy.encode(instances).embeddings.detach(), instances)
    starts = with_greedy_row(multi_start(environment))
    mixed = rollout(policy, cache, environment, starts, generator=torch.Generator().manual_seed(0), greedy_last=True)
    greedy = rollout(policy, cache, environment, starts[-1:])
    length = min(mixed.actions.shape[2], greedy.actions.shape[2])
    assert torch.equal(mixed.actions[:, -1, :length], greedy.actions[:, 0, :length])
    torch.testing.assert_close(mixed.cost[:, -1], greedy.cost[:, 0])


def test_replaying_an_illegal_tour_says_so() -> None:
    instances = instances_of("CVRP", 20, 1)
    environment = Environment(instances)
    one_route = pad_actions([[list(range(1, 21))]], torch.device("cpu"))
    assert not replay(environment, one_route).legal.any()


def test_samples_follow_the_probabilities() -> None:
    policy = policy_in_double()
    instances = instances_of("CVRP", 4, 1)
    environment = Environment(instances)
    cache = policy.cache(policy.encode(instances).embeddings.detach(), instances)
    starts = torch.zeros(20_000, 1, dtype=torch.int64)
    tours = rollout(policy, cache, environment, starts, generator=torch.Generator().manual_seed(9))
    state = environment.step(environment.reset(1), torch.zeros(1, 1, dtype=torch.int64))
    log_probs, _ = policy.log_probs(cache, state.current, environment.features(state), state.mask)
    probabilities = log_probs.exp()[0, 0]
    observed = torch.bincount(tours.actions[0, :, 1], minlength=5).double()
    expected = probabilities * 20_000
    assert observed[0] == 0
    chi_squared = ((observed - expected)[1:] ** 2 / expected[1:]).sum()
    assert chi_squared < 16.3  # 3 degrees of freedom, p = 0.001


@pytest.mark.parametrize("name", VARIANTS)
def test_sampled_and_greedy_tours_pass_the_exact_checker(name: str) -> None:
    arrays = instances_from_arrays(generate_arrays(parse_variant(name), 20, 2, seed=23))
    instances = to_tensors(arrays)
    policy = build_policy(SMALL, 1)
    environment = Environment(instances)
    with torch.no_grad():
        cache = policy.cache(policy.encode(instances).embeddings, instances)
    for generator in (None, torch.Generator().manual_seed(1)):
        tours = rollout(policy, cache, environment, multi_start(environment), generator=generator)
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
    instances = to_tensors(instances_from_arrays(generate_arrays(parse_variant("MDVRPLTW"), 50, 50, seed=1234)))
    environment = Environment(instances)
    policy = build_policy(SMALL, 1)
    with torch.no_grad():
        cache = policy.cache(policy.encode(instances).embeddings, instances)
    tours = rollout(policy, cache, environment, multi_start(environment))
    dropped = tours.cost.isinf().float()
    assert not dropped[:, :50].any()  # every customer can be served from depot 0
    assert 0.02 < dropped.mean() < 0.04  # 2.9 to 3.0 % over the whole test set
    legal = replay(environment, tours.actions).legal
    assert torch.equal(legal, tours.cost.isfinite())


def test_mixed_batches_share_one_pass() -> None:
    """A batch of all training variants gives each instance what it gets alone."""
    policy = policy_in_double()
    instances = generate_batch(8, 6, torch.Generator().manual_seed(8), "cpu")
    instances = to_tensors(to_arrays(instances), dtype=torch.float64)
    environment = Environment(instances)
    embeddings = policy.encode(instances).embeddings.detach()
    together = rollout(policy, policy.cache(embeddings, instances), environment, multi_start(environment))
    for index in range(len(instances)):
        one = instances[index : index + 1]
        alone = Environment(one)
        cache = policy.cache(policy.encode(one).embeddings.detach(), one)
        tours = rollout(policy, cache, alone, multi_start(alone))
        torch.testing.assert_close(tours.cost[0], together.cost[index])
