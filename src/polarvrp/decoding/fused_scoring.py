"""Scoring of packed decisions and its gradients, level ``fused``: kernels for attention and pointer, modules between.

The table of decisions is scored in parts, each forward and backward before the next, which bounds the memory of the
decoder's feed-forward block. What all decisions of an instance share (keys, values, the pointer's keys, embeddings
of current nodes) gets its gradient as sums that the kernels add to, part after part; one backward pass through
``policy.cache`` follows at the end. Nothing waits for the device and no shape depends on values.

Shape legend: B instances, S tours an instance, N nodes, C slots of the table, P slots of a part, W mask words of
32 bits, H heads, D = d / H features of a head, d width.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from polarvrp.decoding.kernels import scoring as kernels
from polarvrp.decoding.packing import TILE, PackedDecisions
from polarvrp.model.decoder import DecoderCache, PointerDecoder
from polarvrp.model.heads import Ramp
from polarvrp.model.policy import Policy
from polarvrp.problem.instances import Instances

SLOTS_PER_PART = 1 << 17
GLIMPSE_PROGRAMS = 1000
POINTER_PROGRAMS = 300
"""Wanted of a part's backward kernels, to fill a large GPU; an instance's tiles are split among programs for that."""

SMALLEST_BLOCK = 16
"""Rows or columns of the smallest matrix that tensor cores multiply."""

FORWARD_WARPS = 4


@dataclass(frozen=True, slots=True)
class _Part:
    """Some whole tiles of the table, as of :class:`PackedDecisions`.

    Attributes:
        owner: Instance of each slot, any one on unused tiles, int64, ``[P]``.
        first_tile: Of the whole table, int64, ``[B + 1]``.
        first: First tile of this part.
    """

    instance: Tensor
    owner: Tensor
    row: Tensor
    current: Tensor
    action: Tensor
    features: Tensor
    mask: Tensor
    valid: Tensor
    first_tile: Tensor
    first: int

    @property
    def num_tiles(self) -> int:
        """Tiles of this part."""
        return len(self.instance) // TILE


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all decisions of an instance share, in the form the kernels read.

    Attributes:
        embeddings: ``[B, N, d]``.
        keys: Of the glimpse, heads side by side, ``[B, N, d]``.
        values: ``[B, N, d]``.
        logit_keys: ``[B, N, d]``.
        distance_limit: ``[B]``.
        log_distances: ``[B, N, N]`` or ``None``.
        heads: H.
        glimpse_mask: ``hard``, ``plus_one`` or ``none``.
    """

    embeddings: Tensor
    keys: Tensor
    values: Tensor
    logit_keys: Tensor
    distance_limit: Tensor
    log_distances: Tensor | None
    heads: int
    glimpse_mask: str

    @classmethod
    def of(cls, cache: DecoderCache, decoder: PointerDecoder) -> "_Shared":
        """Of a cache, without its graph; operands have the dtype that its maps computed in."""
        dtype = cache.keys.dtype
        return cls(
            cache.embeddings.detach().contiguous(),
            cache.keys.detach().transpose(1, 2).flatten(2).contiguous(),
            cache.values.detach().transpose(1, 2).flatten(2).contiguous(),
            cache.logit_keys.detach().to(dtype).contiguous(),
            cache.distance_limit,
            cache.log_distances,
            decoder.heads,
            decoder.glimpse_mask,
        )

    @property
    def node_block(self) -> int:
        """N as the kernels pad it."""
        return max(SMALLEST_BLOCK, 1 << (self.keys.shape[1] - 1).bit_length())


@dataclass(frozen=True, slots=True)
class _Sums:
    """Gradients by the tensors of :class:`_Shared`, added up by kernels; each split has its own sum.

    Attributes:
        keys: Float32, ``[splits, B, N, d]``.
        values: Float32, ``[splits, B, N, d]``.
        logit_keys: Float32, ``[splits, B, N, d]``, with more splits.
        embeddings: By embeddings as current nodes, float32, ``[splits, B, N, d]``, with more splits.
    """

    keys: Tensor
    values: Tensor
    logit_keys: Tensor
    embeddings: Tensor

    @classmethod
    def zeros(cls, shared: _Shared, num_tiles: int, tiles_per_part: int) -> "_Sums":
        """Nothing added yet."""
        batch = len(shared.keys)
        tiles_per_instance = -(-num_tiles // batch)
        instances_per_part = max(tiles_per_part // tiles_per_instance, 1)

        def sums(programs: int) -> Tensor:
            splits = min(-(-programs // instances_per_part), tiles_per_instance)
            return torch.zeros(splits, *shared.keys.shape, dtype=torch.float32, device=shared.keys.device)

        of_a_head = -(-GLIMPSE_PROGRAMS // shared.heads)
        return cls(sums(of_a_head), sums(of_a_head), sums(POINTER_PROGRAMS), sums(POINTER_PROGRAMS))


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
    shared = _Shared.of(policy.cache(embeddings, instances), policy.decoder)
    parts = _parts(packed, len(embeddings))
    found = [_log_probs(policy.decoder, shared, None, part, policy.ramp)[1] for part in parts]
    totals = torch.empty(len(embeddings), packed.num_rows, dtype=torch.float32, device=embeddings.device)
    num_tiles, row_blocks = len(packed.row) // TILE, -(-packed.num_rows // TILE)
    kernels.sum_rows[(len(embeddings) * row_blocks,)](
        torch.cat(found), packed.row, packed.first_tile, totals, num_tiles, packed.num_rows, row_blocks
    )
    return totals


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
    shared = _Shared.of(cached, policy.decoder)
    parts = list(_parts(packed, len(embeddings)))
    sums = _Sums.zeros(shared, len(packed.row) // TILE, parts[0].num_tiles)
    weights = coefficients.detach().to(torch.float32)
    for part in parts:
        with torch.enable_grad():
            node, log_probs = _log_probs(policy.decoder, shared, sums, part, policy.ramp)
        torch.autograd.backward(log_probs, weights[part.owner, part.row])
        assert node.grad is not None
        _add_node_gradient(node.grad, shared, sums, part)
    torch.autograd.backward(
        (cached.keys, cached.values, cached.logit_keys, embeddings),
        (
            _heads_apart(sums.keys, cached.keys),
            _heads_apart(sums.values, cached.values),
            sums.logit_keys.sum(0).to(cached.logit_keys.dtype),
            sums.embeddings.sum(0).to(embeddings.dtype),
        ),
    )


def _parts(packed: PackedDecisions, batch: int) -> Iterator[_Part]:
    """Parts of equal size, so that nothing compiles twice; the last one is filled up with unused tiles."""
    capacity = len(packed.row)
    count = -(-capacity // SLOTS_PER_PART)
    size = -(-capacity // (TILE * count)) * TILE
    missing = count * size - capacity

    def split(values: Tensor, fill: int = 0) -> tuple[Tensor, ...]:
        if missing:
            values = functional.pad(values, (0, 0) * (values.dim() - 1) + (0, missing), value=fill)
        return torch.split(values, size)

    columns = (packed.row, packed.current, packed.action, packed.features, packed.mask.view(torch.int32), packed.valid)
    instance = split(packed.instance, fill=batch)
    for index, entries in enumerate(zip(*map(split, columns), strict=True)):
        row, current, action, features, mask, valid = entries
        owner = instance[index].clamp(max=batch - 1)
        first = index * size // TILE
        yield _Part(instance[index], owner, row, current, action, features, mask, valid, packed.first_tile, first)


def _log_probs(
    decoder: PointerDecoder, shared: _Shared, sums: _Sums | None, part: _Part, ramp: Ramp
) -> tuple[Tensor, Tensor]:
    """Embeddings of the current nodes, a leaf, ``[P, d]``, and the actions' log-probabilities, float32 ``[P]``."""
    num_nodes, width = shared.keys.shape[1:]
    node = shared.embeddings.flatten(0, 1)[part.owner * num_nodes + part.current]
    node.requires_grad_(torch.is_grad_enabled())
    features = decoder.state_features(part.features[:, None], shared.distance_limit[part.owner])[:, 0].to(node.dtype)
    ask, answer = (_compiled(_ask), _compiled(_answer)) if node.is_cuda else (_ask, _answer)
    context, query = ask(decoder.query, node, features)
    glimpse = _Glimpse.apply(query, shared, sums, part)  # type: ignore[no-untyped-call]
    heads = glimpse.view(1, -1, shared.heads, width // shared.heads)
    pointer = answer(decoder.head, heads, context[None], node[None], features[None], ramp)
    return node, _Pointer.apply(pointer[0], shared, sums, part)  # type: ignore[no-untyped-call]


def _ask(query_map: nn.Module, node: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
    """What decisions depend on, ``[P, d + s]``, and the glimpse's queries, ``[P, d]``."""
    context = torch.cat((node, features), dim=-1)
    return context, query_map(context)


def _answer(head: nn.Module, *arguments: Any) -> Tensor:
    """Pointer queries, ``[1, P, d]``."""
    pointer: Tensor = head(*arguments)[0]
    return pointer


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled on first use, for the given shapes alone: known sizes can be padded to what matrix products like."""
    return torch.compile(function, dynamic=False)


class _Glimpse(torch.autograd.Function):
    """Attention of decisions, ``[P, d]``, to the nodes of their instances, ``[P, d]``."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, shared: _Shared, sums: _Sums | None, part: _Part) -> Tensor:
        ctx.shared, ctx.sums, ctx.part, ctx.dtype = shared, sums, part, query.dtype
        query = query.to(shared.keys.dtype).contiguous()
        batch, num_nodes, _ = shared.keys.shape
        glimpse = torch.empty_like(query)
        normalizer = query.new_empty(len(query), shared.heads, dtype=torch.float32)
        kernels.glimpse_forward[(part.num_tiles * shared.heads,)](
            query,
            shared.keys,
            shared.values,
            part.mask,
            part.instance,
            glimpse,
            normalizer,
            batch,
            num_nodes,
            **_glimpse_constants(shared, part),
            num_warps=FORWARD_WARPS,
        )
        ctx.save_for_backward(query, normalizer)
        return glimpse

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        query, normalizer = ctx.saved_tensors
        shared, sums, part = ctx.shared, ctx.sums, ctx.part
        batch, num_nodes, _ = shared.keys.shape
        splits = len(sums.keys)
        gradient = torch.zeros_like(query)
        kernels.glimpse_backward[(splits * batch * shared.heads,)](
            query,
            shared.keys,
            shared.values,
            part.mask,
            normalizer,
            upstream[0].contiguous(),
            part.first_tile,
            gradient,
            sums.keys,
            sums.values,
            part.first,
            part.num_tiles,
            batch,
            num_nodes,
            splits,
            **_glimpse_constants(shared, part),
            num_warps=_backward_warps(shared),
        )
        return gradient.to(ctx.dtype), None, None, None


class _Pointer(torch.autograd.Function):
    """Log-probabilities of the actions by pointer queries ``[P, d]``, float32 ``[P]``."""

    @staticmethod
    def forward(ctx: Any, pointer: Tensor, shared: _Shared, sums: _Sums | None, part: _Part) -> Tensor:
        ctx.shared, ctx.sums, ctx.part, ctx.dtype = shared, sums, part, pointer.dtype
        pointer = pointer.to(shared.keys.dtype).contiguous()
        batch, num_nodes, _ = shared.keys.shape
        log_probs = pointer.new_empty(len(pointer), dtype=torch.float32)
        normalizer = torch.empty_like(log_probs)
        kernels.pointer_forward[(part.num_tiles,)](
            *_pointer_inputs(pointer, shared, part),
            part.instance,
            log_probs,
            normalizer,
            batch,
            num_nodes,
            **_pointer_constants(shared, part),
            num_warps=FORWARD_WARPS,
        )
        ctx.save_for_backward(pointer, normalizer)
        return log_probs

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        pointer, normalizer = ctx.saved_tensors
        shared, sums, part = ctx.shared, ctx.sums, ctx.part
        batch, num_nodes, _ = shared.keys.shape
        splits = len(sums.logit_keys)
        gradient = torch.zeros_like(pointer)
        kernels.pointer_backward[(splits * batch,)](
            *_pointer_inputs(pointer, shared, part),
            normalizer,
            upstream[0].contiguous(),
            part.first_tile,
            gradient,
            sums.logit_keys,
            part.first,
            part.num_tiles,
            batch,
            num_nodes,
            splits,
            **_pointer_constants(shared, part),
            num_warps=_backward_warps(shared),
        )
        return gradient.to(ctx.dtype), None, None, None


def _add_node_gradient(gradient: Tensor, shared: _Shared, sums: _Sums, part: _Part) -> None:
    """Add gradients by embeddings of current nodes, ``[P, d]``, to the sums of their instances."""
    batch, num_nodes, width = shared.keys.shape
    splits = len(sums.embeddings)
    kernels.node_backward[(splits * batch,)](
        gradient.contiguous(),
        part.current,
        part.first_tile,
        sums.embeddings,
        part.first,
        part.num_tiles,
        batch,
        num_nodes,
        splits,
        width=width,
        node_block=shared.node_block,
        num_warps=_backward_warps(shared),
    )


def _glimpse_constants(shared: _Shared, part: _Part) -> dict[str, Any]:
    width = shared.keys.shape[2]
    return {
        "heads": shared.heads,
        "width": width,
        "words": part.mask.shape[1],
        "masking": shared.glimpse_mask,
        "scale": (width // shared.heads) ** -0.5,
        "node_block": shared.node_block,
    }


def _pointer_inputs(pointer: Tensor, shared: _Shared, part: _Part) -> tuple[Tensor, ...]:
    # Without distances the kernel takes no look at that argument, which has to be some tensor.
    distances = shared.logit_keys if shared.log_distances is None else shared.log_distances
    return pointer, shared.logit_keys, part.mask, distances, part.current, part.action, part.valid


def _pointer_constants(shared: _Shared, part: _Part) -> dict[str, Any]:
    width = shared.keys.shape[2]
    return {
        "width": width,
        "words": part.mask.shape[1],
        "scale": width**-0.5,
        "with_distances": shared.log_distances is not None,
        "node_block": shared.node_block,
    }


def _backward_warps(shared: _Shared) -> int:
    """Four warps multiply 64 rows at a time, and backward kernels have a row for each node."""
    return 4 if shared.node_block <= TILE else 8


def _heads_apart(sums: Tensor, like: Tensor) -> Tensor:
    """Sum over splits ``[splits, B, N, d]`` as a gradient by keys or values ``[B, H, N, D]``."""
    batch, heads, num_nodes, head_width = like.shape
    total = sums.sum(0).view(batch, num_nodes, heads, head_width)
    gradient: Tensor = total.transpose(1, 2).to(like.dtype)
    return gradient
