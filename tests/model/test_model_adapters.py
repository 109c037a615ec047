"""Low-rank adapters of MoSES: initial identity, formulas, freezing, and the way from one stage to the next."""

import pytest
import torch

from helpers.instances import sample
from helpers.model_samples import policy_of, shaken
from polarvrp.errors import CheckpointMismatchError
from polarvrp.model.adapters import EXPERT_FLAGS, AdaptedLinear, AdaptedNorm, adapters, mix, specialize
from polarvrp.model.linear import Linear
from polarvrp.model.norms import RootMeanSquareNorm
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy


@pytest.fixture
def base() -> Policy:
    return shaken(policy_of("moses", "shared", adapters="none"))


def test_a_fresh_adapter_halves_its_linear_map(base: Policy) -> None:
    x = torch.randn(2, 5, 32)
    for num_experts in (0, 4):
        linear = Linear(32, 96, parts=3)
        torch.testing.assert_close(AdaptedLinear(linear, num_experts)(x), 0.5 * linear(x))


def test_an_adapted_map_equals_its_formula_part_by_part() -> None:
    linear = Linear(6, 12, parts=3).double()
    adapted = shaken(AdaptedLinear(linear, 4).double())
    with torch.no_grad():
        adapted.expert_down.normal_(generator=torch.Generator().manual_seed(1))
        adapted.expert_up.normal_(generator=torch.Generator().manual_seed(2))
    x = torch.randn(7, 6, dtype=torch.float64)
    parts = []
    for p in range(3):
        gates = [torch.sigmoid(x @ adapted.gates[k, p])[:, None] for k in range(5)]
        part = gates[0] * (x @ linear.weight[4 * p : 4 * p + 4].T + linear.bias[4 * p : 4 * p + 4])
        for k in range(4):
            part = part + gates[k + 1] * (x @ adapted.expert_down[k, p] @ adapted.expert_up[k, p])
        parts.append(part + x @ adapted.down[p] @ adapted.up[p])
    torch.testing.assert_close(adapted(x), torch.cat(parts, -1))


def test_an_adapted_norm_equals_its_formula() -> None:
    norm = shaken(RootMeanSquareNorm(6).double())
    adapted = shaken(AdaptedNorm(norm, 4).double())
    with torch.no_grad():
        adapted.expert_scales.normal_(generator=torch.Generator().manual_seed(1))
    x = torch.randn(7, 6, dtype=torch.float64)
    unit = x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-5)
    gates = [torch.sigmoid(x @ adapted.gates[k])[:, None] for k in range(5)]
    wanted = gates[0] * unit * norm.weight + unit * adapted.scale
    wanted = wanted + sum(gates[k + 1] * unit * adapted.expert_scales[k] for k in range(4))
    torch.testing.assert_close(adapted(x), wanted)


def test_every_map_and_norm_of_the_network_is_adapted_and_nothing_else_trains(base: Policy) -> None:
    expert = specialize(base, seed=3)
    kinds = [type(adapter) for _, adapter in adapters(expert)]
    # two embeddings, three of the prompt, five of the decoder (key, value, logit key in one), seven a block in four
    assert kinds.count(AdaptedLinear) == 2 + 3 + 3 + 2 * 2 * 4 + 2 * 2
    assert kinds.count(AdaptedNorm) == 2 * 2 * 2
    trained = {name.rsplit(".", 1)[1] for name, parameter in expert.named_parameters() if parameter.requires_grad}
    assert trained == {"down", "up", "gates", "scale"}
    assert all(not parameter.requires_grad for name, parameter in expert.named_parameters() if ".base." in name)


def test_adapting_leaves_the_base_alone_and_depends_on_the_seed_only(base: Policy) -> None:
    before = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    state = torch.random.get_rng_state()
    first, second, third = specialize(base, 1), specialize(base, 1), specialize(base, 2)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert base.config.adapters == "none"
    assert first.config.adapters == "single"
    assert all(torch.equal(before[name], tensor) for name, tensor in base.state_dict().items())
    same = [torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)]
    other = [torch.equal(a, b) for a, b in zip(first.parameters(), third.parameters(), strict=True)]
    assert all(same)
    assert not all(other)


def test_a_mixture_holds_the_adapters_of_its_experts(base: Policy) -> None:
    experts = [shaken(specialize(base, seed), seed=10 + seed) for seed in range(4)]
    mixture = mix(base, experts, seed=9)
    mixed = dict(adapters(mixture))
    for index in range(len(EXPERT_FLAGS)):
        for name, adapter in adapters(experts[index]):
            if isinstance(adapter, AdaptedLinear):
                assert torch.equal(mixed[name].expert_down[index], adapter.down)
                assert torch.equal(mixed[name].expert_up[index], adapter.up)
            else:
                assert torch.equal(mixed[name].expert_scales[index], adapter.scale)
    assert bool(mixture.encode(sample()).embeddings.isfinite().all())


def test_a_mixture_refuses_experts_of_another_base_or_number(base: Policy) -> None:
    experts = [specialize(base, seed) for seed in range(4)]
    stranger = specialize(shaken(policy_of("moses", "shared", adapters="none"), seed=77), 0)
    with pytest.raises(CheckpointMismatchError, match="expert L was not trained on this base"):
        mix(base, [*experts[:2], stranger, experts[3]], seed=0)
    with pytest.raises(CheckpointMismatchError, match="needs 4 experts, got 3"):
        mix(base, experts[:3], seed=0)


@pytest.mark.parametrize("kind", ["single", "mixture"])
def test_a_built_policy_takes_the_state_of_one_that_grew(base: Policy, kind: str) -> None:
    grown = specialize(base, 1) if kind == "single" else mix(base, [specialize(base, s) for s in range(4)], 5)
    built = build_policy(grown.config, seed=0).eval()
    built.load_state_dict(grown.state_dict())
    assert torch.equal(built.encode(sample()).embeddings, grown.encode(sample()).embeddings)
    trains = [(n, p.requires_grad) for n, p in built.named_parameters()]
    assert trains == [(n, p.requires_grad) for n, p in grown.named_parameters()]
