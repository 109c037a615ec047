"""Low-rank adapters around every linear map and norm of a trained network (MoSES, its second and third stage).

A map that holds several of equal size side by side (query, key and value) gets an adapter and a gate for each of them.

Shape legend: K frozen experts, P parts of a map, i input features, o output features of a part, r rank.
"""

import copy
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from polarvrp.errors import CheckpointMismatchError
from polarvrp.model.linear import Linear
from polarvrp.model.norms import RootMeanSquareNorm
from polarvrp.model.policy import Policy

RANK = 32
EXPERT_FLAGS = ("O", "TW", "L", "B")
"""One frozen expert each, in this order: trained on OVRP, VRPTW, VRPL and VRPB."""


class AdaptedLinear(nn.Module):
    """``s_0 (W x + b) + Σ_k s_k x A_k B_k + x A B`` with gates ``s_k = sigmoid(x · w_k)``, for each part of W.

    W, b and the experts A_k, B_k are frozen. A starts normal with deviation r^-1/2, B and w_k start at 0.

    Args:
        base: The map W, b.
        num_experts: K: 0 while an expert is trained, 4 in the mixture.
    """

    def __init__(self, base: Linear, num_experts: int) -> None:
        super().__init__()
        self.base = base
        parts, inputs, outputs = base.parts, base.in_features, base.out_features // base.parts
        self.down = nn.Parameter(torch.randn(parts, inputs, RANK) / math.sqrt(RANK))
        self.up = nn.Parameter(torch.zeros(parts, RANK, outputs))
        self.gates = nn.Parameter(torch.zeros(num_experts + 1, parts, inputs))
        self.expert_down = nn.Parameter(torch.zeros(num_experts, parts, inputs, RANK), requires_grad=False)
        self.expert_up = nn.Parameter(torch.zeros(num_experts, parts, RANK, outputs), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """``[..., i]`` to ``[..., P o]``."""
        parts, width = self.base.parts, self.base.out_features // self.base.parts
        rows = x.reshape(-1, x.shape[-1])
        gates = torch.sigmoid(torch.einsum("ri,kpi->prk", rows, self.gates))  # [P, rows, K + 1]
        downs = torch.cat((self.expert_down, self.down[None]))  # [K + 1, P, i, r]
        ups = torch.cat((self.expert_up, self.up[None]))
        low = torch.einsum("ri,kpiq->prkq", rows, downs)  # [P, rows, K + 1, r]
        scales = torch.cat((gates[..., 1:], torch.ones_like(gates[..., :1])), dim=-1)
        low = (low * scales[..., None]).flatten(-2)
        adapted = torch.bmm(low, ups.transpose(0, 1).flatten(1, 2).to(low.dtype))  # [P, rows, o]
        base = self.base(rows).reshape(-1, parts, width).transpose(0, 1)
        y: Tensor = gates[..., :1] * base + adapted
        return y.transpose(0, 1).reshape(*x.shape[:-1], parts * width)

    def take_expert(self, index: int, source: "AdaptedLinear") -> None:
        """Freeze the adapter of a trained expert as number ``index``."""
        self.expert_down[index].copy_(source.down)
        self.expert_up[index].copy_(source.up)


class AdaptedNorm(nn.Module):
    """``s_0 x̂ ⊙ w + Σ_k s_k x̂ ⊙ v_k + x̂ ⊙ v``, x̂ of root mean square 1, gates ``s_k = sigmoid(x · w_k)``.

    w and the experts v_k are frozen; v starts at 1.

    Args:
        base: The norm.
        num_experts: K.
    """

    def __init__(self, base: RootMeanSquareNorm, num_experts: int) -> None:
        super().__init__()
        self.base = base
        self.scale = nn.Parameter(torch.ones(base.width))
        self.gates = nn.Parameter(torch.zeros(num_experts + 1, base.width))
        self.expert_scales = nn.Parameter(torch.zeros(num_experts, base.width), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """``[..., d]`` to the same."""
        unit = self.base.normalize(x)
        gates = torch.sigmoid(x.to(unit.dtype) @ self.gates.t())  # [..., K + 1]
        scale = gates.to(unit.dtype) @ torch.cat((self.base.weight[None], self.expert_scales))
        return (unit * (scale + self.scale)).to(x.dtype)

    def take_expert(self, index: int, source: "AdaptedNorm") -> None:
        """Freeze the scale of a trained expert as number ``index``."""
        self.expert_scales[index].copy_(source.scale)


def add_adapters(policy: Policy, kind: str) -> None:
    """Freeze a policy and put adapters around each of its linear maps and norms, in place.

    Args:
        policy: Without adapters.
        kind: ``single`` for training an expert, ``mixture`` for mixing them.
    """
    num_experts = len(EXPERT_FLAGS) if kind == "mixture" else 0
    policy.requires_grad_(False)
    for parent in list(policy.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Linear):
                setattr(parent, name, AdaptedLinear(child, num_experts))
            elif isinstance(child, RootMeanSquareNorm):
                setattr(parent, name, AdaptedNorm(child, num_experts))


def specialize(base: Policy, seed: int) -> Policy:
    """A copy of a trained policy with fresh adapters, ready to become an expert (second stage).

    Args:
        base: Policy of the first stage, without adapters.
        seed: Of the adapters' initial weights.
    """
    return _adapted(base, "single", seed)


def mix(base: Policy, experts: Sequence[Policy], seed: int) -> Policy:
    """A copy of a trained policy with frozen experts, gates and a fresh adapter (third stage).

    The gates that the experts were trained with are dropped.

    Args:
        base: Policy of the first stage, without adapters.
        experts: Policies of the second stage in the order of ``EXPERT_FLAGS``.
        seed: Of the fresh adapter's initial weights.

    Raises:
        CheckpointMismatchError: If the experts are not four policies grown from this base.
    """
    if len(experts) != len(EXPERT_FLAGS):
        raise CheckpointMismatchError(f"a mixture needs {len(EXPERT_FLAGS)} experts, got {len(experts)}")
    for flag, expert in zip(EXPERT_FLAGS, experts, strict=True):
        if not _grew_from(expert, base):
            raise CheckpointMismatchError(f"expert {flag} was not trained on this base; specialize this one")
    mixture = _adapted(base, "mixture", seed)
    with torch.no_grad():
        for index, expert in enumerate(experts):
            sources = dict(adapters(expert))
            for name, adapter in adapters(mixture):
                adapter.take_expert(index, sources[name])  # type: ignore[arg-type]
    return mixture


def adapters(policy: Policy) -> Iterator[tuple[str, AdaptedLinear | AdaptedNorm]]:
    """All adapters of a policy by name."""
    for name, module in policy.named_modules():
        if isinstance(module, AdaptedLinear | AdaptedNorm):
            yield name, module


def _adapted(base: Policy, kind: str, seed: int) -> Policy:
    policy = copy.deepcopy(base)
    policy.config = base.config.replace(adapters=kind)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        add_adapters(policy, kind)
    return policy.to(next(base.parameters()))


def _grew_from(expert: Policy, base: Policy) -> bool:
    frozen = {name.replace(".base.", "."): tensor for name, tensor in expert.state_dict().items()}
    return all(name in frozen and torch.equal(frozen[name], tensor) for name, tensor in base.state_dict().items())
