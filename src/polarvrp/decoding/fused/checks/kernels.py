"""Checks of all kernels: rollout and replay, scoring, the encoder's attention.

Shape legend: B instances, T rows, N nodes, H heads, D = d / H features of a head.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from polarvrp.decoding.fused.checks.rollout import check_replay, check_rollout
from polarvrp.decoding.fused.checks.scoring import ScoringChecks
from polarvrp.decoding.fused.checks.verdicts import (
    BARS,
    KernelSetting,
    KernelVerdict,
    guarded,
    milliseconds_of,
    relative_error,
)
from polarvrp.model.rotation import Rotation, rotate, rotation_of
from polarvrp.model.short_attention import short_attention

HEADS = ("gated", "plain", "reld")
NUM_TOURS = (1, 20)
"""Replayed of each instance."""

MEMORY_ROWS = 2
"""Of the encoder's attention, beside the nodes: they are seen and see nothing."""


def check_kernels(setting: KernelSetting) -> Iterator[KernelVerdict]:
    """Verdicts on all kernels; one that fails does not keep the others from their check."""
    yield from replay_verdicts(setting)
    yield from rollout_verdicts(setting)
    yield from scoring_verdicts(setting)


def replay_verdicts(setting: KernelSetting) -> Iterator[KernelVerdict]:
    """Verdicts on the replay of few and of many tours."""
    for num_tours in NUM_TOURS:
        yield guarded(f"replay {num_tours}", partial(check_replay, setting, num_tours))


def rollout_verdicts(setting: KernelSetting) -> Iterator[KernelVerdict]:
    """Verdicts on the rollout by each head, greedy and sampled."""
    for head in HEADS:
        for sampled in (False, True):
            name = f"rollout {head} {'sampled' if sampled else 'greedy'}"
            yield guarded(name, partial(check_rollout, setting, head, sampled))


def scoring_verdicts(setting: KernelSetting) -> Iterator[KernelVerdict]:
    """Verdicts on the kernels of scoring and of the encoder's attention, forward and backward."""
    environment = setting.environment()
    for head in ("gated", "reld"):  # a plain head asks the kernels for what a gated one does
        yield from ScoringChecks(setting, environment, head).verdicts()
    for backward in (False, True):
        name = f"attention_{'backward' if backward else 'forward'}"
        yield guarded(name, partial(check_encoder_attention, setting, backward))


def check_encoder_attention(setting: KernelSetting, backward: bool) -> KernelVerdict:
    """Attention of nodes to nodes and memory rows, with rotation, against tensor operations in float32."""
    environment, config = setting.environment(), setting.config
    num_queries = environment.instances.num_nodes
    num_rows, head_width = num_queries + MEMORY_ROWS, config.width // config.heads
    rotation = rotation_of(environment.instances.locs, head_width, "proper", MEMORY_ROWS)
    shape = (setting.batch, num_rows, 3, config.heads, head_width)
    packed = torch.randn(shape, generator=setting.generator(5), device=setting.device).to(setting.dtype)
    leaf, exact_leaf = packed.clone().requires_grad_(), packed.float().requires_grad_()

    def run() -> Tensor:
        return short_attention(leaf, rotation, num_queries)

    found, wanted = run(), _attention(exact_leaf, rotation, num_queries)
    name, (forward_bar, backward_bar) = "attention_backward" if backward else "attention_forward", BARS[setting.dtype]
    if not backward:
        return KernelVerdict(name, relative_error(found, wanted), forward_bar, milliseconds_of(run, setting.device))
    upstream = torch.randn(found.shape, generator=setting.generator(6), device=setting.device).to(setting.dtype)

    def differentiate() -> Tensor:
        return torch.autograd.grad(found, leaf, upstream, retain_graph=True)[0]

    (gradient,) = torch.autograd.grad(wanted, exact_leaf, upstream.float())
    error = relative_error(differentiate(), gradient)
    return KernelVerdict(name, error, backward_bar, milliseconds_of(differentiate, setting.device))


def _attention(packed: Tensor, rotation: Rotation, num_queries: int) -> Tensor:
    """What the kernels compute, ``[B, T, 3, H, D]`` to ``[B, num_queries, d]``."""
    query_key = rotate(packed[:, :, :2], rotation)
    query, key, value = (rows.transpose(1, 2) for rows in (query_key[:, :, 0], query_key[:, :, 1], packed[:, :, 2]))
    return functional.scaled_dot_product_attention(query[:, :, :num_queries], key, value).transpose(1, 2).flatten(2)
