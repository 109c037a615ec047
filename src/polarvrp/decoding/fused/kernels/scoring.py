# mypy: disable-error-code="import-untyped, untyped-decorator, no-untyped-def"
"""Scoring kernels: attention and pointer over tiles of packed decisions of one instance each.

Gradients of what all decisions of an instance share are summed in registers: one program takes every ``splits``-th
tile of its instance and adds its sum to a place of its own, so results do not depend on the order of programs.

A chunk is a run of whole tiles of the table; ``first`` is its first tile and pointers to slots point at its first slot.
Operands are bfloat16 or float32, sums, softmax and tanh float32. Loops are ``while`` because the interpreter
cannot count up to a loaded number. Powers of two: ``width``, ``heads``, ``node_block``.

Shape legend: B instances, N nodes, P slots of a chunk, C slots of the table, W mask words of 32 bits,
d = ``width`` features, H = ``heads`` heads, S tours an instance.
"""

import triton
import triton.language as tl

from polarvrp.decoding import masks
from polarvrp.decoding.fused import packing
from polarvrp.model import decoder
from polarvrp.model.kernels.products import EXCLUDED, product

CHANGING = ("first", "num_tiles", "num_instances", "num_nodes", "num_rows", "row_blocks", "splits")
"""Numbers that no code is compiled for: nothing may compile while a graph is captured."""

TILE = tl.constexpr(packing.TILE)
HALF_WORD_BITS = tl.constexpr(masks.WORD_BITS // 2)
CLIP = tl.constexpr(decoder.CLIP)


@triton.jit
def legal_nodes(mask, slots, nodes, num_nodes, words: tl.constexpr):
    """Mask bits as booleans; ``slots`` and ``nodes`` are a column and a row, or a row and a column."""
    bits = tl.load(mask + slots * words)
    for word in tl.static_range(1, words):
        bits = tl.where(nodes // HALF_WORD_BITS == word, tl.load(mask + slots * words + word), bits)
    return (((bits >> (nodes % HALF_WORD_BITS)) & 1) != 0) & (nodes < num_nodes)


@triton.jit
def load_nodes(rows, instance, nodes, features, num_nodes, width: tl.constexpr):
    """Some features of the nodes of an instance, 0 beyond the last node, ``[nodes, features]``."""
    offsets = (instance * num_nodes + nodes)[:, None] * width + features[None, :]
    return tl.load(rows + offsets, mask=(nodes < num_nodes)[:, None], other=0.0)


@triton.jit
def add_to_nodes(sums, values, place, nodes, features, num_nodes, width: tl.constexpr):
    """Add ``[nodes, features]`` to the sums of one place of ``[places, N, d]``."""
    pointers = sums + (place * num_nodes + nodes)[:, None] * width + features[None, :]
    inside = (nodes < num_nodes)[:, None]
    tl.store(pointers, tl.load(pointers, mask=inside, other=0.0) + values, mask=inside)


@triton.jit
def glimpse_scores(products, mask, slots, nodes, num_nodes, words: tl.constexpr, masking: tl.constexpr):
    """Products of query and key with the mask in them; ``slots`` and ``nodes`` as of ``legal_nodes``."""
    if masking == "hard":
        return tl.where(legal_nodes(mask, slots, nodes, num_nodes, words), products, EXCLUDED)
    if masking == "plus_one":
        products += legal_nodes(mask, slots, nodes, num_nodes, words).to(tl.float32)
    return tl.where(nodes < num_nodes, products, EXCLUDED)


@triton.jit(do_not_specialize=CHANGING)
def glimpse_forward(
    query,  # [P, d]
    keys,  # [B, N, d]
    values,  # [B, N, d]
    mask,  # int32 [P, W]
    instance,  # int64 [P]
    glimpse,  # [P, d], written
    normalizer,  # logarithm of the sum of exponentials, float32 [P, H], written
    num_instances,
    num_nodes,
    heads: tl.constexpr,
    width: tl.constexpr,
    words: tl.constexpr,
    masking: tl.constexpr,
    scale: tl.constexpr,
    node_block: tl.constexpr,
):
    """Attention of each decision to the nodes of its instance; one program a tile and head."""
    tile, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    head_width: tl.constexpr = width // heads
    slots = tile * TILE + tl.arange(0, TILE)
    features = head * head_width + tl.arange(0, head_width)
    offsets = slots[:, None] * width + features[None, :]
    owner = tl.load(instance + tile * TILE).to(tl.int32)
    if owner < num_instances:
        nodes = tl.arange(0, node_block)
        tile_keys = load_nodes(keys, owner, nodes, features, num_nodes, width)
        tile_values = load_nodes(values, owner, nodes, features, num_nodes, width)
        products = product(tl.load(query + offsets), tl.trans(tile_keys)) * scale
        scores = glimpse_scores(products, mask, slots[:, None], nodes[None, :], num_nodes, words, masking)
        largest = tl.max(scores, 1)
        weights = tl.exp(scores - largest[:, None])
        total = tl.sum(weights, 1)
        mixed = product(weights.to(tile_values.dtype), tile_values) / total[:, None]
        tl.store(glimpse + offsets, mixed.to(glimpse.dtype.element_ty))
        tl.store(normalizer + slots * heads + head, largest + tl.log(total))
    else:
        tl.store(glimpse + offsets, tl.zeros([TILE, head_width], glimpse.dtype.element_ty))


@triton.jit(do_not_specialize=CHANGING)
def glimpse_backward(
    query,  # [P, d]
    keys,  # [B, N, d]
    values,  # [B, N, d]
    mask,  # int32 [P, W]
    normalizer,  # float32 [P, H]
    upstream,  # gradient by the glimpse, [P, d]
    first_tile,  # int64 [B + 1]
    query_gradient,  # [P, d], zeros, written
    key_sums,  # float32 [splits, B, N, d], added to
    value_sums,  # float32 [splits, B, N, d], added to
    first,
    num_tiles,
    num_instances,
    num_nodes,
    splits,
    heads: tl.constexpr,
    width: tl.constexpr,
    words: tl.constexpr,
    masking: tl.constexpr,
    scale: tl.constexpr,
    node_block: tl.constexpr,
):
    """Gradients of ``glimpse_forward``; one program a head, split and instance."""
    head, place = tl.program_id(0) % heads, tl.program_id(0) // heads
    split, owner = place // num_instances, place % num_instances
    head_width: tl.constexpr = width // heads
    begin = tl.maximum(tl.load(first_tile + owner) - first, 0).to(tl.int32) + split
    end = tl.minimum(tl.load(first_tile + owner + 1) - first, num_tiles).to(tl.int32)
    if begin < end:
        features = head * head_width + tl.arange(0, head_width)
        nodes = tl.arange(0, node_block)
        tile_keys = load_nodes(keys, owner, nodes, features, num_nodes, width)
        tile_values = load_nodes(values, owner, nodes, features, num_nodes, width)
        key_sum = tl.zeros([node_block, head_width], tl.float32)
        value_sum = tl.zeros([node_block, head_width], tl.float32)
        tile = begin
        while tile < end:
            slots = tile * TILE + tl.arange(0, TILE)
            offsets = slots[:, None] * width + features[None, :]
            tile_query, outer = tl.load(query + offsets), tl.load(upstream + offsets)
            products = product(tile_keys, tl.trans(tile_query)) * scale  # [nodes, slots]
            scores = glimpse_scores(products, mask, slots[None, :], nodes[:, None], num_nodes, words, masking)
            weights = tl.exp(scores - tl.load(normalizer + slots * heads + head)[None, :])
            value_sum += product(weights.to(outer.dtype), outer)
            inner = product(tile_values, tl.trans(outer))
            # Their weighted mean: upstream times glimpse is cheaper, but leaves differences that are all rounding.
            inner = (weights * (inner - tl.sum(weights * inner, 0)[None, :]) * scale).to(tile_keys.dtype)
            key_sum += product(inner, tile_query)
            gradient = product(tl.trans(inner), tile_keys)
            tl.store(query_gradient + offsets, gradient.to(query_gradient.dtype.element_ty))
            tile += splits
        add_to_nodes(key_sums, key_sum, place, nodes, features, num_nodes, width)
        add_to_nodes(value_sums, value_sum, place, nodes, features, num_nodes, width)


@triton.jit
def pointer_logits(
    products,
    mask,
    log_distances,
    current,
    owner,
    slots,
    nodes,
    num_nodes,
    words: tl.constexpr,
    with_distances: tl.constexpr,
):
    """Clipped logits, ``EXCLUDED`` where a node may not come, and slopes of tanh, 0 there; as ``glimpse_scores``."""
    small = tl.exp(-2.0 * tl.abs(products))
    inverse = 1.0 / (1.0 + small)
    logits = CLIP * (1.0 - small) * inverse
    logits = tl.where(products < 0.0, -logits, logits)
    if with_distances:
        rows = (owner * num_nodes + tl.load(current + slots).to(tl.int32)) * num_nodes
        logits -= tl.load(log_distances + rows + nodes, mask=nodes < num_nodes, other=0.0).to(tl.float32)
    legal = legal_nodes(mask, slots, nodes, num_nodes, words)
    return tl.where(legal, logits, EXCLUDED), tl.where(legal, 4.0 * small * inverse * inverse, 0.0)


@triton.jit(do_not_specialize=CHANGING)
def pointer_forward(
    pointer,  # [P, d]
    keys,  # [B, N, d]
    mask,  # int32 [P, W]
    log_distances,  # [B, N, N]
    current,  # int64 [P]
    action,  # int64 [P]
    valid,  # bool [P]
    instance,  # int64 [P]
    log_probs,  # float32 [P], written
    normalizer,  # logarithm of the sum of exponentials, float32 [P], written
    num_instances,
    num_nodes,
    width: tl.constexpr,
    words: tl.constexpr,
    scale: tl.constexpr,
    with_distances: tl.constexpr,
    node_block: tl.constexpr,
):
    """Log-probability of each decision's action, 0 in empty slots; one program a tile."""
    tile = tl.program_id(0)
    slots = tile * TILE + tl.arange(0, TILE)
    owner = tl.load(instance + tile * TILE).to(tl.int32)
    if owner < num_instances:
        nodes, features = tl.arange(0, node_block), tl.arange(0, width)
        tile_keys = load_nodes(keys, owner, nodes, features, num_nodes, width)
        tile_pointer = tl.load(pointer + slots[:, None] * width + features[None, :])
        products = product(tile_pointer, tl.trans(tile_keys)) * scale
        logits, _ = pointer_logits(
            products,
            mask,
            log_distances,
            current,
            owner,
            slots[:, None],
            nodes[None, :],
            num_nodes,
            words,
            with_distances,
        )
        largest = tl.max(logits, 1)
        log_total = largest + tl.log(tl.sum(tl.exp(logits - largest[:, None]), 1))
        taken = tl.load(action + slots).to(tl.int32)[:, None] == nodes[None, :]
        chosen = tl.sum(tl.where(taken, logits, 0.0), 1)
        tl.store(log_probs + slots, tl.where(tl.load(valid + slots), chosen - log_total, 0.0))
        tl.store(normalizer + slots, log_total)
    else:
        tl.store(log_probs + slots, tl.zeros([TILE], tl.float32))


@triton.jit(do_not_specialize=CHANGING)
def pointer_backward(
    pointer,  # [P, d]
    keys,  # [B, N, d]
    mask,  # int32 [P, W]
    log_distances,  # [B, N, N]
    current,  # int64 [P]
    action,  # int64 [P]
    valid,  # bool [P]
    normalizer,  # float32 [P]
    upstream,  # gradient by the log-probabilities, float32 [P]
    first_tile,  # int64 [B + 1]
    pointer_gradient,  # [P, d], zeros, written
    key_sums,  # float32 [splits, B, N, d], added to
    first,
    num_tiles,
    num_instances,
    num_nodes,
    splits,
    width: tl.constexpr,
    words: tl.constexpr,
    scale: tl.constexpr,
    with_distances: tl.constexpr,
    node_block: tl.constexpr,
):
    """Gradients of ``pointer_forward``; one program a split and instance."""
    place = tl.program_id(0)
    split, owner = place // num_instances, place % num_instances
    begin = tl.maximum(tl.load(first_tile + owner) - first, 0).to(tl.int32) + split
    end = tl.minimum(tl.load(first_tile + owner + 1) - first, num_tiles).to(tl.int32)
    if begin < end:
        nodes, features = tl.arange(0, node_block), tl.arange(0, width)
        tile_keys = load_nodes(keys, owner, nodes, features, num_nodes, width)
        key_sum = tl.zeros([node_block, width], tl.float32)
        tile = begin
        while tile < end:
            slots = tile * TILE + tl.arange(0, TILE)
            offsets = slots[:, None] * width + features[None, :]
            tile_pointer = tl.load(pointer + offsets)
            products = product(tile_keys, tl.trans(tile_pointer)) * scale  # [nodes, slots]
            logits, slopes = pointer_logits(
                products,
                mask,
                log_distances,
                current,
                owner,
                slots[None, :],
                nodes[:, None],
                num_nodes,
                words,
                with_distances,
            )
            probabilities = tl.exp(logits - tl.load(normalizer + slots)[None, :])
            # Saturated logits leave sums over nodes that nearly vanish: rounding in the normalizer must not show there.
            probabilities *= (1.0 / tl.sum(probabilities, 0))[None, :]
            taken = nodes[:, None] == tl.load(action + slots).to(tl.int32)[None, :]
            outer = tl.where(tl.load(valid + slots), tl.load(upstream + slots), 0.0) * (CLIP * scale)
            inner = (outer[None, :] * (taken.to(tl.float32) - probabilities) * slopes).to(tile_keys.dtype)
            key_sum += product(inner, tile_pointer)
            gradient = product(tl.trans(inner), tile_keys)
            tl.store(pointer_gradient + offsets, gradient.to(pointer_gradient.dtype.element_ty))
            tile += splits
        add_to_nodes(key_sums, key_sum, place, nodes, features, num_nodes, width)


@triton.jit(do_not_specialize=CHANGING)
def node_backward(
    upstream,  # gradient by the current node's embedding, [P, d]
    current,  # int64 [P]
    first_tile,  # int64 [B + 1]
    node_sums,  # float32 [splits, B, N, d], added to
    first,
    num_tiles,
    num_instances,
    num_nodes,
    splits,
    width: tl.constexpr,
    node_block: tl.constexpr,
):
    """Gradient by embeddings that were taken as current nodes; one program a split and instance."""
    place = tl.program_id(0)
    split, owner = place // num_instances, place % num_instances
    begin = tl.maximum(tl.load(first_tile + owner) - first, 0).to(tl.int32) + split
    end = tl.minimum(tl.load(first_tile + owner + 1) - first, num_tiles).to(tl.int32)
    if begin < end:
        nodes, features = tl.arange(0, node_block), tl.arange(0, width)
        node_sum = tl.zeros([node_block, width], tl.float32)
        tile = begin
        while tile < end:
            slots = tile * TILE + tl.arange(0, TILE)
            outer = tl.load(upstream + slots[:, None] * width + features[None, :])
            here = nodes[:, None] == tl.load(current + slots).to(tl.int32)[None, :]
            node_sum += product(here.to(tl.float32).to(outer.dtype), outer)  # the interpreter needs the detour
            tile += splits
        add_to_nodes(node_sums, node_sum, place, nodes, features, num_nodes, width)


@triton.jit(do_not_specialize=CHANGING)
def sum_rows(
    log_probs,  # float32 [C]
    row,  # int64 [C]
    first_tile,  # int64 [B + 1]
    totals,  # float32 [B, S], written
    num_tiles,
    num_rows,
    row_blocks,
):
    """Sum of the log-probabilities of each tour; one program an instance and ``TILE`` tours."""
    owner, block = tl.program_id(0) // row_blocks, tl.program_id(0) % row_blocks
    rows = block * TILE + tl.arange(0, TILE)
    total = tl.zeros([TILE], tl.float32)
    begin = tl.load(first_tile + owner).to(tl.int32)
    end = tl.minimum(tl.load(first_tile + owner + 1), num_tiles).to(tl.int32)
    tile = begin
    while tile < end:
        slots = tile * TILE + tl.arange(0, TILE)
        mine = rows[:, None] == tl.load(row + slots).to(tl.int32)[None, :]
        total += tl.sum(tl.where(mine, tl.load(log_probs + slots)[None, :], 0.0), 1)
        tile += 1
    tl.store(totals + owner * num_rows + rows, total, mask=rows < num_rows)
