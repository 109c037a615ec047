"""The pointer decoder against a plain version for one query, its states, masks, ramp and precision."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from helpers.instances import sample
from helpers.model_samples import policy_of, queries, shaken
from polarvrp.catalog.backbones import BACKBONES
from polarvrp.config.architectures import architecture_of
from polarvrp.config.model import ModelConfig
from polarvrp.model.decoder import DecoderCache, log_distances
from polarvrp.model.policy import Policy


def plain_version(
    policy: Any,
    rows: Tensor,
    instance_limit: float,
    locs: Tensor,
    current: int,
    state: Tensor,
    mask: Tensor,
    ramp: float | Tensor = 1.0,
) -> Tensor:
    """Log-probabilities of one query, given its instance's embeddings, by loops over heads and nodes."""
    decoder = policy.decoder
    width, heads = rows.shape[-1], decoder.heads
    node = rows[current]
    free_linehaul, free_backhaul, time, length, open_route = state.tolist()
    free = free_linehaul if free_backhaul == 1 else free_backhaul
    left = 10.0 if math.isinf(instance_limit) else instance_limit - length
    chosen = {
        "full": [free_linehaul, free_backhaul, time, length, open_route],
        "remaining_open": [free, time, open_route, left],
        "remaining": [free, time, left],
    }[decoder.state]
    features = torch.tensor(chosen, dtype=rows.dtype)
    context = torch.cat((node, features))
    query = decoder.query.weight @ context
    parts = (rows @ decoder.keys_values.weight.T).split(width, dim=-1)
    feasible = [i for i in range(len(rows)) if mask[i]]
    size, glimpse = width // heads, []
    for h in range(heads):
        span = slice(h * size, (h + 1) * size)
        seen = feasible if decoder.glimpse_mask == "hard" else range(len(rows))
        bonus = 1.0 if decoder.glimpse_mask == "plus_one" else 0.0
        scores = [query[span] @ parts[0][i, span] / size**0.5 + (bonus if mask[i] else 0.0) for i in seen]
        weights = torch.softmax(torch.stack(scores), 0)
        glimpse.append(sum(w * parts[1][i, span] for w, i in zip(weights, seen, strict=True)))
    pointer = HEADS[type(decoder.head).__name__](decoder.head, glimpse, context, node, features, ramp)
    keys = parts[2] if decoder.map_logit_keys else rows
    logits = torch.stack([10 * torch.tanh(pointer @ keys[i] / width**0.5) for i in feasible])
    if type(decoder.head).__name__ == "ReldHead":
        distances = [float((locs[current] - locs[i]).norm()) for i in feasible]
        logits = logits - torch.tensor([math.log(x) if x > 0 else 0.0 for x in distances], dtype=rows.dtype)
    result = torch.full((len(rows),), -math.inf, dtype=rows.dtype)
    result[feasible] = logits - torch.logsumexp(logits, 0)
    return result


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).mean() + 1e-5) * weight


def plain_head(
    head: Any, glimpse: list[Tensor], context: Tensor, node: Tensor, features: Tensor, ramp: float | Tensor
) -> Tensor:
    output = head.output
    y = torch.cat(glimpse)
    return output.weight @ y + (0 if output.bias is None else output.bias)


def gated_head(
    head: Any, glimpse: list[Tensor], context: Tensor, node: Tensor, features: Tensor, ramp: float | Tensor
) -> Tensor:
    gates = 1 / (1 + torch.exp(-(head.gate.weight @ context)))
    gated = head.output.weight @ torch.cat([g * y for g, y in zip(gates, glimpse, strict=True)]) + head.output.bias
    v = rms(node + head.state.weight @ features + gated, head.norm_glimpse.weight)
    first, second = (head.feedforward.gate_up.weight @ v).chunk(2)
    hidden = first / (1 + torch.exp(-first)) * second
    full = rms(v + head.feedforward.down.weight @ hidden, head.norm_output.weight)
    plain = plain_head(head, glimpse, context, node, features, ramp)
    return plain + ramp * (full - plain)


def reld_head(
    head: Any, glimpse: list[Tensor], context: Tensor, node: Tensor, features: Tensor, ramp: float | Tensor
) -> Tensor:
    u = plain_head(head, glimpse, context, node, features, ramp) + ramp * (node + head.state.weight @ features)
    up = head.feedforward.up
    hidden = torch.relu(up.weight @ u + up.bias)
    return u + ramp * (head.feedforward.down.weight @ hidden + head.feedforward.down.bias)


HEADS = {"PlainHead": plain_head, "GatedHead": gated_head, "ReldHead": reld_head}

DECODERS: list[tuple[str, str, dict[str, Any]]] = [
    ("polarnet", "ple", {}),
    ("mtpomo_ablation", "shared", {}),
    ("mtpomo_ablation", "shared", {"glimpse_mask": "hard"}),
    ("cada", "shared", {"glimpse_mask": "none"}),
    ("mtpomo", "shared", {}),
    ("routefinder", "shared", {}),
    ("moses", "shared", {"adapters": "none"}),
    ("filmmed", "shared", {"head": "reld"}),
]


@pytest.mark.parametrize(("backbone", "encoder", "options"), DECODERS)
@pytest.mark.parametrize("variant", ["CVRP", "OVRPBLTW"])
@pytest.mark.parametrize("ramp", [0.0, 0.4, 1.0])
def test_log_probabilities_equal_a_plain_version(
    backbone: str, encoder: str, options: dict[str, Any], variant: str, ramp: float
) -> None:
    policy = shaken(policy_of(backbone, encoder, dtype=torch.float64, **options))
    policy.ramp = ramp
    instances = sample(variant, dtype=torch.float64)
    with torch.no_grad():
        embeddings = policy.encode(instances).embeddings
        current, state, mask = queries(instances)
        got, auxiliary = policy.log_probs(policy.cache(embeddings, instances), current, state, mask)
        assert auxiliary == 0
        for b in range(len(instances)):
            limit, locs = float(instances.distance_limit[b]), instances.locs[b]
            for m in range(current.shape[1]):
                query = int(current[b, m]), state[b, m], mask[b, m]
                wanted = plain_version(policy, embeddings[b], limit, locs, *query, ramp)
                torch.testing.assert_close(got[b, m], wanted, rtol=1e-9, atol=1e-9)


def test_masked_nodes_are_impossible_and_the_others_sum_to_one() -> None:
    for backbone, encoder, options in DECODERS:
        policy, instances = policy_of(backbone, encoder, **options), sample()
        current, state, mask = queries(instances)
        cache = policy.cache(policy.encode(instances).embeddings, instances)
        probabilities = policy.log_probs(cache, current, state, mask)[0].exp()
        assert bool((probabilities[~mask] == 0).all())
        torch.testing.assert_close(probabilities.sum(-1), torch.ones(3, 5))


def test_a_single_feasible_node_is_certain_and_passes_no_gradient() -> None:
    policy, instances = policy_of(), sample()
    current, state, mask = queries(instances)
    mask = torch.zeros_like(mask)
    mask[..., 2] = True
    embeddings = policy.encode(instances).embeddings.detach().requires_grad_()
    log_probs, _ = policy.log_probs(policy.cache(embeddings, instances), current, state, mask)
    log_probs[..., 2].sum().backward()
    assert bool((log_probs[..., 2] == 0).all())
    assert bool((embeddings.grad == 0).all())


def test_ramp_zero_is_the_plain_head_and_a_tensor_ramp_equals_a_number() -> None:
    gated, instances = shaken(policy_of()), sample()
    plain = policy_of("polarnet", "ple", head="plain")
    plain.load_state_dict(gated.state_dict(), strict=False)
    current, state, mask = queries(instances)

    def result(policy: Policy, ramp: float | Tensor) -> Tensor:
        policy.ramp = ramp
        return policy.log_probs(policy.cache(policy.encode(instances).embeddings, instances), current, state, mask)[0]

    torch.testing.assert_close(result(gated, 0.0), result(plain, 1.0))
    torch.testing.assert_close(result(gated, torch.tensor(0.3)), result(gated, 0.3))
    torch.testing.assert_close(result(gated, torch.tensor(1.0)), result(gated, 1.0))
    assert (result(gated, 1.0) - result(gated, 0.0)).exp().nan_to_num().max() > 1.01


def test_queries_of_an_instance_do_not_see_each_other() -> None:
    policy, instances = policy_of(), sample()
    current, state, mask = queries(instances)
    embeddings = policy.encode(instances).embeddings
    cache = policy.cache(embeddings, instances)
    together, _ = policy.log_probs(cache, current, state, mask)
    alone = [policy.log_probs(cache, current[:, [m]], state[:, [m]], mask[:, [m]])[0] for m in range(5)]
    torch.testing.assert_close(together, torch.cat(alone, dim=1))
    subset, _ = policy.log_probs(policy.cache(embeddings[1:], instances[1:]), current[1:], state[1:], mask[1:])
    torch.testing.assert_close(together[1:], subset)


@pytest.mark.parametrize("size", [50, 100])
@pytest.mark.parametrize("name", BACKBONES)
def test_the_glimpse_mask_is_that_of_the_authors(name: str, size: int) -> None:
    """CaDA and the paper's forms of MTPOMO and MVMoE add the mask to the scores; a setting says otherwise."""
    wanted = "plus_one" if name in {"cada", "mtpomo_ablation", "mvmoe_ablation"} else "hard"
    for encoder in BACKBONES[name].encoders:
        config = ModelConfig(backbone=name, encoder=encoder, num_customers=size)
        assert architecture_of(config).decoder.glimpse_mask == wanted
        for choice in ("hard", "plus_one", "none"):
            assert architecture_of(config.model_copy(update={"glimpse_mask": choice})).decoder.glimpse_mask == choice


@pytest.mark.parametrize("glimpse_mask", ["hard", "plus_one", "none"])
def test_what_the_glimpse_sees_of_infeasible_nodes(glimpse_mask: str) -> None:
    policy, instances = shaken(policy_of(glimpse_mask=glimpse_mask)), sample()
    current, state, mask = queries(instances)
    current, mask[..., -1] = torch.zeros_like(current), False
    embeddings = policy.encode(instances).embeddings.detach()
    changed = embeddings.clone()
    changed[:, -1] += 1.0
    before, after = (
        policy.log_probs(policy.cache(e, instances), current, state, mask)[0] for e in (embeddings, changed)
    )
    assert torch.equal(before, after) is (glimpse_mask == "hard")


def test_gradients_in_float64_are_those_of_finite_differences() -> None:
    policy, instances = policy_of(dtype=torch.float64, width=8, heads=1, feedforward_width=8), sample(count=2)
    current, state, mask = queries(instances, count=3)
    embeddings = policy.encode(instances).embeddings.detach().requires_grad_()

    def feasible(embeddings: Tensor) -> Tensor:
        return policy.log_probs(policy.cache(embeddings, instances), current, state.double(), mask)[0][mask]

    assert torch.autograd.gradcheck(feasible, embeddings)


def test_the_pointer_computes_in_float32_under_autocast() -> None:
    policy, instances = policy_of(), sample()
    current, state, mask = queries(instances)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        encoding = policy.encode(instances)
        cache = policy.cache(encoding.embeddings, instances)
        log_probs, _ = policy.log_probs(cache, current, state, mask)
    assert cache.keys.dtype == torch.bfloat16
    assert cache.logit_keys.dtype == log_probs.dtype == torch.float32
    exact = policy.log_probs(policy.cache(policy.encode(instances).embeddings, instances), current, state, mask)[0]
    assert (log_probs - exact)[mask].abs().max() < 0.2
    assert (log_probs - log_probs.bfloat16().float())[mask].abs().max() > 0


def test_log_distances_of_coinciding_nodes_are_zero() -> None:
    locs = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [3.0, 4.0]]])
    got = log_distances(locs)[0]
    five = math.log(5)
    torch.testing.assert_close(got, torch.tensor([[0.0, five, five], [five, 0.0, 0.0], [five, 0.0, 0.0]]))


def test_a_gpu_plans_no_attention_for_each_number_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN would, and scored decisions have another number in every step."""
    allowed: list[bool] = []

    def attend(query: Tensor, *_: Tensor) -> Tensor:
        allowed.append(torch.backends.cuda.cudnn_sdp_enabled())
        return query

    monkeypatch.setattr(functional, "scaled_dot_product_attention", attend)
    heads, mask = torch.zeros(3, 2, 5, 16, device="meta"), torch.ones(3, 5, 5, dtype=torch.bool, device="meta")
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]):
        policy_of().decoder._glimpse(heads, DecoderCache(heads, heads, heads, heads, heads), mask)
        assert torch.backends.cuda.cudnn_sdp_enabled()
    assert allowed == [False]
