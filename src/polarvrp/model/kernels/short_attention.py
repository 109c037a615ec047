# mypy: disable-error-code="import-untyped, untyped-decorator, no-untyped-def"
"""Kernels of self-attention over few rows: one program a sequence and head, keys and values in one block.

Rotation (``model.rotation``) happens on the way in, and backwards on the way out. Queries are taken ``query_block``
at a time. Operands are bfloat16 or float32; softmax, rotation and sums are float32.

Shape legend: S sequences (experts by instances), B instances, T rows, Q queries, H = ``heads`` heads,
D = ``head_width`` features of a head.
"""

import triton
import triton.language as tl

from polarvrp.model.kernels.products import product

CHANGING = ("num_rows", "num_queries", "num_instances")
"""Numbers that no code is compiled for."""

EXCLUDED = tl.constexpr(-1.0e9)


@triton.jit
def turn(features, cosine, sine, instance, rows, num_rows, head_width: tl.constexpr, backward: tl.constexpr):
    """Turn neighbouring features by their rows' angles, ``[rows, D]`` to float32; or the gradient of that."""
    offsets = (instance * num_rows + rows)[:, None] * head_width + tl.arange(0, head_width)[None, :]
    inside = (rows < num_rows)[:, None]
    pairs: tl.constexpr = (rows.shape[0], head_width // 2, 2)
    cosines = tl.split(tl.reshape(tl.load(cosine + offsets, mask=inside, other=1.0).to(tl.float32), pairs))
    sines = tl.split(tl.reshape(tl.load(sine + offsets, mask=inside, other=0.0).to(tl.float32), pairs))
    even, odd = tl.split(tl.reshape(features.to(tl.float32), pairs))
    if backward:
        turned = tl.join(even * cosines[0] + odd * sines[1], odd * cosines[1] - even * sines[0])
    else:
        turned = tl.join(even * cosines[0] - odd * sines[0], odd * cosines[1] + even * sines[1])
    return tl.reshape(turned, (rows.shape[0], head_width))


@triton.jit
def load_part(
    query_key_value,  # [S, T, 3, H, D]
    cosine,  # [B, T, D]
    sine,  # [B, T, D]
    part: tl.constexpr,
    sequence,
    head,
    rows,
    limit,
    num_rows,
    num_instances,
    heads: tl.constexpr,
    head_width: tl.constexpr,
    rotated: tl.constexpr,
):
    """Queries (part 0), keys (1) or values (2) of a head, turned if they have to be, 0 from row ``limit`` on."""
    features = tl.arange(0, head_width)
    offsets = ((sequence * num_rows + rows) * (3 * heads) + part * heads + head)[:, None] * head_width
    loaded = tl.load(query_key_value + offsets + features[None, :], mask=(rows < limit)[:, None], other=0.0)
    if rotated and part < 2:
        loaded = turn(loaded, cosine, sine, sequence % num_instances, rows, num_rows, head_width, False).to(
            loaded.dtype
        )
    return loaded


@triton.jit
def store_part(
    gradient,  # [S, T, 3, H, D], written
    cosine,  # [B, T, D]
    sine,  # [B, T, D]
    part: tl.constexpr,
    values,
    sequence,
    head,
    rows,
    num_rows,
    num_instances,
    heads: tl.constexpr,
    head_width: tl.constexpr,
    rotated: tl.constexpr,
):
    """Write the gradient by what ``load_part`` loaded."""
    if rotated and part < 2:
        values = turn(values, cosine, sine, sequence % num_instances, rows, num_rows, head_width, True)
    offsets = ((sequence * num_rows + rows) * (3 * heads) + part * heads + head)[:, None] * head_width
    places = gradient + offsets + tl.arange(0, head_width)[None, :]
    tl.store(places, values.to(gradient.dtype.element_ty), mask=(rows < num_rows)[:, None])


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
    sequence, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    nodes = tl.arange(0, key_block)
    keys = load_part(
        query_key_value,
        cosine,
        sine,
        1,
        sequence,
        head,
        nodes,
        num_rows,
        num_rows,
        num_instances,
        heads,
        head_width,
        rotated,
    )
    values = load_part(
        query_key_value,
        cosine,
        sine,
        2,
        sequence,
        head,
        nodes,
        num_rows,
        num_rows,
        num_instances,
        heads,
        head_width,
        rotated,
    )
    features = tl.arange(0, head_width)
    for block in range(key_block // query_block):
        rows = block * query_block + tl.arange(0, query_block)
        queries = load_part(
            query_key_value,
            cosine,
            sine,
            0,
            sequence,
            head,
            rows,
            num_queries,
            num_rows,
            num_instances,
            heads,
            head_width,
            rotated,
        )
        scores = product(queries, tl.trans(keys)) * scale
        scores = tl.where((nodes < num_rows)[None, :], scores, EXCLUDED)
        largest = tl.max(scores, 1)
        weights = tl.exp(scores - largest[:, None])
        total = tl.sum(weights, 1)
        result = product(weights.to(values.dtype), values) / total[:, None]
        places = ((sequence * num_queries + rows) * heads + head)[:, None] * head_width + features[None, :]
        tl.store(mixed + places, result.to(mixed.dtype.element_ty), mask=(rows < num_queries)[:, None])
        places = (sequence * heads + head) * num_queries + rows
        tl.store(normalizer + places, largest + tl.log(total), mask=rows < num_queries)


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
    sequence, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    nodes = tl.arange(0, key_block)
    keys = load_part(
        query_key_value,
        cosine,
        sine,
        1,
        sequence,
        head,
        nodes,
        num_rows,
        num_rows,
        num_instances,
        heads,
        head_width,
        rotated,
    )
    values = load_part(
        query_key_value,
        cosine,
        sine,
        2,
        sequence,
        head,
        nodes,
        num_rows,
        num_rows,
        num_instances,
        heads,
        head_width,
        rotated,
    )
    key_gradient = tl.zeros([key_block, head_width], tl.float32)
    value_gradient = tl.zeros([key_block, head_width], tl.float32)
    features = tl.arange(0, head_width)
    for block in range(key_block // query_block):
        rows = block * query_block + tl.arange(0, query_block)
        queries = load_part(
            query_key_value,
            cosine,
            sine,
            0,
            sequence,
            head,
            rows,
            num_queries,
            num_rows,
            num_instances,
            heads,
            head_width,
            rotated,
        )
        places = ((sequence * num_queries + rows) * heads + head)[:, None] * head_width + features[None, :]
        outer = tl.load(upstream + places, mask=(rows < num_queries)[:, None], other=0.0)
        places = (sequence * heads + head) * num_queries + rows
        normalizers = tl.load(normalizer + places, mask=rows < num_queries, other=0.0)
        scores = product(keys, tl.trans(queries)) * scale  # [keys, queries]
        scores = tl.where((nodes < num_rows)[:, None], scores, EXCLUDED)
        weights = tl.exp(scores - normalizers[None, :])
        value_gradient += product(weights.to(outer.dtype), outer)
        inner = product(values, tl.trans(outer))
        inner = (weights * (inner - tl.sum(weights * inner, 0)[None, :]) * scale).to(keys.dtype)
        key_gradient += product(inner, queries)
        query_gradient = product(tl.trans(inner), keys)
        store_part(
            gradient,
            cosine,
            sine,
            0,
            query_gradient,
            sequence,
            head,
            rows,
            num_rows,
            num_instances,
            heads,
            head_width,
            rotated,
        )
    store_part(
        gradient,
        cosine,
        sine,
        1,
        key_gradient,
        sequence,
        head,
        nodes,
        num_rows,
        num_instances,
        heads,
        head_width,
        rotated,
    )
    store_part(
        gradient,
        cosine,
        sine,
        2,
        value_gradient,
        sequence,
        head,
        nodes,
        num_rows,
        num_instances,
        heads,
        head_width,
        rotated,
    )
