"""Scoring of packed decisions and its gradients, level ``fused``: kernels for attention and pointer, modules between.

The table of decisions is scored in chunks, each forward and backward before the next, which bounds the memory of the
decoder's feed-forward block. One backward pass through ``policy.cache`` follows at the end. Nothing waits for the
device and no shape depends on values.

Shape legend: B instances, S tours an instance, N nodes, C slots of the table, P slots of a chunk, W mask words of
32 bits, H heads, D = d / H features of a head, d width.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from polarvrp.decoding.fused.packed_attention import (
    DecisionChunk,
    Shared,
    Sums,
    add_node_gradients,
    chunks_of,
    packed_glimpse,
    packed_pointer,
    totals_of_tours,
)
from polarvrp.decoding.fused.packing import TILE, PackedDecisions
from polarvrp.model.decoder import PointerDecoder
from polarvrp.model.heads import Ramp
from polarvrp.model.linear import map_pair
from polarvrp.model.policy import Policy
from polarvrp.model.precision import no_autocast, prepare_compilation
from polarvrp.problem.instances import Instances


@torch.no_grad()
def fused_score(policy: Policy, embeddings: Tensor, instances: Instances[Tensor], packed: PackedDecisions) -> Tensor:
    """Log-likelihood of each tour.

    Args:
        policy: With a :class:`PointerDecoder` without adapters whose head has no routing loss.
        embeddings: Node embeddings of the instances, float, ``[B, N, d]``.
        instances: The instances.
        packed: Decisions of S tours of each.

    Returns:
        Float32, ``[B, S]``.
    """
    shared = Shared.of(policy.cache(embeddings, instances), policy.decoder)
    chunks = chunks_of(packed, len(embeddings))
    found = [_log_probs(policy.decoder, shared, None, chunk, policy.ramp)[1] for chunk in chunks]
    return totals_of_tours(torch.cat(found), packed, len(embeddings))


def fused_score_gradient(
    policy: Policy, embeddings: Tensor, instances: Instances[Tensor], packed: PackedDecisions, coefficients: Tensor
) -> None:
    """Add the gradient of ``sum(coefficients * log_likelihood)`` to the decoder's parameters and to ``embeddings``.

    Args:
        policy: As of :func:`fused_score`.
        embeddings: Leaf that requires gradients, float, ``[B, N, d]``; its ``grad`` is the encoder's share.
        instances: The instances.
        packed: Decisions of S tours of each.
        coefficients: Derivative of the loss by each tour's log-likelihood, float, ``[B, S]``.
    """
    with torch.enable_grad():
        cached = policy.cache(embeddings, instances)
    shared = Shared.of(cached, policy.decoder)
    chunks = list(chunks_of(packed, len(embeddings)))
    sums = Sums.zeros(shared, len(packed.row) // TILE, chunks[0].num_tiles)
    weights = coefficients.detach().to(torch.float32)
    for chunk in chunks:
        with torch.enable_grad():
            node, log_probs = _log_probs(policy.decoder, shared, sums, chunk, policy.ramp)
        with no_autocast(embeddings.device):
            torch.autograd.backward(log_probs, weights[chunk.owner, chunk.row])
        assert node.grad is not None
        add_node_gradients(node.grad, shared, sums, chunk)
    with no_autocast(embeddings.device):
        torch.autograd.backward(
            (cached.keys, cached.values, cached.logit_keys, embeddings),
            (
                _heads_apart(sums.keys, cached.keys),
                _heads_apart(sums.values, cached.values),
                sums.logit_keys.sum(0).to(cached.logit_keys.dtype),
                sums.embeddings.sum(0).to(embeddings.dtype),
            ),
        )


def _log_probs(
    decoder: PointerDecoder, shared: Shared, sums: Sums | None, chunk: DecisionChunk, ramp: Ramp
) -> tuple[Tensor, Tensor]:
    """Embeddings of the current nodes, a leaf, ``[P, d]``, and the actions' log-probabilities, float32 ``[P]``."""
    num_nodes, width = shared.keys.shape[1:]
    node = shared.embeddings.flatten(0, 1)[chunk.owner * num_nodes + chunk.current]
    node.requires_grad_(torch.is_grad_enabled())
    features = decoder.state_features(chunk.features[:, None], shared.distance_limit[chunk.owner])[:, 0].to(node.dtype)
    ask, answer = (_compiled(_ask), _compiled(_answer)) if node.is_cuda else (_ask, _answer)
    query = ask(decoder.query, node, features)
    glimpse = packed_glimpse(query, shared, sums, chunk)
    heads = glimpse.view(1, -1, shared.heads, width // shared.heads)
    pointer = answer(decoder.head, heads, node[None], features[None], ramp)
    return node, packed_pointer(pointer[0], shared, sums, chunk)


def _ask(query_map: nn.Module, node: Tensor, features: Tensor) -> Tensor:
    """The glimpse's queries, ``[P, d]``."""
    return map_pair(query_map, node, features)


def _answer(head: nn.Module, *arguments: Any) -> Tensor:
    """Pointer queries, ``[1, P, d]``."""
    pointer: Tensor = head(*arguments)[0]
    return pointer


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled on first use, for the given shapes alone: known sizes can be padded to what matrix products like."""
    prepare_compilation()
    return torch.compile(function, dynamic=False)


def _heads_apart(sums: Tensor, like: Tensor) -> Tensor:
    """Sum over splits ``[splits, B, N, d]`` as a gradient by keys or values ``[B, H, N, D]``."""
    batch, heads, num_nodes, head_width = like.shape
    total = sums.sum(0).view(batch, num_nodes, heads, head_width)
    gradient: Tensor = total.transpose(1, 2).to(like.dtype)
    return gradient
