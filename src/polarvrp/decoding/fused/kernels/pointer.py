# mypy: disable-error-code="import-untyped, untyped-decorator, no-untyped-def"
"""Pointer decoder inside a kernel: logits of the next node for some rows of one instance.

``model.decoder.PointerDecoder`` with a plain, gated or ReLD head. Matrix operands are bfloat16 or float32; sums,
norms, softmax and tanh float32.

Shape legend: B instances, R rows of a program, P padded nodes, H heads, D = d / H features of a head, d width,
f hidden features.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from polarvrp.decoding.fused.kernels.rules import contains, free_share
from polarvrp.model import decoder, norms
from polarvrp.model.kernels.products import EXCLUDED, INTERPRETED, product

CLIP = tl.constexpr(decoder.CLIP)
NORM_EPSILON = tl.constexpr(norms.EPSILON)
WITHOUT_LIMIT = tl.constexpr(decoder.REMAINING_WITHOUT_LIMIT)
STATE_BLOCK = tl.constexpr(16)  # five numbers, padded to what tensor cores multiply


class Tables(NamedTuple):
    """Node tables of the decoder, computed beforehand."""

    embeddings: Any  # [B, P, d]
    queries: Any  # share of the embedding in the glimpse's query, [B, P, d]
    gates: Any  # share of the embedding in the gates, that of a head at each of its features, [B, P, d]
    glimpse_keys: Any  # [B, H, P, D]
    glimpse_values: Any  # [B, H, P, D]
    logit_keys: Any  # [B, P, d]
    log_distances: Any  # float32 [B, P, P]


class Weights(NamedTuple):
    """Parameters of the decoder; maps of the state have a row for each number of :func:`seen_by`."""

    query: Any  # [16, d]
    gate: Any  # that of a head at each of its features, [16, d]
    state: Any  # [16, d]
    output: Any  # [d, d], inputs first
    output_bias: Any  # [d]
    norm_glimpse: Any  # [d]
    norm_output: Any  # [d]
    up: Any  # [d, f or 2 f]
    up_bias: Any  # [f]
    down: Any  # [f, d]
    down_bias: Any  # [d]
    ramp: Any  # [1]


@triton.jit
def tables_of(tables, index, width: tl.constexpr, node_block: tl.constexpr):
    """Tables of instance ``index``, an int64."""
    nodes = index * node_block
    return Tables(
        embeddings=tables.embeddings + nodes * width,
        queries=tables.queries + nodes * width,
        gates=tables.gates + nodes * width,
        glimpse_keys=tables.glimpse_keys + nodes * width,
        glimpse_values=tables.glimpse_values + nodes * width,
        logit_keys=tables.logit_keys + nodes * width,
        log_distances=tables.log_distances + nodes * node_block,
    )


@triton.jit
def seen_by(instance, state, remaining: tl.constexpr, dtype: tl.constexpr):
    """The state as the decoder sees it (``PointerDecoder.state_features``), ``[R, 16]``.

    Its columns are free linehaul (or, of the forms of what remains, free load), free backhaul, time, length (or length
    left) and open; 0 beyond. Those that a form lacks weigh nothing.
    """
    free, length = free_share(instance, state.used_linehaul), state.length
    free_backhaul = free_share(instance, state.used_backhaul)
    if remaining:
        free = tl.where(free_backhaul == 1, free, free_backhaul)
        length = tl.where(instance.limit == float("inf"), WITHOUT_LIMIT, instance.limit - length)
    column = tl.arange(0, STATE_BLOCK)[None, :]
    seen = tl.where(column == 0, free[:, None], 0.0)
    seen = tl.where(column == 1, free_backhaul[:, None], seen)
    seen = tl.where(column == 2, state.time[:, None], seen)
    seen = tl.where(column == 3, length[:, None], seen)
    seen = tl.where(column == 4, instance.open_route.to(tl.float32)[:, None], seen)
    return seen.to(dtype)


@triton.jit
def times(left, right):
    """Product of matrices with the operands of ``right``, summed in float32."""
    return product(left.to(right.dtype), right)


@triton.jit
def sigmoid(values, dtype: tl.constexpr):
    """Logistic function for operands of ``dtype``, by the hardware's tanh where they are bfloat16.

    Its error of 2e-4 is a tenth of their rounding.
    """
    if dtype == tl.bfloat16 and not INTERPRETED:
        assembly: tl.constexpr = "tanh.approx.f32 $0, $1;"
        half = tl.inline_asm_elementwise(assembly, "=f,f", [0.5 * values], dtype=tl.float32, is_pure=True, pack=1)
        return 0.5 + 0.5 * half
    return tl.sigmoid(values)


@triton.jit
def affine(table, weight, current, seen, columns, width: tl.constexpr):
    """Some columns of a map of embedding and state: the share of the embedding looked up, ``[R, columns]``."""
    rows = tl.arange(0, STATE_BLOCK)
    of_state = times(seen, tl.load(weight + rows[:, None] * width + columns[None, :]))
    return of_state + tl.load(table + current[:, None] * width + columns[None, :]).to(tl.float32)


@triton.jit
def glimpse_of(
    tables,
    weights,
    seen,
    current,
    moves,
    nodes,
    num_nodes,
    head,
    width: tl.constexpr,
    heads: tl.constexpr,
    masking: tl.constexpr,
):
    """What one head sees of the nodes, ``[R, D]``."""
    node_block: tl.constexpr = nodes.shape[0]
    head_width: tl.constexpr = width // heads
    within = tl.arange(0, head_width)
    query = affine(tables.queries, weights.query, current, seen, within + head * head_width, width)
    place = (nodes + head * node_block)[:, None] * head_width + within[None, :]
    scores = times(query, tl.trans(tl.load(tables.glimpse_keys + place))) * (head_width**-0.5)
    if masking == "none":
        visible = (nodes < num_nodes)[None, :]
    else:
        visible = contains(moves.low[:, None], moves.high[:, None], nodes[None, :], node_block)
        if masking == "plus_one":
            scores += visible.to(tl.float32)
            visible = (nodes < num_nodes)[None, :]
    scores = tl.where(visible, scores, EXCLUDED)
    attention = tl.exp(scores - tl.max(scores, 1)[:, None])
    return times(attention, tl.load(tables.glimpse_values + place)) / tl.sum(attention, 1)[:, None]


@triton.jit
def add_glimpses(
    total,
    tables,
    weights,
    seen,
    current,
    moves,
    nodes,
    num_nodes,
    heads: tl.constexpr,
    masking: tl.constexpr,
    gated: tl.constexpr,
    stages: tl.constexpr,
):
    """``total + W_o concat(y) + b_o``, each head times its gate if there are gates, ``[R, d]``."""
    width: tl.constexpr = total.shape[1]
    head_width: tl.constexpr = width // heads
    features = tl.arange(0, width)
    total += tl.load(weights.output_bias + features)[None, :]
    for head in tl.range(0, heads, num_stages=stages):
        glimpse = glimpse_of(tables, weights, seen, current, moves, nodes, num_nodes, head, width, heads, masking)
        columns = tl.arange(0, head_width) + head * head_width
        if gated:
            gate = affine(tables.gates, weights.gate, current, seen, columns, width)
            glimpse *= sigmoid(gate, weights.gate.dtype.element_ty)
        total += times(glimpse, tl.load(weights.output + columns[:, None] * width + features[None, :]))
    return total


@triton.jit
def normalized(rows, weight):
    """``RootMeanSquareNorm`` of ``[R, d]``."""
    width: tl.constexpr = rows.shape[1]
    mean = tl.sum(rows * rows, 1) / width
    return rows * tl.rsqrt(mean + NORM_EPSILON)[:, None] * tl.load(weight + tl.arange(0, width))[None, :]


@triton.jit
def add_gated_feed_forward(rows, weights, hidden: tl.constexpr, block: tl.constexpr, stages: tl.constexpr):
    """``SwiGLU`` and the residual around it, ``[R, d]``."""
    width: tl.constexpr = rows.shape[1]
    features = tl.arange(0, width)
    operand = rows.to(weights.up.dtype.element_ty)
    for first in tl.range(0, hidden, block, num_stages=stages):
        units = tl.arange(0, block) + first
        place = features[:, None] * (2 * hidden) + units[None, :]
        gate = times(operand, tl.load(weights.up + place))
        gate = gate * sigmoid(gate, operand.dtype) * times(operand, tl.load(weights.up + hidden + place))
        rows += times(gate, tl.load(weights.down + units[:, None] * width + features[None, :]))
    return rows


@triton.jit
def add_feed_forward(rows, weights, ramp, hidden: tl.constexpr, block: tl.constexpr, stages: tl.constexpr):
    """``ReluFeedForward`` times the ramp and the residual around it, ``[R, d]``."""
    width: tl.constexpr = rows.shape[1]
    features = tl.arange(0, width)
    operand = rows.to(weights.up.dtype.element_ty)
    rows += ramp * tl.load(weights.down_bias + features)[None, :]
    for first in tl.range(0, hidden, block, num_stages=stages):
        units = tl.arange(0, block) + first
        up = times(operand, tl.load(weights.up + features[:, None] * hidden + units[None, :]))
        up = ramp * tl.maximum(up + tl.load(weights.up_bias + units)[None, :], 0.0)
        rows += times(up, tl.load(weights.down + units[:, None] * width + features[None, :]))
    return rows


@triton.jit
def pointed(rows, tables, nodes):
    """Products of ``[R, d]`` with the pointer's keys, ``[R, P]``."""
    width: tl.constexpr = rows.shape[1]
    features = tl.arange(0, width)
    keys = tl.load(tables.logit_keys + nodes[:, None] * width + features[None, :])
    return times(rows, tl.trans(keys)) * (width**-0.5)


@triton.jit
def logits_of(
    tables,
    weights,
    seen,
    current,
    moves,
    nodes,
    num_nodes,
    width: tl.constexpr,
    heads: tl.constexpr,
    hidden: tl.constexpr,
    head_kind: tl.constexpr,
    ramped: tl.constexpr,
    masking: tl.constexpr,
    hidden_block: tl.constexpr,
    stages: tl.constexpr,
):
    """Clipped logits, ``EXCLUDED`` where a node may not come, ``[R, P]``."""
    node_block: tl.constexpr = nodes.shape[0]
    gated: tl.constexpr = head_kind == "gated"
    features = tl.arange(0, width)
    nothing = tl.zeros([current.shape[0], width], tl.float32)
    rows, ramp = nothing, tl.load(weights.ramp)
    if head_kind != "plain":
        rows = affine(tables.embeddings, weights.state, current, seen, features, width)
    if head_kind == "reld":
        rows *= ramp
    rows = add_glimpses(rows, tables, weights, seen, current, moves, nodes, num_nodes, heads, masking, gated, stages)
    if head_kind == "gated":
        rows = normalized(rows, weights.norm_glimpse)
        rows = normalized(add_gated_feed_forward(rows, weights, hidden, hidden_block, stages), weights.norm_output)
    elif head_kind == "reld":
        rows = add_feed_forward(rows, weights, ramp, hidden, hidden_block, stages)
    scores = pointed(rows, tables, nodes)
    if gated and ramped and ramp < 1.0:
        # The pointer is linear in what it gets, so the share of the glimpse alone can be added here.
        rows = add_glimpses(
            nothing, tables, weights, seen, current, moves, nodes, num_nodes, heads, masking, False, stages
        )
        scores = ramp * scores + (1.0 - ramp) * pointed(rows, tables, nodes)
    logits = CLIP * (1.0 - 2.0 / (tl.exp(2.0 * scores) + 1.0))  # 10 tanh
    if head_kind == "reld":
        logits -= tl.load(tables.log_distances + current[:, None] * node_block + nodes[None, :])
    legal = contains(moves.low[:, None], moves.high[:, None], nodes[None, :], node_block)
    return tl.where(legal, logits, EXCLUDED)


@triton.jit
def uniform(seed, place, row, step):
    """Numbers in [0, 1) by the place of an instance in the whole batch, the row and the step, ``[R]``."""
    same = row * 0
    bits, _, _, _ = tl.philox(seed, row, same + step, same + place.to(tl.int32), same)
    return tl.uint_to_uniform_float(bits)


@triton.jit
def chosen(logits, moves, greedy, numbers, nodes, sampled: tl.constexpr):
    """Node that each row takes and its log-probability; the first depot where nothing is legal."""
    node_block: tl.constexpr = nodes.shape[0]
    largest, action = tl.max(logits, 1, return_indices=True)
    # A compiled maximum beside logits that are not numbers may be any node's, that of one which does not exist too.
    action = tl.where(largest > EXCLUDED, action, 0)
    shares = tl.exp(logits - largest[:, None])
    if sampled:
        cumulative = tl.cumsum(shares, 1)
        threshold = numbers * tl.max(cumulative, 1)
        # Parallel sums need not grow from node to node, so the mask is asked as well.
        legal = contains(moves.low[:, None], moves.high[:, None], nodes[None, :], node_block)
        beyond = legal & (cumulative > threshold[:, None])
        drawn = tl.min(tl.where(beyond, nodes[None, :], node_block), 1)
        action = tl.where(greedy | (drawn == node_block), action, drawn)
    taken = tl.sum(tl.where(nodes[None, :] == action[:, None], shares, 0.0), 1)
    return action, tl.log(taken) - tl.log(tl.sum(shares, 1))
