"""Properties that every encoder has, and the parts of PLE against plain versions."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.instances import mixed, sample
from helpers.model_samples import policy_of, queries, shaken
from polarvrp.analysis.experts import layer_updates
from polarvrp.model.linear import Linear
from polarvrp.model.registry import available
from polarvrp.problem.instances import Instances
from polarvrp.problem.variants import VARIANTS

PLE_BACKBONES = [name for name, encoder in available() if encoder == "ple"]


def permuted(instances: Instances[Tensor], order: list[int]) -> Instances[Tensor]:
    """The same instances with their nodes in another order."""
    names = ("locs", "demand_linehaul", "demand_backhaul", "time_windows", "service_time")
    return dataclasses.replace(instances, **{name: getattr(instances, name)[:, order] for name in names})


@pytest.mark.parametrize(("backbone", "encoder"), available())
@pytest.mark.parametrize(("variant", "num_depots"), [("OVRPBLTW", 1), ("MDOVRPMBLTW", 3)])
def test_embeddings_follow_their_nodes(backbone: str, encoder: str, variant: str, num_depots: int) -> None:
    policy, instances = shaken(policy_of(backbone, encoder, dtype=torch.float64)), sample(variant, dtype=torch.float64)
    depots, customers = list(range(num_depots)), list(range(num_depots, num_depots + 7))
    order = depots[::-1] + [customers[i] for i in (3, 0, 6, 1, 5, 2, 4)]
    before = policy.encode(instances).embeddings
    after = policy.encode(permuted(instances, order)).embeddings
    torch.testing.assert_close(after, before[:, order])
    swapped = [num_depots, *range(1, num_depots), 0, *customers[1:]]
    assert (policy.encode(permuted(instances, swapped)).embeddings - before[:, swapped]).abs().max() > 1e-6


@pytest.mark.parametrize(("backbone", "encoder"), available())
def test_nothing_infinite_gets_past_the_features_of_any_variant(backbone: str, encoder: str) -> None:
    policy = policy_of(backbone, encoder)
    seen = []
    for module in policy.modules():
        if isinstance(module, Linear):
            module.register_forward_pre_hook(lambda _, inputs: seen.append(bool(inputs[0].isfinite().all())))
    for several in (False, True):
        instances = mixed([name for name, variant in VARIANTS.items() if variant.multi_depot is several], count=1)
        current, state, mask = queries(instances)
        for precise in (True, False):
            with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=not precise):
                encoding = policy.encode(instances)
                cache = policy.cache(encoding.embeddings, instances)
                log_probs, _ = policy.log_probs(cache, current, state, mask)
            assert bool(encoding.embeddings.isfinite().all())
            assert bool(log_probs[mask].isfinite().all())
    assert seen
    assert all(seen)


@pytest.mark.parametrize(("backbone", "encoder"), available())
def test_gradients_reach_the_embedding_from_the_policy(backbone: str, encoder: str) -> None:
    options: dict[str, Any] = {"adapters": "none"} if backbone == "moses" else {}
    policy, instances = policy_of(backbone, encoder, **options).train(), sample()
    current, state, mask = queries(instances)
    encoding = policy.encode(instances)
    log_probs, auxiliary = policy.log_probs(policy.cache(encoding.embeddings, instances), current, state, mask)
    (log_probs[mask].sum() + auxiliary + encoding.auxiliary_loss).backward()
    for parameter in policy.embedding.parameters():
        assert parameter.grad is not None
        assert bool(parameter.grad.isfinite().all())
        assert bool((parameter.grad != 0).any())


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # the compiler's own doing
@pytest.mark.parametrize(("backbone", "encoder"), [("polarnet", "ple"), ("mvmoe", "shared"), ("cada", "shared")])
def test_the_hot_path_is_one_graph_without_branches_on_data(backbone: str, encoder: str) -> None:
    torch._dynamo.reset()
    policy, instances = policy_of(backbone, encoder, layers=1), sample()
    current, state, mask = queries(instances)
    encode = torch.compile(policy.encode, backend="eager", fullgraph=True)
    log_probs = torch.compile(policy.log_probs, backend="eager", fullgraph=True)
    with torch.no_grad():
        encoding = encode(instances)
        cache = policy.cache(encoding.embeddings, instances)
        compiled, _ = log_probs(cache, current, state, mask)
        eager, _ = policy.log_probs(cache, current, state, mask)
        torch.testing.assert_close(encoding.embeddings, policy.encode(instances).embeddings)
    torch.testing.assert_close(compiled, eager)


def test_flags_alone_tell_an_absent_limit_from_none_at_all() -> None:
    """Features replace an infinite limit by 0; only a conditioned encoder sees which variant it is."""
    instances = sample("CVRP")
    flags = instances.flags.clone()
    flags[:, 2] = True
    other = dataclasses.replace(instances, flags=flags)
    for encoder, conditioned in (("shared", False), ("ple", True)):
        policy = shaken(policy_of("polarnet", encoder))
        same = torch.equal(policy.encode(instances).embeddings, policy.encode(other).embeddings)
        assert same is not conditioned


def test_masked_flags_of_unseen_attributes_do_not_matter() -> None:
    policy, mixed_backhauls = shaken(policy_of()), sample("VRPMB")
    flags = mixed_backhauls.flags.clone()
    flags[:, 4] = False
    as_trained = dataclasses.replace(mixed_backhauls, flags=flags)
    seen = policy.encode(mixed_backhauls).embeddings
    policy.mask_unseen_flags = True
    hidden = policy.encode(mixed_backhauls).embeddings
    assert torch.equal(hidden, policy.encode(as_trained).embeddings)
    assert not torch.equal(hidden, seen)


def test_mixed_backhauls_may_set_their_own_flag_alone() -> None:
    policy, mixed_backhauls = shaken(policy_of()), sample("VRPMB")
    flags = mixed_backhauls.flags.clone()
    assert flags[:, 3].all() and flags[:, 4].all()
    flags[:, 3] = False
    policy.mb_sets_b = False
    alone = policy.encode(mixed_backhauls).embeddings
    others = [policy.encode(sample(variant)).embeddings for variant in ("VRPB", "OVRPBLTW")]
    policy.mb_sets_b = True
    assert torch.equal(alone, policy.encode(dataclasses.replace(mixed_backhauls, flags=flags)).embeddings)
    assert not torch.equal(alone, policy.encode(mixed_backhauls).embeddings)
    for variant, embeddings in zip(("VRPB", "OVRPBLTW"), others, strict=True):
        assert torch.equal(embeddings, policy.encode(sample(variant)).embeddings)


# --- progressive layered extraction ----------------------------------------------------------------------------------


def test_film_starts_as_the_identity_and_never_touches_depots() -> None:
    film = policy_of(dtype=torch.float64).conditioning.film
    assert film is not None
    x, flags = torch.randn(4, 9, 32, dtype=torch.float64), torch.randint(0, 2, (4, 6)).double()
    assert torch.equal(film(x, flags, 2), x)
    shaken(film)
    moved = film(x, flags, 2)
    assert torch.equal(moved[:, :2], x[:, :2])
    assert bool((moved[:, 2:] != x[:, 2:]).all())


@pytest.mark.parametrize("backbone", PLE_BACKBONES)
def test_gates_are_distributions_and_the_shared_stream_starts_with_a_tenth(backbone: str) -> None:
    policy, instances = policy_of(backbone), mixed(("CVRP", "OVRPBLTW"))
    gates = [update.gate for update in layer_updates(policy, instances)]
    assert [tuple(gate.shape) for gate in gates] == [(4, 4)] * 2
    for gate in gates:
        torch.testing.assert_close(gate.sum(-1), torch.ones(4))
    for layer in policy.stack.layers:
        assert layer.share_logit.sigmoid().item() == pytest.approx(0.1)


def plain_block(block: Any, rows: Tensor, expert: int | None, scale: float) -> Tensor:
    """Pre-norm block on ``[T, d]`` rows without rope, weights of one expert, in the formulas of the paper."""

    def of(linear: Any) -> Tensor:
        return linear.weight.T if expert is None else linear.weight[expert]

    def norm(x: Tensor, module: Any) -> Tensor:
        weight = module.weight if expert is None else module.weight[expert, 0, 0]
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight

    attention, heads = block.attention, block.attention.heads
    q, k, v = (norm(rows, block.norm_attention) @ of(attention.query_key_value)).chunk(3, -1)
    size = q.shape[-1] // heads
    parts = []
    for h in range(heads):
        s = slice(h * size, (h + 1) * size)
        parts.append(torch.softmax(q[:, s] @ k[:, s].T / math.sqrt(size), -1) @ v[:, s])
    bias = attention.output.bias if expert is None else attention.output.bias[expert]
    rows = rows + scale * (torch.cat(parts, -1) @ of(attention.output) + bias)
    gate, up = (norm(rows, block.norm_feedforward) @ of(block.feedforward.gate_up)).chunk(2, -1)
    return rows + scale * ((gate * torch.sigmoid(gate) * up) @ of(block.feedforward.down))


def plain_ple(policy: Any, x: Tensor, prompt: Tensor) -> Tensor:
    """Two-stream stack of one instance, every prompt row carried through every expert in full."""

    def norm(rows: Tensor, weight: Tensor) -> Tensor:
        return rows / torch.sqrt((rows * rows).mean(-1, keepdim=True) + 1e-5) * weight

    stack, nodes = policy.stack, len(x)
    scale, shared, tasks = (2 * len(stack.layers)) ** -0.5, x, x
    for layer in stack.layers:
        shared = norm(plain_block(layer.shared_expert, shared, None, scale), layer.norm_shared.weight)
        hidden = torch.cat((layer.gate.prompt.weight @ prompt.mean(0), shared.mean(0)))
        hidden = torch.relu(layer.gate.hidden.weight @ hidden + layer.gate.hidden.bias)
        gate = torch.softmax(layer.gate.weights.weight @ hidden + layer.gate.weights.bias, 0)
        rows = torch.cat((tasks, prompt))
        mixed_tasks = torch.zeros_like(x)
        for k in range(layer.num_tasks):
            share = gate[k] / gate[: layer.num_tasks].sum()
            mixed_tasks = mixed_tasks + share * plain_block(layer.task_experts, rows, k, scale)[:nodes]
        tasks = norm(mixed_tasks + torch.sigmoid(layer.share_logit) * gate[-1] * shared, layer.norm_tasks.weight)
    fuse, final = stack.fusion
    return norm(torch.cat((shared, tasks), -1) @ fuse.weight.T, final.weight)


@pytest.mark.parametrize("task_experts", [1, 3])
def test_ple_equals_a_plain_version_that_carries_prompt_rows_through_every_expert(task_experts: int) -> None:
    policy = shaken(policy_of(task_experts=task_experts, rope="off", dtype=torch.float64))
    instances = mixed(("CVRP", "OVRPBLTW"))
    with torch.no_grad():
        x = policy.embedding(instances, torch.float64)
        x, prompt = policy.conditioning(x, instances.flags, 1, torch.float64)
        got = policy.encode(instances).embeddings
        for b in range(len(instances)):
            torch.testing.assert_close(got[b], plain_ple(policy, x[b], prompt[b]))


def test_static_prompt_rows_of_a_plain_stack_are_keys_and_values_of_every_block() -> None:
    policy, instances = shaken(policy_of("polarnet", "shared", prompt=True, rope="off", dtype=torch.float64)), sample()
    with torch.no_grad():
        x = policy.embedding(instances, torch.float64)
        x, prompt = policy.conditioning(x, instances.flags, 1, torch.float64)
        rows = x[0]
        for block in policy.stack.blocks:
            rows = plain_block(block, torch.cat((rows, prompt[0])), None, 0.5)[: len(rows)]
        torch.testing.assert_close(policy.encode(instances).embeddings[0], rows)


def test_experts_behind_an_instance_norm_leave_the_gate_nothing_but_flags() -> None:
    """Normalised tokens average to the norm's bias whatever the instance is, so the gate sees constraints only."""
    policy, instances = shaken(policy_of("mtpomo_ablation", dtype=torch.float64)), mixed(("OVRPTW", "VRPBL"), count=3)
    shared = policy.embedding(instances, torch.float64)
    for layer in policy.stack.layers:
        shared, _ = layer.shared_expert(shared)
        bias = layer.shared_expert.norm_feedforward.bias
        torch.testing.assert_close(shared.mean(1), bias.expand(6, -1))
    for update in layer_updates(policy, instances):
        gate = update.gate
        torch.testing.assert_close(gate[0], gate[1])
        torch.testing.assert_close(gate[3], gate[4])
        assert (gate[0] - gate[3]).abs().max() > 1e-6


def test_prompt_rows_count_in_the_statistics_of_instance_norms() -> None:
    policy, instances = shaken(policy_of("mtpomo_ablation", dtype=torch.float64)), sample(dtype=torch.float64)
    experts = policy.stack.layers[0].task_experts
    x = policy.embedding(instances, torch.float64)
    prompt = torch.randn(3, 6, 32, dtype=torch.float64)
    full, _ = experts(torch.cat((x, prompt), dim=1))
    reduced, _ = experts(x, None, prompt)
    torch.testing.assert_close(reduced, full[..., : x.shape[1], :])


@pytest.mark.parametrize("backbone", PLE_BACKBONES)
def test_both_forms_of_ple_fit_every_backbone(backbone: str) -> None:
    for form in ("pre", "post"):
        encoding = policy_of(backbone, ple_form=form).encode(sample())
        assert bool(encoding.embeddings.isfinite().all())
    weights = [layer.norm_tasks for layer in policy_of(backbone, ple_form="post").stack.layers]
    assert weights == [None, None]


# --- initial state ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("encoder", "full"), [("shared", 6.0), ("ple", 9.0)])
def test_the_pointer_starts_saturated_with_the_full_block_and_open_with_the_plain_glimpse(
    encoder: str, full: float
) -> None:
    """Guards norms and initialisation: mean scaled score of feasible nodes as measured on an independent version."""
    policy = policy_of("polarnet", encoder, layers=6, width=128, heads=8, feedforward_width=512)
    instances = mixed(("CVRP", "VRPTW", "OVRPBLTW", "VRPB"), num_customers=50)
    current, state, mask = queries(instances, count=20)
    means, scores = {}, []
    policy.decoder.head.register_forward_hook(lambda _, __, output: scores.append(output[0]))
    for ramp in (0.0, 1.0):
        policy.ramp = ramp
        with torch.no_grad():
            cache = policy.cache(policy.encode(instances).embeddings, instances)
            policy.log_probs(cache, current, state, mask)
        product = scores[-1] @ cache.logit_keys.transpose(1, 2) / math.sqrt(128)
        means[ramp] = float(product[mask].mean())
        slope = float((1 - torch.tanh(product[mask]) ** 2).mean())
        assert slope > 0.8 if ramp == 0 else slope < 0.05, (ramp, slope)
    assert full / 2 < means[1.0] < full * 2
    assert abs(means[0.0]) < 1.0
