# mypy: disable-error-code="import-untyped, untyped-decorator, no-untyped-def"
"""Self-attention kernels for short sequences: one program a sequence and head, keys and values in one block.

Rotation (``model.rotation``) happens on the way in, and backwards on the way out. Queries are taken ``query_block``
at a time. Operands are bfloat16 or float32; softmax, rotation and sums are float32.

Shape legend: S sequences (experts by instances), B instances, T rows, Q queries, H = ``heads`` heads,
D = ``head_width`` features of a head.
"""

import triton
import triton.language as tl

from polarvrp.model.kernels.products import EXCLUDED, product

CHANGING = ("num_rows", "num_queries", "num_instances")
"""Numbers that no code is compiled for."""


@triton.jit
def load_rows(places, rows, limit, stride: tl.constexpr, head_width: tl.constexpr):
    """Features of a head from its place in row 0 on, 0 from row ``limit`` on, ``[rows, D]``."""
    offsets = rows[:, None] * stride + tl.arange(0, head_width)[None, :]
    return tl.load(places + offsets, mask=(rows < limit)[:, None], other=0.0)


@triton.jit
def store_rows(places, values, rows, limit, stride: tl.constexpr, head_width: tl.constexpr):
    """Write where ``load_rows`` reads."""
    offsets = rows[:, None] * stride + tl.arange(0, head_width)[None, :]
    tl.store(places + offsets, values.to(places.dtype.element_ty), mask=(rows < limit)[:, None])


@triton.jit
def turn(features, cosine, sine, rows, num_rows, head_width: tl.constexpr, backward: tl.constexpr):
    """Turn neighbouring features by their rows' angles, ``[rows, D]``; or the gradient of that."""
    pairs: tl.constexpr = (rows.shape[0], head_width // 2, 2)
    cosines = load_rows(cosine, rows, num_rows, head_width, head_width).to(tl.float32)
    sines = load_rows(sine, rows, num_rows, head_width, head_width).to(tl.float32)
    even_cosine, odd_cosine = tl.split(tl.reshape(cosines, pairs))
    even_sine, odd_sine = tl.split(tl.reshape(sines, pairs))
    even, odd = tl.split(tl.reshape(features.to(tl.float32), pairs))
    if backward:
        turned = tl.join(even * even_cosine + odd * odd_sine, odd * odd_cosine - even * even_sine)
    else:
        turned = tl.join(even * even_cosine - odd * even_sine, odd * odd_cosine + even * odd_sine)
    return tl.reshape(turned, (rows.shape[0], head_width)).to(features.dtype)


@triton.jit
def load_turned(
    places,
    cosine,
    sine,
    rows,
    limit,
    num_rows,
    stride: tl.constexpr,
    head_width: tl.constexpr,
    rotated: tl.constexpr,
):
    """``load_rows``, turned by the rows' angles where rows have some."""
    features = load_rows(places, rows, limit, stride, head_width)
    if rotated:
        features = turn(features, cosine, sine, rows, num_rows, head_width, False)
    return features


@triton.jit(do_not_specialize=CHANGING)
def attention_forward(
    query_key_value,  # [S, T, 3, H, D]
    cosine,  # [B, T, D]
    sine,  # [B, T, D]
    mixed,  # [S, Q, H, D], written
    normalizer,  # logarithm of the sum of exponentials, float32 [S, H, Q], written
    num_rows,
    num_queries,
    num_instances,
    heads: tl.constexpr,
    head_width: tl.constexpr,
    rotated: tl.constexpr,
    scale: tl.constexpr,
    query_block: tl.constexpr,
    key_block: tl.constexpr,
):
    """Attention of the first Q rows of a sequence to all its rows."""
    sequence, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    width: tl.constexpr = heads * head_width
    query_key_value += sequence * num_rows * 3 * width + head * head_width
    mixed += sequence * num_queries * width + head * head_width
    normalizer += (sequence * heads + head) * num_queries
    cosine += sequence % num_instances * num_rows * head_width
    sine += sequence % num_instances * num_rows * head_width
    columns = tl.arange(0, key_block)
    places = query_key_value + width
    keys = load_turned(places, cosine, sine, columns, num_rows, num_rows, 3 * width, head_width, rotated)
    values = load_rows(query_key_value + 2 * width, columns, num_rows, 3 * width, head_width)
    for block in range(key_block // query_block):
        rows = block * query_block + tl.arange(0, query_block)
        places = query_key_value
        queries = load_turned(places, cosine, sine, rows, num_queries, num_rows, 3 * width, head_width, rotated)
        scores = product(queries, tl.trans(keys)) * scale
        scores = tl.where((columns < num_rows)[None, :], scores, EXCLUDED)
        largest = tl.max(scores, 1)
        weights = tl.exp(scores - largest[:, None])
        total = tl.sum(weights, 1)
        result = product(weights.to(values.dtype), values) / total[:, None]
        store_rows(mixed, result, rows, num_queries, width, head_width)
        tl.store(normalizer + rows, largest + tl.log(total), mask=rows < num_queries)


@triton.jit(do_not_specialize=CHANGING)
def attention_backward(
    query_key_value,  # [S, T, 3, H, D]
    cosine,  # [B, T, D]
    sine,  # [B, T, D]
    normalizer,  # float32 [S, H, Q]
    upstream,  # gradient by the result, [S, Q, H, D]
    gradient,  # [S, T, 3, H, D], written
    num_rows,
    num_queries,
    num_instances,
    heads: tl.constexpr,
    head_width: tl.constexpr,
    rotated: tl.constexpr,
    scale: tl.constexpr,
    query_block: tl.constexpr,
    key_block: tl.constexpr,
):
    """Gradient of ``attention_forward``; rows beyond Q get 0 as queries."""
    sequence, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    width: tl.constexpr = heads * head_width
    query_key_value += sequence * num_rows * 3 * width + head * head_width
    gradient += sequence * num_rows * 3 * width + head * head_width
    upstream += sequence * num_queries * width + head * head_width
    normalizer += (sequence * heads + head) * num_queries
    cosine += sequence % num_instances * num_rows * head_width
    sine += sequence % num_instances * num_rows * head_width
    columns = tl.arange(0, key_block)
    places = query_key_value + width
    keys = load_turned(places, cosine, sine, columns, num_rows, num_rows, 3 * width, head_width, rotated)
    values = load_rows(query_key_value + 2 * width, columns, num_rows, 3 * width, head_width)
    key_gradient = tl.zeros([key_block, head_width], tl.float32)
    value_gradient = tl.zeros([key_block, head_width], tl.float32)
    for block in range(key_block // query_block):
        rows = block * query_block + tl.arange(0, query_block)
        places = query_key_value
        queries = load_turned(places, cosine, sine, rows, num_queries, num_rows, 3 * width, head_width, rotated)
        outer = load_rows(upstream, rows, num_queries, width, head_width)
        scores = product(keys, tl.trans(queries)) * scale  # [keys, queries]
        scores = tl.where((columns < num_rows)[:, None], scores, EXCLUDED)
        weights = tl.exp(scores - tl.load(normalizer + rows, mask=rows < num_queries, other=0.0)[None, :])
        value_gradient += product(weights.to(outer.dtype), outer)
        inner = product(values, tl.trans(outer))
        inner = (weights * (inner - tl.sum(weights * inner, 0)[None, :]) * scale).to(keys.dtype)
        key_gradient += product(inner, queries)
        query_gradient = product(tl.trans(inner), keys)
        if rotated:
            query_gradient = turn(query_gradient, cosine, sine, rows, num_rows, head_width, True)
        store_rows(gradient, query_gradient, rows, num_rows, 3 * width, head_width)
    if rotated:
        key_gradient = turn(key_gradient, cosine, sine, columns, num_rows, head_width, True)
    store_rows(gradient + width, key_gradient, columns, num_rows, 3 * width, head_width)
    store_rows(gradient + 2 * width, value_gradient, columns, num_rows, 3 * width, head_width)
