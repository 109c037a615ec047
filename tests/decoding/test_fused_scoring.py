"""Fused scoring of packed decisions equals scoring in batched tensor operations, and leaves empty slots out."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from helpers.instances import in_double, sample
from helpers.kernel_compilation import SHARED_MEMORY_LIMIT, compile_launches, record_launches
from polarvrp.config.model import ModelConfig
from polarvrp.decoding.fused.packing import TILE, PackedDecisions
from polarvrp.decoding.masks import mask_words
from polarvrp.decoding.parallel import ParallelEngine
from polarvrp.decoding.rollout import multi_start
from polarvrp.decoding.sampling import Sampler
from polarvrp.decoding.scoring import score, score_gradient
from polarvrp.decoding.steps import ScoredSteps
from polarvrp.environment.environment import Environment
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy
from polarvrp.problem.instances import Instances

pytest.importorskip("triton")

from polarvrp.decoding.fused import packed_attention
from polarvrp.decoding.fused import scoring as fused_scoring
from polarvrp.decoding.fused.checks.scoring import pack_steps
from polarvrp.decoding.fused.kernels import scoring as kernels
from polarvrp.decoding.fused.scoring import fused_score, fused_score_gradient

FIRST_LIGHT = pytest.mark.first_light
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SMALL: dict[str, Any] = {"width": 32, "heads": 2, "layers": 1, "feedforward_width": 32}
NETWORKS: dict[str, tuple[dict[str, Any], float | Tensor, str]] = {
    "gated head, full state": ({}, 1.0, "VRPL"),
    "gated head, ramping, several depots": ({"glimpse_mask": "plus_one"}, 0.3, "MDOVRPTW"),
    "gated head, no mask, ramp on the device": ({"glimpse_mask": "none"}, torch.tensor(0.6), "CVRP"),
    "plain head, no mask": ({"head": "plain", "glimpse_mask": "none"}, 1.0, "VRPB"),
    "reld head, several depots": ({"head": "reld"}, 1.0, "MDVRPL"),
    "reld head, ramping": ({"head": "reld", "glimpse_mask": "plus_one"}, 0.3, "OVRPB"),
    "mtpomo, state with length left": ({"backbone": "mtpomo", "encoder": "shared"}, 1.0, "OVRPBLTW"),
    "routefinder, keys of the pointer mapped": ({"backbone": "routefinder", "encoder": "shared"}, 1.0, "VRPMBL"),
}
Gradients = dict[str, Tensor]


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads as they are on a GPU too: compiling each costs more than all tests."""
    monkeypatch.setattr(fused_scoring, "_compiled", lambda function: function)


@dataclasses.dataclass(frozen=True)
class Case:
    """Decisions of a small batch, packed and as batched operations want them, and a coefficient for each tour."""

    policy: Policy
    instances: Instances[Tensor]
    embeddings: Tensor
    steps: ScoredSteps
    packed: PackedDecisions
    coefficients: Tensor

    def in_double(self) -> "Case":
        """The same in float64."""
        policy = copy.deepcopy(self.policy).double()
        instances = in_double(self.instances)
        steps = dataclasses.replace(self.steps, features=self.steps.features.double())
        return dataclasses.replace(
            self,
            policy=policy,
            instances=instances,
            embeddings=self.embeddings.double(),
            steps=steps,
            coefficients=self.coefficients.double(),
        )


def make_case(
    variant: str = "OVRPBLTW",
    num_customers: int = 9,
    num_tours: int = 14,
    ramp: float | Tensor = 1.0,
    **options: Any,
) -> Case:
    """Two instances with decisions in several tiles each and unused tiles at the end."""
    policy = build_policy(ModelConfig(**SMALL | options), 3).to(DEVICE)
    policy.ramp = ramp.to(DEVICE) if isinstance(ramp, Tensor) else ramp
    instances = sample(variant, num_customers, 2, seed=5, device=DEVICE)
    environment = Environment(instances)
    embeddings = policy.encode(instances).embeddings.detach()
    starts = multi_start(environment, max_starts=9).repeat(3, 1)[:num_tours]
    source = Sampler(torch.Generator(DEVICE).manual_seed(2))
    tours = ParallelEngine().rollout(policy, embeddings, environment, starts, source, record=True)
    tiles = int((-(-tours.decisions.valid.sum(1) // TILE)).sum())
    packed = pack_steps(tours.decisions, (tiles + 2) * TILE)
    assert packed.dropped == 0 and not packed.valid.all()
    assert packed.first_tile.diff().min() > 1
    coefficients = torch.randn(tours.cost.shape, generator=torch.Generator().manual_seed(8)).to(DEVICE)
    return Case(policy, instances, embeddings, tours.decisions, packed, coefficients)


def gradients_of(case: Case, add_gradient: Callable[..., None], decisions: ScoredSteps | PackedDecisions) -> Gradients:
    """Of embeddings and parameters."""
    case.policy.zero_grad()
    leaf = case.embeddings.clone().requires_grad_()
    add_gradient(case.policy, leaf, case.instances, decisions, case.coefficients)
    assert leaf.grad is not None
    named = {name: value.grad.clone() for name, value in case.policy.named_parameters() if value.grad is not None}
    return named | {"embeddings": leaf.grad}


def assert_close(found: Gradients, wanted: Gradients, tolerance: float) -> None:
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        error = (found[name] - gradient).norm() / gradient.norm()
        assert error < tolerance, f"{name}: relative error {error:.1e}"


@pytest.mark.parametrize("name", [pytest.param(next(iter(NETWORKS)), marks=FIRST_LIGHT), *list(NETWORKS)[1:]])
def test_likelihoods_and_gradients_equal_those_of_batched_operations(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_attention, "SLOTS_PER_CHUNK", TILE * 3)  # instances lie across chunks
    options, ramp, variant = NETWORKS[name]
    case = make_case(variant, ramp=ramp, **options)
    precise = case.in_double()
    likelihood = fused_score(case.policy, case.embeddings, case.instances, case.packed)
    assert likelihood.dtype == torch.float32
    wanted = score(precise.policy, precise.embeddings, precise.instances, precise.steps)
    torch.testing.assert_close(likelihood.double(), wanted, rtol=1e-5, atol=1e-5)
    found = gradients_of(case, fused_score_gradient, case.packed)
    assert_close(found, gradients_of(precise, score_gradient, precise.steps), 1e-5)


@pytest.mark.parametrize(("slots", "programs"), [(1 << 17, 1), (1 << 17, 400), (TILE, 1), (3 * TILE, 3)])
def test_chunks_and_splits_do_not_matter(slots: int, programs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case()
    wanted = gradients_of(case, score_gradient, case.steps)
    monkeypatch.setattr(packed_attention, "SLOTS_PER_CHUNK", slots)
    monkeypatch.setattr(packed_attention, "GLIMPSE_PROGRAMS", 2 * programs)
    monkeypatch.setattr(packed_attention, "POINTER_PROGRAMS", programs)
    assert_close(gradients_of(case, fused_score_gradient, case.packed), wanted, 2e-5)


def test_masks_of_several_words() -> None:
    case = make_case("CVRP", num_customers=66, num_tours=2)
    assert mask_words(67) == case.packed.mask.shape[1] == 2
    likelihood = fused_score(case.policy, case.embeddings, case.instances, case.packed)
    wanted = score(case.policy, case.embeddings, case.instances, case.steps)
    torch.testing.assert_close(likelihood, wanted, rtol=1e-5, atol=1e-4)
    expected = gradients_of(case, score_gradient, case.steps)
    assert_close(gradients_of(case, fused_score_gradient, case.packed), expected, 2e-5)


@pytest.mark.parametrize("head", ["gated", "reld"])
def test_empty_slots_contribute_exactly_nothing(head: str) -> None:
    case = make_case(head=head)
    packed, empty = case.packed, ~case.packed.valid
    generator = torch.Generator().manual_seed(1)

    def garbage(values: Tensor, high: int) -> Tensor:
        noise = torch.randint(0, high, values.shape, generator=generator).to(values)
        return torch.where(empty.view(-1, *[1] * (values.dim() - 1)), noise, values)

    num_nodes = case.embeddings.shape[1]
    poisoned = dataclasses.replace(
        packed,
        row=garbage(packed.row, packed.num_rows),
        current=garbage(packed.current, num_nodes),
        action=garbage(packed.action, num_nodes),
        features=garbage(packed.features, 9),
        mask=garbage(packed.mask, 3),  # no legal node at all in some slots
    )
    clean = fused_score(case.policy, case.embeddings, case.instances, packed)
    assert torch.equal(fused_score(case.policy, case.embeddings, case.instances, poisoned), clean)
    wanted = gradients_of(case, fused_score_gradient, packed)
    found = gradients_of(case, fused_score_gradient, poisoned)
    for name, gradient in wanted.items():
        assert torch.equal(found[name], gradient), name


@pytest.mark.parametrize("head", [pytest.param("gated", marks=FIRST_LIGHT), "plain"])
def test_bfloat16_stays_close_to_float32(head: str) -> None:
    case = make_case(head=head)
    case = dataclasses.replace(case, embeddings=case.embeddings.bfloat16().float())
    exact = gradients_of(case, score_gradient, case.steps)
    wanted = score(case.policy, case.embeddings, case.instances, case.steps)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        likelihood = fused_score(case.policy, case.embeddings, case.instances, case.packed)
        found = gradients_of(case, fused_score_gradient, case.packed)
    assert (likelihood - wanted).abs().mean() < 0.01
    assert (likelihood - wanted).abs().max() < 0.1
    difference = torch.cat([(found[name] - exact[name]).flatten() for name in exact]).norm()
    # A GPU rounds to nearest, the interpreter cuts digits off: 0.013 for the plain head, 0.016 for the gated one.
    assert difference < 0.017 * torch.cat([gradient.flatten() for gradient in exact.values()]).norm()


@pytest.mark.parametrize(("num_customers", "head"), [(50, "gated"), (100, "reld")])
def test_kernels_compile_for_a_gpu_without_spilling(
    num_customers: int, head: Literal["gated", "reld"], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = build_policy(ModelConfig(layers=1, head=head), 3)
    instances = sample("CVRP", num_customers, 1, seed=5)
    packed = decision_at_the_depot(num_customers + 1)
    launches = record_launches(monkeypatch, kernels)
    with torch.autocast("cpu", torch.bfloat16):
        leaf = policy.encode(instances).embeddings.detach().requires_grad_()
        fused_score_gradient(policy, leaf, instances, packed, torch.ones(1, 1))
        fused_score(policy, leaf, instances, packed)
    compiled = compile_launches(launches)
    assert {entry["kernel"] for entry in compiled} == {
        "glimpse_forward",
        "glimpse_backward",
        "pointer_forward",
        "pointer_backward",
        "node_backward",
        "sum_rows",
    }
    for entry in compiled:
        assert entry["spilled"] == 0, entry
        assert entry["shared"] < SHARED_MEMORY_LIMIT, entry


def decision_at_the_depot(num_nodes: int) -> PackedDecisions:
    """A table of one decision: an empty vehicle may drive anywhere."""
    zeros = torch.zeros(TILE, dtype=torch.int64)
    return PackedDecisions(
        instance=zeros,
        row=zeros,
        current=zeros,
        action=zeros,
        features=torch.zeros(TILE, 5),
        mask=torch.ones(TILE, mask_words(num_nodes), dtype=torch.int64),
        valid=torch.arange(TILE) < 1,
        first_tile=torch.tensor([0, 1]),
        dropped=zeros[0],
        num_rows=1,
        num_actions=num_nodes,
    )
