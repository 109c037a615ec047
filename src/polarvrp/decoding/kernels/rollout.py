# mypy: disable-error-code="import-untyped, untyped-decorator, no-untyped-def"
"""Kernels that walk tours to their end: all steps of the environment and the decoder in one launch.

One program owns ``rows`` tours of one instance. Samples are counted by the place of the instance in the whole batch,
the row and the step, so they do not depend on how a batch is split.

Shape legend: B instances, S tours per instance, F forced first actions, T actions, G programs per instance,
L slots of a segment, R rows of a program, W mask words.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from polarvrp.decoding.kernels.pointer import logits_of, seen_by, tables_of
from polarvrp.decoding.kernels.rules import (
    WORD_BITS,
    advance,
    all_customers,
    contains,
    has_served,
    instance_of,
    legal_moves,
    length_of,
    start_of,
)


class Record(NamedTuple):
    """Decisions as they are made (``packing.Segments``)."""

    made: Any  # how many, int32 [B, G]
    row: Any  # int32 [B, G, L]
    current: Any  # int32 [B, G, L]
    action: Any  # int32 [B, G, L]
    features: Any  # float32 [B, G, L, 5]
    mask: Any  # int64 [B, G, L, W]


class Tours(NamedTuple):
    """Results."""

    actions: Any  # int64 [B, T, S]
    cost: Any  # float32 [B, S]
    log_likelihood: Any  # float32 [B, S]
    legal: Any  # bool [B, S]
    served: Any  # bool [B, S]


@triton.jit
def note(record, made, decided, row, action, state, moves, open_route, segment, length, node_block: tl.constexpr):
    """Append the decisions among the rows to their segment; how many were made so far."""
    words: tl.constexpr = (node_block + WORD_BITS - 1) // WORD_BITS
    new = decided.to(tl.int32)
    place = made + tl.cumsum(new, 0) - new
    room = decided & (place < length)
    slot = segment * length + place
    tl.store(record.row + slot, row, mask=room)
    tl.store(record.current + slot, state.current, mask=room)
    tl.store(record.action + slot, action, mask=room)
    tl.store(record.features + slot * 5, 1 - state.used_linehaul, mask=room)
    tl.store(record.features + slot * 5 + 1, 1 - state.used_backhaul, mask=room)
    tl.store(record.features + slot * 5 + 2, state.time, mask=room)
    tl.store(record.features + slot * 5 + 3, state.length, mask=room)
    tl.store(record.features + slot * 5 + 4, open_route.to(tl.float32), mask=room)
    tl.store(record.mask + slot * words, moves.low, mask=room)
    if words == 2:
        tl.store(record.mask + slot * words + 1, moves.high, mask=room)
    return made + tl.sum(new, 0)


@triton.jit
def unserved(moves):
    """Rows with customers left."""
    return tl.sum((~moves.served).to(tl.int32), 0)


@triton.jit
def finish(tours, place, present, cost, legal, moves):
    """Write what a row came to."""
    tl.store(tours.cost + place, cost, mask=present)
    tl.store(tours.legal + place, legal, mask=present)
    tl.store(tours.served + place, moves.served, mask=present)


@triton.jit
def uniform(seed, instance, row, step):
    """Numbers in [0, 1), ``[R]``."""
    same = row * 0
    bits, _, _, _ = tl.philox(seed, row, same + step, same + instance, same)
    return tl.uint_to_uniform_float(bits)


@triton.jit
def chosen(logits, moves, greedy, numbers, nodes, sampled: tl.constexpr):
    """Node that each row takes and its log-probability; the first depot where nothing is legal."""
    node_block: tl.constexpr = nodes.shape[0]
    largest, action = tl.max(logits, 1, return_indices=True)
    shares = tl.exp(logits - largest[:, None])
    if sampled:
        cumulative = tl.cumsum(shares, 1)
        threshold = numbers * tl.max(cumulative, 1)
        # Parallel sums need not grow from node to node, so the mask is asked as well.
        legal = contains(moves.low[:, None], moves.high[:, None], nodes[None, :], node_block)
        beyond = legal & (cumulative > threshold[:, None])
        drawn = tl.min(tl.where(beyond, nodes[None, :], node_block), 1)
        action = tl.where(greedy | (drawn == node_block), action, drawn)
    taken = tl.sum(tl.where(nodes[None, :] == action[:, None], logits, 0.0), 1)
    return action, taken - largest - tl.log(tl.sum(shares, 1))


@triton.jit
def rollout(
    problem,  # Problem
    tables,  # Tables
    weights,  # Weights
    starts,  # int64 [S, F]
    seed,  # int64 [1]
    tours,  # Tours, written
    record,  # Record, written
    first_instance,
    num_nodes,
    num_rows,
    num_actions,
    length,
    num_forced: tl.constexpr,
    num_depots: tl.constexpr,
    strict: tl.constexpr,
    remaining: tl.constexpr,
    head_kind: tl.constexpr,
    masking: tl.constexpr,
    sampled: tl.constexpr,
    greedy_last: tl.constexpr,
    recorded: tl.constexpr,
    width: tl.constexpr,
    heads: tl.constexpr,
    hidden: tl.constexpr,
    hidden_block: tl.constexpr,
    node_block: tl.constexpr,
    rows: tl.constexpr,
    stages: tl.constexpr,
):
    """Tours of a policy."""
    segment = tl.program_id(0).to(tl.int64)
    segments = tl.cdiv(num_rows, rows)
    index = segment // segments
    row = (segment % segments).to(tl.int32) * rows + tl.arange(0, rows)
    present = row < num_rows
    nodes = tl.arange(0, node_block)
    instance = instance_of(problem, index, node_block)
    known = tables_of(tables, index, width, heads, node_block)
    everyone = all_customers(nodes, num_nodes, num_depots)
    state = start_of(present, everyone)
    moves = legal_moves(instance, state, nodes, 0, everyone, num_depots, strict)
    legal, likelihood, made = present, state.time, 0
    place = index * num_actions * num_rows + row
    for step in tl.static_range(num_forced):
        action = tl.load(starts + row * num_forced + step, mask=present, other=0).to(tl.int32)
        free_choice = (num_depots == 1) & (action == 0)
        legal = legal & (free_choice | contains(moves.low, moves.high, action, node_block))
        tl.store(tours.actions + place + step * num_rows, action.to(tl.int64), mask=present)
        state = advance(instance, state, moves, action, node_block, num_depots)
        moves = legal_moves(instance, state, nodes, step + 1, everyone, num_depots, strict)
    numbers, greedy = state.time, row < 0
    if greedy_last:
        greedy = row == num_rows - 1
    drawn_by = tl.load(seed)
    step = num_forced
    active = unserved(moves)
    while (step < num_actions) & (active > 0):
        seen = seen_by(instance, state, remaining, tables.embeddings.dtype.element_ty)
        logits = logits_of(
            known,
            weights,
            seen,
            state.current,
            moves,
            nodes,
            num_nodes,
            width,
            heads,
            hidden,
            head_kind,
            masking,
            hidden_block,
            stages,
        )
        if sampled:
            numbers = uniform(drawn_by, (first_instance + index).to(tl.int32), row, step)
        action, gained = chosen(logits, moves, greedy, numbers, nodes, sampled)
        action = tl.where(moves.served, state.depot, action)
        decided = (moves.number > 1) & ~moves.served
        likelihood += tl.where(decided, gained, 0.0)
        if recorded:
            made = note(
                record, made, decided, row, action, state, moves, instance.open_route, segment, length, node_block
            )
        tl.store(tours.actions + place + step * num_rows, action.to(tl.int64), mask=present)
        state = advance(instance, state, moves, action, node_block, num_depots)
        moves = legal_moves(instance, state, nodes, step + 1, everyone, num_depots, strict)
        active = unserved(moves)
        step += 1
    while step < num_actions:
        tl.store(tours.actions + place + step * num_rows, state.depot.to(tl.int64), mask=present)
        step += 1
    if recorded:
        tl.store(record.made + segment, made)
    finish(tours, index * num_rows + row, present, length_of(instance, state, node_block), legal, moves)
    tl.store(tours.log_likelihood + index * num_rows + row, likelihood, mask=present)


@triton.jit
def replay(
    problem,  # Problem
    actions,  # int64 [B, T, S]
    tours,  # Tours, written
    record,  # Record, written
    num_free,
    num_nodes,
    num_rows,
    num_actions,
    length,
    num_depots: tl.constexpr,
    strict: tl.constexpr,
    node_block: tl.constexpr,
    rows: tl.constexpr,
):
    """Given tours; legal are those whose actions all are and that serve everyone."""
    segment = tl.program_id(0).to(tl.int64)
    segments = tl.cdiv(num_rows, rows)
    index = segment // segments
    row = (segment % segments).to(tl.int32) * rows + tl.arange(0, rows)
    present = row < num_rows
    nodes = tl.arange(0, node_block)
    instance = instance_of(problem, index, node_block)
    everyone = all_customers(nodes, num_nodes, num_depots)
    state = start_of(present, everyone)
    moves = legal_moves(instance, state, nodes, 0, everyone, num_depots, strict)
    legal, made = present, 0
    place = index * num_actions * num_rows + row
    step = 0
    active = unserved(moves)
    while (step < num_actions) & (active > 0):
        given = tl.load(actions + place + step * num_rows, mask=present, other=0).to(tl.int32)
        action = tl.where(moves.served, state.depot, given)
        free_choice = (num_depots == 1) & (action == 0) & (step == 0)
        allowed = free_choice | contains(moves.low, moves.high, action, node_block)
        legal = legal & (moves.served | allowed)
        decided = (moves.number > 1) & ~moves.served & (step >= num_free) & legal
        made = note(record, made, decided, row, action, state, moves, instance.open_route, segment, length, node_block)
        state = advance(instance, state, moves, action, node_block, num_depots)
        moves = legal_moves(instance, state, nodes, step + 1, everyone, num_depots, strict)
        active = unserved(moves)
        step += 1
    tl.store(record.made + segment, made)
    finish(tours, index * num_rows + row, present, length_of(instance, state, node_block), legal, moves)
