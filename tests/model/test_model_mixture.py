"""Mixtures of experts against per-token loops, and the loss that balances them."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.instances import sample
from helpers.model_samples import policy_of, queries, shaken
from polarvrp.errors import ConfigError
from polarvrp.model.mixture import MixtureFeedForward, MixtureOutput, Router
from polarvrp.model.policy import Policy


def tokens(*shape: int) -> Tensor:
    return torch.randn(*shape, 16, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def two_best(scores: list[float]) -> dict[int, float]:
    order = sorted(range(len(scores)), key=lambda e: (-scores[e], e))[:2]
    total = sum(math.exp(scores[e]) for e in order)
    return {e: math.exp(scores[e]) / total for e in order}


def test_evaluation_picks_the_two_best_choices_of_each_token_and_repeats_itself() -> None:
    router = shaken(Router(16).double()).eval()
    x = tokens(2, 5)
    weights, auxiliary = router(x)
    for token, got in zip(x.flatten(0, 1), weights.flatten(0, 1), strict=True):
        wanted = two_best((token @ router.scores).tolist())
        assert got.tolist() == pytest.approx([wanted.get(e, 0.0) for e in range(4)])
    again, auxiliary_again = router(x)
    assert torch.equal(weights, again)
    assert torch.equal(auxiliary, auxiliary_again)


def test_equal_scores_are_taken_in_order() -> None:
    weights, _ = Router(16).eval()(torch.randn(1, 6, 16))
    assert torch.equal(weights, torch.tensor([0.5, 0.5, 0.0, 0.0]).expand(1, 6, 4))


def squared_variation(values: Sequence[float]) -> float:
    mean = sum(values) / 4
    return sum((v - mean) ** 2 for v in values) / 3 / (mean**2 + 1e-10)


def test_balance_loss_in_evaluation_counts_weights_and_tokens() -> None:
    router = shaken(Router(16).double()).eval()
    x = tokens(2, 5)
    picks = [two_best((token @ router.scores).tolist()) for token in x.flatten(0, 1)]
    importance = [sum(pick.get(e, 0.0) for pick in picks) for e in range(4)]
    load = [sum(e in pick for pick in picks) for e in range(4)]
    wanted = 0.001 * (squared_variation(importance) + squared_variation(load))
    assert router(x)[1].item() == pytest.approx(wanted)


def test_balance_loss_in_training_is_the_chance_of_being_picked_under_new_noise() -> None:
    router = shaken(Router(16).double()).train()
    x = tokens(2, 5)
    router.generator = torch.Generator().manual_seed(5)
    weights, auxiliary = router(x)
    noise = torch.randn(10, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    importance, load = [0.0] * 4, [0.0] * 4
    for token, epsilon, got in zip(x.flatten(0, 1), noise, weights.flatten(0, 1), strict=True):
        clean = (token @ router.scores).tolist()
        deviation = [math.log1p(math.exp(v)) + 0.01 for v in (token @ router.deviations).tolist()]
        noisy = [c + s * e for c, s, e in zip(clean, deviation, epsilon.tolist(), strict=True)]
        pick, ranked = two_best(noisy), sorted(noisy, reverse=True)
        assert got.tolist() == pytest.approx([pick.get(e, 0.0) for e in range(4)])
        for e in range(4):
            others = ranked[2] if e in pick else ranked[1]
            load[e] += 0.5 * (1 + math.erf((clean[e] - others) / deviation[e] / math.sqrt(2)))
            importance[e] += pick.get(e, 0.0)
    wanted = 0.001 * (squared_variation(importance) + squared_variation(load))
    assert auxiliary.item() == pytest.approx(wanted)


def test_training_noise_spreads_tokens_that_scores_do_not_tell_apart() -> None:
    router = Router(16).train()
    router.generator = torch.Generator().manual_seed(0)
    weights, auxiliary = router(tokens(4, 500).float())
    share = (weights > 0).double().mean((0, 1))
    assert bool((share - 0.5).abs().max() < 0.05)
    assert 0 <= auxiliary.item() < 1e-4


def test_a_policy_draws_all_routing_noise_from_the_given_generator() -> None:
    policy, instances = policy_of("mvmoe", "shared").train(), sample()
    current, state, mask = queries(instances)
    state_before, results = torch.random.get_rng_state(), []
    for seed in (1, 1, 2):
        policy.draw_noise_from(torch.Generator().manual_seed(seed))
        embeddings = policy.encode(instances).embeddings
        results.append(policy.log_probs(policy.cache(embeddings, instances), current, state, mask)[0])
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    assert torch.equal(torch.random.get_rng_state(), state_before)


def test_feedforward_mixture_equals_a_loop_over_tokens_and_choices() -> None:
    mixture = shaken(MixtureFeedForward(16, 24).double()).eval()
    x = tokens(2, 5)
    got, _ = mixture(x)
    up, bias = mixture.up.weight.chunk(4), mixture.up.bias.chunk(4)
    down = mixture.down.weight.chunk(4, dim=1)
    for token, result in zip(x.flatten(0, 1), got.flatten(0, 1), strict=True):
        wanted = torch.zeros(16, dtype=torch.float64)
        for e, share in two_best((token @ mixture.router.scores).tolist()).items():
            wanted += share * (down[e] @ torch.relu(up[e] @ token + bias[e]) + mixture.down_bias[e])
        torch.testing.assert_close(result, wanted)


def test_output_mixture_equals_a_loop_over_tokens_and_choices() -> None:
    mixture = shaken(MixtureOutput(16).double()).eval()
    x = tokens(2, 5)
    got, _ = mixture(x)
    maps, bias = mixture.maps.weight.chunk(4), mixture.maps.bias.chunk(4)
    for token, result in zip(x.flatten(0, 1), got.flatten(0, 1), strict=True):
        picks = two_best((token @ mixture.router.scores).tolist())
        torch.testing.assert_close(result, sum(share * (maps[e] @ token + bias[e]) for e, share in picks.items()))


def test_stacked_mixtures_route_on_their_own() -> None:
    """Each task expert of a PLE layer holds a whole mixture; side by side they equal one after the other."""
    stacked = shaken(MixtureFeedForward(16, 24, experts=3).double()).eval()
    x = tokens(3, 2, 5)
    got, auxiliary = stacked(x)
    total = 0.0
    for k in range(3):
        alone = MixtureFeedForward(16, 24).double().eval()
        with torch.no_grad():
            alone.router.scores.copy_(stacked.router.scores[k])
            alone.up.weight.copy_(stacked.up.weight[k].T)
            alone.up.bias.copy_(stacked.up.bias[k, 0])
            alone.down.weight.copy_(stacked.down.weight[k].T)
            alone.down_bias.copy_(stacked.down_bias[k, 0])
        result, loss = alone(x[k])
        torch.testing.assert_close(got[k], result)
        total += loss.item()
    assert auxiliary.item() == pytest.approx(total)


@pytest.mark.parametrize(("backbone", "encoder", "mixtures"), [("mvmoe", "shared", 2), ("mvmoe_ablation", "ple", 8)])
def test_losses_of_all_layers_are_summed(backbone: str, encoder: str, mixtures: int) -> None:
    policy = shaken(policy_of(backbone, encoder)).eval()
    losses = []
    for module in policy.stack.modules():
        if isinstance(module, MixtureFeedForward):
            module.register_forward_hook(lambda _, __, output: losses.append(output[1]))
    encoding = policy.encode(sample())
    torch.testing.assert_close(encoding.auxiliary_loss, torch.stack(losses).sum())
    routers = [module for module in policy.stack.modules() if isinstance(module, Router)]
    assert sum(1 if router.scores.dim() == 2 else len(router.scores) for router in routers) == mixtures


def test_weights_start_within_the_bounds_of_each_choice() -> None:
    mixture = MixtureFeedForward(16, 64)
    for parameter, fan_in in ((mixture.up.weight, 16), (mixture.down.weight, 64), (mixture.down_bias, 64)):
        assert 0.9 * fan_in**-0.5 < parameter.abs().max() <= fan_in**-0.5


def light_policy() -> Policy:
    policy = policy_of("mvmoe", "shared", mixture="light", dtype=torch.float64)
    with torch.no_grad():
        policy.decoder.head.gate.weight.mul_(30)  # so that instances differ in their choice
    return shaken(policy)


def test_the_light_head_takes_the_more_probable_map_of_each_instance_and_scales_it() -> None:
    head = light_policy().decoder.head
    heads = tokens(4, 5).reshape(4, 5, 2, 8).repeat(1, 1, 1, 2)  # [B, M, H, D]
    choice = torch.tensor([[0.9, 0.1], [0.3, 0.7], [0.5, 0.5], [0.6, 0.4]], dtype=torch.float64)
    got, auxiliary = head(heads, None, None, 1.0, torch.empty(4, 5, 0), choice)
    x = heads.flatten(-2)
    mixed, whole = head.mixture(x)
    torch.testing.assert_close(got[0], 0.9 * head.dense(x)[0])
    torch.testing.assert_close(got[1], 0.7 * mixed[1])
    torch.testing.assert_close(got[2], 0.5 * mixed[2])
    torch.testing.assert_close(got[3], 0.6 * head.dense(x)[3])
    torch.testing.assert_close(auxiliary, whole / 2)


def test_the_light_head_draws_each_decision_by_its_probabilities() -> None:
    head: Any = light_policy().decoder.head.train()
    heads = tokens(40, 100).reshape(40, 100, 2, 8).repeat(1, 1, 1, 2)
    choice = torch.tensor([[0.8, 0.2]], dtype=torch.float64).expand(40, 2)
    noise = torch.randn(40, 100, head.num_noise, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    got, _ = head(heads, None, None, 1.0, noise, choice)
    dense = (got - 0.8 * head.dense(heads.flatten(-2))).abs().amax(2) < 1e-12
    assert 0.77 < dense.double().mean() < 0.83
    assert 0 < dense.double().mean(1).amin() < dense.double().mean(1).amax() < 1


def test_the_light_gate_learns_and_does_not_depend_on_what_is_scored_together() -> None:
    policy, instances = light_policy(), sample(dtype=torch.float64)
    current, state, mask = queries(instances)
    cache = policy.cache(policy.encode(instances).embeddings, instances)
    together, _ = policy.log_probs(cache, current, state, mask)
    part, _ = policy.log_probs(cache, current[:, :2], state[:, :2], mask[:, :2])
    torch.testing.assert_close(together[:, :2], part)
    together[mask].sum().backward()
    assert policy.decoder.head.gate.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backbone": "polarnet", "mixture": "light"}, "has no option mixture"),
        ({"backbone": "mvmoe_ablation", "encoder": "shared", "mixture": "light", "head": "gated"}, "plain head"),
    ],
)
def test_the_light_form_is_refused_where_it_has_no_place(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        policy_of(**options)


def test_a_light_policy_repeats_itself_with_its_noise_and_learns_in_training() -> None:
    policy, instances = light_policy().train(), sample(dtype=torch.float64)
    current, state, mask = queries(instances)
    results = []
    for _ in range(2):
        policy.draw_noise_from(torch.Generator().manual_seed(1))
        cache = policy.cache(policy.encode(instances).embeddings, instances)
        results.append(policy.log_probs(cache, current, state, mask)[0])
    assert torch.equal(results[0], results[1])
    results[1][mask].sum().backward()
    assert policy.decoder.head.gate.weight.grad.abs().sum() > 0
