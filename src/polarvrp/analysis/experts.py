"""Contributions of PLE's experts: gates and norms of the gated terms of each layer's update, by variant.

With the notation of ``model.stacks.PLELayer``, an update adds up κ + 1 terms: those of the task experts,
``g̃_k E_k([tasks ; P])``, and that of the shared stream, ``σ(ρ) g_{κ+1} shared``. A term's contribution is the mean over
nodes of its Euclidean norm, as a percentage of the sum over all terms of the same instance.

Source: appendix on contributions of the PLE experts.

Shape legend: B instances, N nodes, κ task experts, d features.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor, nn

from polarvrp.errors import ConfigError
from polarvrp.model.policy import Policy
from polarvrp.model.stacks import PLELayer, PLEStack
from polarvrp.problem.datasets import variant_of
from polarvrp.problem.instances import Instances, NodeArrays, to_tensors

INSTANCES_PER_VARIANT = 64
"""First instances of each test set that are encoded."""

SHARED = "shared"
"""Name of the shared expert; task experts are ``task_1`` and so on."""

SCHEMA = pa.schema(
    [
        pa.field("layer", pa.int32(), nullable=False),
        pa.field("variant", pa.string(), nullable=False),
        pa.field("expert", pa.string(), nullable=False),
        pa.field("gate", pa.float64(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("norm", pa.float64(), nullable=False),
        pa.field("percent", pa.float64(), nullable=False),
        pa.field("instances", pa.int32(), nullable=False),
    ]
)
"""Columns of ``expert_contributions.parquet``, means over the instances of a variant: the gate's output; the weight of
the term that follows from it; the norm of the weighted term; its share of the norms of all terms."""


@dataclass(frozen=True, slots=True)
class Update:
    """One layer's update of the task stream, term by term: κ task experts, then the shared stream.

    Attributes:
        gate: Output of the gate, ``[B, κ + 1]``.
        weight: Factor of each term, ``[B, κ + 1]``.
        norm: Mean over nodes of the Euclidean norm of each weighted term, ``[B, κ + 1]``.
    """

    gate: Tensor
    weight: Tensor
    norm: Tensor


def expert_contributions(policy: Policy, sets: Sequence[Instances[NodeArrays]]) -> pd.DataFrame:
    """Gates and norms by layer, variant and expert.

    Args:
        policy: In evaluation mode, with encoder PLE.
        sets: Instances of one variant each.

    Returns:
        Columns of ``SCHEMA``.

    Raises:
        ConfigError: If the encoder is another.
    """
    frames = []
    for instances in sets:
        some = instances[:INSTANCES_PER_VARIANT]
        for layer, update in enumerate(layer_updates(policy, to_tensors(some, dtype=policy.dtype)), 1):
            share = 100 * update.norm / update.norm.sum(dim=1, keepdim=True)
            columns = {"gate": update.gate, "weight": update.weight, "norm": update.norm, "percent": share}
            means = pd.DataFrame({name: values.double().mean(dim=0).numpy() for name, values in columns.items()})
            means["expert"] = [*(f"task_{number}" for number in range(1, len(means))), SHARED]
            frames.append(means.assign(layer=layer, variant=variant_of(some).name, instances=len(some)))
    contributions: pd.DataFrame = pd.concat(frames, ignore_index=True)[SCHEMA.names]
    return contributions.sort_values("layer", kind="stable", ignore_index=True)


@torch.inference_mode()
def layer_updates(policy: Policy, instances: Instances[Tensor]) -> list[Update]:
    """The update of each PLE layer while a batch is encoded.

    Args:
        policy: In evaluation mode, with encoder PLE.
        instances: B instances on the policy's device.

    Raises:
        ConfigError: If the encoder is another.
    """
    if not isinstance(policy.stack, PLEStack):
        raise ConfigError(f"encoder {policy.config.encoder} has no task experts; name a model with encoder ple")
    updates: list[Update] = []
    with ExitStack() as watched:
        for layer in policy.stack.layers:
            assert isinstance(layer, PLELayer)
            watched.enter_context(_recorded(layer, updates))
        policy.encode(instances)
    return updates


@contextmanager
def _recorded(layer: PLELayer, updates: list[Update]) -> Iterator[None]:
    """Append the update of a layer each time that it is computed."""
    experts: list[Tensor] = []

    def keep_experts(module: nn.Module, _: object, output: tuple[Tensor, object]) -> None:
        experts[:] = [output[0]]  # [κ, B, N, d]

    def keep_update(module: nn.Module, _: object, output: tuple[Tensor, Tensor, Tensor, object]) -> None:
        shared, _, gate, _ = output
        weight = torch.cat((layer.task_weights(gate), layer.shared_weight(gate)[:, None]), dim=1)
        terms = torch.cat((experts.pop(), shared[None]))
        updates.append(Update(gate, weight, weight * terms.norm(dim=-1).mean(dim=-1).t()))

    handles = (layer.task_experts.register_forward_hook(keep_experts), layer.register_forward_hook(keep_update))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
