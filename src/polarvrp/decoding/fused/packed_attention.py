"""Autograd operations for attention and pointer of packed decisions, on the kernels of ``kernels.scoring``.

Only the gradient by queries flows on. What all decisions of an instance share gets its gradient as sums, to which the
kernels add chunk after chunk.

Shape legend: B instances, S tours an instance, N nodes, C slots of the table, P slots of a chunk, W mask words of
32 bits, H heads, D = d / H features of a head, d width.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from polarvrp.decoding.fused.kernels import scoring as kernels
from polarvrp.decoding.fused.packing import TILE, PackedDecisions, block_of
from polarvrp.model.decoder import DecoderCache, PointerDecoder

SLOTS_PER_CHUNK = 1 << 16
"""Bounds the memory of the head."""

CHUNK_STEP = 1 << 14
"""The last chunk has a multiple of so many slots; a chunk that is alone and smaller has a power of two."""

GLIMPSE_PROGRAMS = 1000
POINTER_PROGRAMS = 132
"""Wanted of a chunk's backward kernels, to fill a large GPU; an instance's tiles are split among programs for that."""

FORWARD_WARPS = 4


@dataclass(frozen=True, slots=True)
class DecisionChunk:
    """Chunk of packed decisions: some whole tiles of the table, as of :class:`PackedDecisions`.

    Attributes:
        owner: Instance of each slot, any one on unused tiles, int64, ``[P]``.
        first_tile: Of the whole table, int64, ``[B + 1]``.
        first: First tile of this chunk.
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
        """Tiles of this chunk."""
        return len(self.instance) // TILE


@dataclass(frozen=True, slots=True)
class Shared:
    """Operands shared by all decisions of an instance, in the form the kernels read.

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
    def of(cls, cache: DecoderCache, decoder: PointerDecoder) -> "Shared":
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
        return block_of(self.keys.shape[1])


@dataclass(frozen=True, slots=True)
class Sums:
    """Gradient accumulators of the tensors of :class:`Shared`; each split has its own sum.

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
    def zeros(cls, shared: Shared, num_tiles: int, tiles_per_chunk: int) -> "Sums":
        """Nothing added yet."""
        batch = len(shared.keys)
        tiles_per_instance = -(-num_tiles // batch)
        instances_per_chunk = max(tiles_per_chunk // tiles_per_instance, 1)

        def sums(programs: int) -> Tensor:
            splits = min(-(-programs // instances_per_chunk), tiles_per_instance)
            return torch.zeros(splits, *shared.keys.shape, dtype=torch.float32, device=shared.keys.device)

        of_a_head = -(-GLIMPSE_PROGRAMS // shared.heads)
        return cls(sums(of_a_head), sums(of_a_head), sums(POINTER_PROGRAMS), sums(POINTER_PROGRAMS))


def chunks_of(packed: PackedDecisions, batch: int) -> Iterator[DecisionChunk]:
    """Chunks of few sizes, so that little is compiled twice; the last one is filled up with unused tiles."""
    capacity = len(packed.row)
    size = min(SLOTS_PER_CHUNK, _rounded_up(capacity))
    missing = _rounded_up(capacity) - capacity

    def split(values: Tensor, fill: int = 0) -> tuple[Tensor, ...]:
        if missing:
            values = functional.pad(values, (0, 0) * (values.dim() - 1) + (0, missing), value=fill)
        return torch.split(values, size)

    table = (packed.row, packed.current, packed.action, packed.features, packed.mask.view(torch.int32), packed.valid)
    instance = split(packed.instance, fill=batch)
    for index, entries in enumerate(zip(*map(split, table), strict=True)):
        row, current, action, features, mask, valid = entries
        owner = instance[index].clamp(max=batch - 1)
        first = index * size // TILE
        yield DecisionChunk(
            instance[index], owner, row, current, action, features, mask, valid, packed.first_tile, first
        )


def _rounded_up(slots: int) -> int:
    """Slots of the last chunk and those before it."""
    if slots >= CHUNK_STEP:
        return -(-slots // CHUNK_STEP) * CHUNK_STEP
    return int(max(TILE, 1 << (slots - 1).bit_length()))


def packed_glimpse(query: Tensor, shared: Shared, sums: Sums | None, chunk: DecisionChunk) -> Tensor:
    """Attention of decisions to the nodes of their instances.

    Args:
        query: ``[P, d]``.
        shared: Of the instances.
        sums: Where the gradients by keys and values go; may be ``None`` without gradients.
        chunk: The decisions.

    Returns:
        Heads side by side, 0 on unused tiles, ``[P, d]``.
    """
    glimpse: Tensor = _Glimpse.apply(query, shared, sums, chunk)  # type: ignore[no-untyped-call]
    return glimpse


def packed_pointer(pointer: Tensor, shared: Shared, sums: Sums | None, chunk: DecisionChunk) -> Tensor:
    """Log-probabilities of the actions.

    Args:
        pointer: What the decoder's head makes of its glimpse, ``[P, d]``.
        shared: Of the instances.
        sums: Where the gradient by the pointer's keys goes; may be ``None`` without gradients.
        chunk: The decisions.

    Returns:
        0 in empty slots, float32, ``[P]``.
    """
    log_probs: Tensor = _Pointer.apply(pointer, shared, sums, chunk)  # type: ignore[no-untyped-call]
    return log_probs


def add_node_gradients(gradient: Tensor, shared: Shared, sums: Sums, chunk: DecisionChunk) -> None:
    """Add gradients by embeddings of current nodes, ``[P, d]``, to the sums of their instances."""
    batch, num_nodes, width = shared.keys.shape
    splits = len(sums.embeddings)
    kernels.node_backward[(splits * batch,)](
        gradient.contiguous(),
        chunk.current,
        chunk.first_tile,
        sums.embeddings,
        chunk.first,
        chunk.num_tiles,
        batch,
        num_nodes,
        splits,
        width=width,
        node_block=shared.node_block,
        num_warps=_backward_warps(shared),
    )


def totals_of_tours(log_probs: Tensor, packed: PackedDecisions, batch: int) -> Tensor:
    """Sums over decisions, those of all chunks one after the other, float32 ``[B, S]``."""
    totals = log_probs.new_empty(batch, packed.num_rows)
    num_tiles, row_blocks = len(packed.row) // TILE, -(-packed.num_rows // TILE)
    kernels.sum_rows[(batch * row_blocks,)](
        log_probs, packed.row, packed.first_tile, totals, num_tiles, packed.num_rows, row_blocks
    )
    return totals


class _Glimpse(torch.autograd.Function):
    """Attention of decisions, ``[P, d]``, to the nodes of their instances, ``[P, d]``."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, shared: Shared, sums: Sums | None, chunk: DecisionChunk) -> Tensor:
        ctx.shared, ctx.sums, ctx.chunk, ctx.dtype = shared, sums, chunk, query.dtype
        query = query.to(shared.keys.dtype).contiguous()
        batch, num_nodes, _ = shared.keys.shape
        glimpse = torch.empty_like(query)
        normalizer = query.new_empty(len(query), shared.heads, dtype=torch.float32)
        kernels.glimpse_forward[(chunk.num_tiles * shared.heads,)](
            query,
            shared.keys,
            shared.values,
            chunk.mask,
            chunk.instance,
            glimpse,
            normalizer,
            batch,
            num_nodes,
            **_glimpse_constants(shared, chunk),
            num_warps=FORWARD_WARPS,
        )
        ctx.save_for_backward(query, normalizer)
        return glimpse

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        query, normalizer = ctx.saved_tensors
        shared, sums, chunk = ctx.shared, ctx.sums, ctx.chunk
        batch, num_nodes, _ = shared.keys.shape
        splits = len(sums.keys)
        gradient = torch.zeros_like(query)
        kernels.glimpse_backward[(splits * batch * shared.heads,)](
            query,
            shared.keys,
            shared.values,
            chunk.mask,
            normalizer,
            upstream[0].contiguous(),
            chunk.first_tile,
            gradient,
            sums.keys,
            sums.values,
            chunk.first,
            chunk.num_tiles,
            batch,
            num_nodes,
            splits,
            **_glimpse_constants(shared, chunk),
            num_warps=_backward_warps(shared),
        )
        return gradient.to(ctx.dtype), None, None, None


class _Pointer(torch.autograd.Function):
    """Log-probabilities of the actions by pointer queries ``[P, d]``, float32 ``[P]``."""

    @staticmethod
    def forward(ctx: Any, pointer: Tensor, shared: Shared, sums: Sums | None, chunk: DecisionChunk) -> Tensor:
        ctx.shared, ctx.sums, ctx.chunk, ctx.dtype = shared, sums, chunk, pointer.dtype
        pointer = pointer.to(shared.keys.dtype).contiguous()
        batch, num_nodes, _ = shared.keys.shape
        log_probs = pointer.new_empty(len(pointer), dtype=torch.float32)
        normalizer = torch.empty_like(log_probs)
        kernels.pointer_forward[(chunk.num_tiles,)](
            *_pointer_inputs(pointer, shared, chunk),
            chunk.instance,
            log_probs,
            normalizer,
            batch,
            num_nodes,
            **_pointer_constants(shared, chunk),
            num_warps=FORWARD_WARPS,
        )
        ctx.save_for_backward(pointer, normalizer)
        return log_probs

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        pointer, normalizer = ctx.saved_tensors
        shared, sums, chunk = ctx.shared, ctx.sums, ctx.chunk
        batch, num_nodes, _ = shared.keys.shape
        splits = len(sums.logit_keys)
        gradient = torch.zeros_like(pointer)
        kernels.pointer_backward[(splits * batch,)](
            *_pointer_inputs(pointer, shared, chunk),
            normalizer,
            upstream[0].contiguous(),
            chunk.first_tile,
            gradient,
            sums.logit_keys,
            chunk.first,
            chunk.num_tiles,
            batch,
            num_nodes,
            splits,
            **_pointer_constants(shared, chunk),
            num_warps=_backward_warps(shared),
        )
        return gradient.to(ctx.dtype), None, None, None


def _glimpse_constants(shared: Shared, chunk: DecisionChunk) -> dict[str, Any]:
    width = shared.keys.shape[2]
    return {
        "heads": shared.heads,
        "width": width,
        "words": chunk.mask.shape[1],
        "masking": shared.glimpse_mask,
        "scale": (width // shared.heads) ** -0.5,
        "node_block": shared.node_block,
    }


def _pointer_inputs(pointer: Tensor, shared: Shared, chunk: DecisionChunk) -> tuple[Tensor, ...]:
    # Without distances the kernel takes no look at that argument, which has to be some tensor.
    distances = shared.logit_keys if shared.log_distances is None else shared.log_distances
    return pointer, shared.logit_keys, chunk.mask, distances, chunk.current, chunk.action, chunk.valid


def _pointer_constants(shared: Shared, chunk: DecisionChunk) -> dict[str, Any]:
    width = shared.keys.shape[2]
    return {
        "width": width,
        "words": chunk.mask.shape[1],
        "scale": width**-0.5,
        "with_distances": shared.log_distances is not None,
        "node_block": shared.node_block,
    }


def _backward_warps(shared: Shared) -> int:
    """Four warps multiply 64 rows at a time, and backward kernels have a row for each node."""
    return 4 if shared.node_block <= TILE else 8
