# mypy: disable-error-code="import-untyped, untyped-decorator, no-untyped-def"
"""The pointer decoder inside a kernel: logits of the next node for some rows of one instance.

``model.decoder.PointerDecoder`` with a plain, gated or ReLD head. Matrix operands are bfloat16 or float32; sums,
norms, softmax and tanh float32.

Shape legend: B instances, R rows of a program, P padded nodes, H heads, D = d / H features of a head, d width,
f hidden features.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from polarvrp.decoding.kernels.rules import contains

ILLEGAL = tl.constexpr(-1.0e9)
CLIP = tl.constexpr(10.0)
NORM_EPSILON = tl.constexpr(1e-5)
WITHOUT_LIMIT = tl.constexpr(10.0)


class Tables(NamedTuple):
    """What the decoder knows of each node beforehand."""

    embeddings: Any  # [B, P, d]
    queries: Any  # share of the embedding in the glimpse's query, [B, P, d]
    gates: Any  # share of the embedding in the gates, [B, P, H]
    glimpse_keys: Any  # [B, H, P, D]
    glimpse_values: Any  # [B, H, P, D]
    logit_keys: Any  # [B, P, d]
    log_distances: Any  # float32 [B, P, P]


class Weights(NamedTuple):
    """Parameters of the decoder; maps of the state have a row for each number of ``seen``."""

    query: Any  # [5, d]
    gate: Any  # [5, H]
    state: Any  # [5, d]
    output: Any  # [d, d], inputs first
    output_bias: Any  # [d]
    norm_glimpse: Any  # [d]
    norm_output: Any  # [d]
    up: Any  # [d, f or 2 f]
    up_bias: Any  # [f]
    down: Any  # [f, d]
    down_bias: Any  # [d]
    ramp: Any  # [1]


class Seen(NamedTuple):
    """The state as the decoder sees it, ``[R]`` each; by the form of the state some weigh nothing."""

    free: Any
    free_backhaul: Any
    time: Any
    length: Any
    open_route: Any


@triton.jit
def tables_of(tables, index, width: tl.constexpr, heads: tl.constexpr, node_block: tl.constexpr):
    """Tables of instance ``index``, an int64."""
    nodes = index * node_block
    return Tables(
        embeddings=tables.embeddings + nodes * width,
        queries=tables.queries + nodes * width,
        gates=tables.gates + nodes * heads,
        glimpse_keys=tables.glimpse_keys + nodes * width,
        glimpse_values=tables.glimpse_values + nodes * width,
        logit_keys=tables.logit_keys + nodes * width,
        log_distances=tables.log_distances + nodes * node_block,
    )


@triton.jit
def seen_by(instance, state, remaining: tl.constexpr, dtype: tl.constexpr):
    """The state as the decoder sees it (``PointerDecoder.state_features``), rounded to ``dtype``."""
    free, length = 1 - state.used_linehaul, state.length
    free_backhaul = 1 - state.used_backhaul
    if remaining:
        free = tl.where(free_backhaul == 1, free, free_backhaul)
        length = tl.where(instance.longest == float("inf"), WITHOUT_LIMIT, instance.longest - length)
    return Seen(
        free=free.to(dtype).to(tl.float32),
        free_backhaul=free_backhaul.to(dtype).to(tl.float32),
        time=state.time.to(dtype).to(tl.float32),
        length=length.to(dtype).to(tl.float32),
        open_route=instance.open_route.to(tl.float32),
    )


@triton.jit
def map_of(weight, seen, columns, stride: tl.constexpr):
    """Some columns of a linear map of the state, ``[R, columns]``."""
    mapped = seen.free[:, None] * tl.load(weight + columns).to(tl.float32)[None, :]
    mapped += seen.free_backhaul[:, None] * tl.load(weight + stride + columns).to(tl.float32)[None, :]
    mapped += seen.time[:, None] * tl.load(weight + 2 * stride + columns).to(tl.float32)[None, :]
    mapped += seen.length[:, None] * tl.load(weight + 3 * stride + columns).to(tl.float32)[None, :]
    return mapped + seen.open_route * tl.load(weight + 4 * stride + columns).to(tl.float32)[None, :]


@triton.jit
def times(left, right):
    """Product of matrices with the operands of ``right``, summed in float32."""
    return tl.dot(left.to(right.dtype), right, input_precision="ieee")


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
    columns = within + head * head_width
    query = tl.load(tables.queries + current[:, None] * width + columns[None, :]).to(tl.float32)
    query += map_of(weights.query, seen, columns, width)
    place = (nodes + head * node_block)[:, None] * head_width + within[None, :]
    scores = times(query, tl.trans(tl.load(tables.glimpse_keys + place))) * (head_width**-0.5)
    if masking == "none":
        visible = (nodes < num_nodes)[None, :]
    else:
        visible = contains(moves.low[:, None], moves.high[:, None], nodes[None, :], node_block)
        if masking == "plus_one":
            scores += visible.to(tl.float32)
            visible = (nodes < num_nodes)[None, :]
    scores = tl.where(visible, scores, ILLEGAL)
    attention = tl.exp(scores - tl.max(scores, 1)[:, None])
    return times(attention, tl.load(tables.glimpse_values + place)) / tl.sum(attention, 1)[:, None]


@triton.jit
def mixed_glimpse(
    tables,
    weights,
    seen,
    current,
    moves,
    nodes,
    num_nodes,
    width: tl.constexpr,
    heads: tl.constexpr,
    masking: tl.constexpr,
    gated: tl.constexpr,
    stages: tl.constexpr,
):
    """``W_o concat(y) + b_o``, each head times its gate if there are gates, ``[R, d]``."""
    head_width: tl.constexpr = width // heads
    features = tl.arange(0, width)
    mixed = tl.zeros([current.shape[0], width], tl.float32) + tl.load(weights.output_bias + features)[None, :]
    for head in tl.range(0, heads, num_stages=stages):
        glimpse = glimpse_of(tables, weights, seen, current, moves, nodes, num_nodes, head, width, heads, masking)
        if gated:
            one = tl.arange(0, 1) + head
            gate = tl.load(tables.gates + current[:, None] * heads + one[None, :]).to(tl.float32)
            glimpse = glimpse * tl.sigmoid(gate + map_of(weights.gate, seen, one, heads))
        rows = tl.arange(0, head_width) + head * head_width
        mixed += times(glimpse, tl.load(weights.output + rows[:, None] * width + features[None, :]))
    return mixed


@triton.jit
def normalized(rows, weight, features):
    """``RootMeanSquareNorm`` of ``[R, d]``."""
    mean = tl.sum(rows * rows, 1) / features.shape[0]
    return rows * tl.rsqrt(mean + NORM_EPSILON)[:, None] * tl.load(weight + features)[None, :]


@triton.jit
def gated_feed_forward(
    rows, weights, width: tl.constexpr, hidden: tl.constexpr, block: tl.constexpr, stages: tl.constexpr
):
    """``SwiGLU`` of ``[R, d]``."""
    features = tl.arange(0, width)
    operand = rows.to(weights.up.dtype.element_ty)
    result = tl.zeros_like(rows)
    for first in tl.range(0, hidden, block, num_stages=stages):
        units = tl.arange(0, block) + first
        place = features[:, None] * (2 * hidden) + units[None, :]
        gate = times(operand, tl.load(weights.up + place))
        gate = gate * tl.sigmoid(gate) * times(operand, tl.load(weights.up + hidden + place))
        result += times(gate, tl.load(weights.down + units[:, None] * width + features[None, :]))
    return result


@triton.jit
def feed_forward(rows, weights, width: tl.constexpr, hidden: tl.constexpr, block: tl.constexpr, stages: tl.constexpr):
    """``ReluFeedForward`` of ``[R, d]``."""
    features = tl.arange(0, width)
    operand = rows.to(weights.up.dtype.element_ty)
    result = tl.zeros_like(rows) + tl.load(weights.down_bias + features)[None, :]
    for first in tl.range(0, hidden, block, num_stages=stages):
        units = tl.arange(0, block) + first
        up = times(operand, tl.load(weights.up + features[:, None] * hidden + units[None, :]))
        up = tl.maximum(up + tl.load(weights.up_bias + units)[None, :], 0.0)
        result += times(up, tl.load(weights.down + units[:, None] * width + features[None, :]))
    return result


@triton.jit
def pointed(rows, tables, nodes, width: tl.constexpr):
    """Products of ``[R, d]`` with the pointer's keys, ``[R, P]``."""
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
    masking: tl.constexpr,
    hidden_block: tl.constexpr,
    stages: tl.constexpr,
):
    """Clipped logits, ``ILLEGAL`` where a node may not follow, ``[R, P]``."""
    node_block: tl.constexpr = nodes.shape[0]
    gated: tl.constexpr = head_kind == "gated"
    features = tl.arange(0, width)
    mixed = mixed_glimpse(tables, weights, seen, current, moves, nodes, num_nodes, width, heads, masking, gated, stages)
    if head_kind != "plain":
        ramp = tl.load(weights.ramp)
        around = tl.load(tables.embeddings + current[:, None] * width + features[None, :]).to(tl.float32)
        around += map_of(weights.state, seen, features, width)
        if gated:
            mixed = normalized(mixed + around, weights.norm_glimpse, features)
            mixed += gated_feed_forward(mixed, weights, width, hidden, hidden_block, stages)
            mixed = normalized(mixed, weights.norm_output, features)
        else:
            mixed += ramp * around
            mixed += ramp * feed_forward(mixed, weights, width, hidden, hidden_block, stages)
    scores = pointed(mixed, tables, nodes, width)
    if gated:
        if ramp < 1.0:
            # The pointer is linear in what it gets, so the share of the glimpse alone can be added here.
            alone = mixed_glimpse(
                tables, weights, seen, current, moves, nodes, num_nodes, width, heads, masking, False, stages
            )
            scores = ramp * scores + (1.0 - ramp) * pointed(alone, tables, nodes, width)
    logits = CLIP * (1.0 - 2.0 / (tl.exp(2.0 * scores) + 1.0))  # 10 tanh
    if head_kind == "reld":
        logits -= tl.load(tables.log_distances + current[:, None] * node_block + nodes[None, :])
    legal = contains(moves.low[:, None], moves.high[:, None], nodes[None, :], node_block)
    return tl.where(legal, logits, ILLEGAL)
