# mypy: disable-error-code="import-untyped, untyped-decorator, no-untyped-def"
"""Rollout and replay kernels: all steps of environment and decoder in one launch.

One program owns ``rows`` tours of one instance. Samples are counted by the place of the instance in the whole batch,
the row and the step, so they do not depend on how a batch is split.

Shape legend: B instances, S tours per instance, F forced first actions, T actions, G programs per instance,
L slots of a segment, R rows of a program, W mask words.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from polarvrp.decoding.fused.kernels.memory import (
    load_moves,
    load_number,
    load_state,
    scratch_of,
    store,
    store_number,
)
from polarvrp.decoding.fused.kernels.pointer import chosen, logits_of, seen_by, tables_of, uniform
from polarvrp.decoding.fused.kernels.rules import (
    WORD_BITS,
    advance,
    all_customers,
    contains,
    free_share,
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


class Program(NamedTuple):
    """Work of one program."""

    instance: Any  # Instance
    everyone: Any  # all customers, two words
    scratch: Any  # Scratch
    seed: Any  # int64 [1]
    segment: Any  # number of the program
    index: Any  # number of the instance
    place: Any  # of the instance in the whole batch
    first_row: Any
    num_rows: Any
    length: Any


@triton.jit
def program_of(
    problem,
    scratch,
    seed,
    segment,
    first_instance,
    num_nodes,
    num_rows,
    length,
    nodes,
    num_depots: tl.constexpr,
    rows: tl.constexpr,
):
    """Program number ``segment``, an int64."""
    programs = tl.cdiv(num_rows, rows)
    index = segment // programs
    return Program(
        instance=instance_of(problem, index, num_depots, nodes.shape[0]),
        everyone=all_customers(nodes, num_nodes, num_depots),
        scratch=scratch,
        seed=seed,
        segment=segment,
        index=index,
        place=first_instance + index,
        first_row=(segment % programs).to(tl.int32) * rows,
        num_rows=num_rows,
        length=length,
    )


@triton.jit
def is_decision(moves):
    """Rows with a choice and customers left."""
    return (moves.number > 1) & ~moves.served


@triton.jit
def note(record, program, made, decided, row, action, state, moves, node_block: tl.constexpr):
    """Append the decisions among the rows to their segment; how many were made so far."""
    words: tl.constexpr = (node_block + WORD_BITS - 1) // WORD_BITS
    new = decided.to(tl.int32)
    place = made + tl.cumsum(new, 0) - new
    room = decided & (place < program.length)
    slot = program.segment * program.length + place
    tl.store(record.row + slot, row, mask=room)
    tl.store(record.current + slot, state.current, mask=room)
    tl.store(record.action + slot, action, mask=room)
    tl.store(record.features + slot * 5, free_share(program.instance, state.used_linehaul), mask=room)
    tl.store(record.features + slot * 5 + 1, free_share(program.instance, state.used_backhaul), mask=room)
    tl.store(record.features + slot * 5 + 2, state.time, mask=room)
    tl.store(record.features + slot * 5 + 3, state.length, mask=room)
    tl.store(record.features + slot * 5 + 4, program.instance.open_route.to(tl.float32), mask=room)
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
def begin(program, nodes, num_depots: tl.constexpr, strict: tl.constexpr, rows: tl.constexpr, chunk: tl.constexpr):
    """All rows before their first action."""
    for first in tl.range(0, rows, chunk):
        lane = tl.arange(0, chunk) + first
        state = start_of(program.first_row + lane < program.num_rows, program.everyone)
        moves = legal_moves(program.instance, state, nodes, 0, program.everyone, num_depots, strict)
        store(program.scratch, lane, state, moves, rows)
    tl.debug_barrier()


@triton.jit
def move(
    program,
    record,
    actions,  # of this step, int64 [S]
    step,
    made,
    nodes,
    num_depots: tl.constexpr,
    strict: tl.constexpr,
    sampled: tl.constexpr,
    recorded: tl.constexpr,
    rows: tl.constexpr,
    chunk: tl.constexpr,
):
    """All rows take their actions; how many are unserved then, and how many decisions were made so far."""
    node_block: tl.constexpr = nodes.shape[0]
    scratch, instance = program.scratch, program.instance
    active = 0
    tl.debug_barrier()
    for first in tl.range(0, rows, chunk):
        lane = tl.arange(0, chunk) + first
        row = program.first_row + lane
        state, moves = load_state(scratch, lane, rows), load_moves(scratch, lane, rows)
        action = tl.load(actions + row, mask=row < program.num_rows, other=0).to(tl.int32)
        if recorded:
            made = note(record, program, made, is_decision(moves), row, action, state, moves, node_block)
        state = advance(instance, state, moves, action, node_block, num_depots)
        moves = legal_moves(instance, state, nodes, step + 1, program.everyone, num_depots, strict)
        tl.debug_barrier()
        store(scratch, lane, state, moves, rows)
        if sampled:
            store_number(scratch, lane, uniform(tl.load(program.seed), program.place, row, step + 1), rows)
        active += unserved(moves)
    tl.debug_barrier()
    return active, made


@triton.jit
def decide(
    program,
    index,
    tables,
    weights,
    actions,  # of this step, int64 [S], written
    log_likelihood,  # of the instance, float32 [S], added to
    greedy_row,
    nodes,
    num_nodes,
    remaining: tl.constexpr,
    head_kind: tl.constexpr,
    ramped: tl.constexpr,
    masking: tl.constexpr,
    sampled: tl.constexpr,
    width: tl.constexpr,
    heads: tl.constexpr,
    hidden: tl.constexpr,
    hidden_block: tl.constexpr,
    rows: tl.constexpr,
    stages: tl.constexpr,
):
    """All rows choose their next actions."""
    scratch = program.scratch
    # Derived from memory in each step, addresses are not kept in registers from step to step.
    zero = tl.load(scratch.zero)
    known = tables_of(tables, index + zero, width, nodes.shape[0])
    lane = tl.arange(0, rows) + zero.to(tl.int32)
    state, moves = load_state(scratch, lane, rows), load_moves(scratch, lane, rows)
    logits = logits_of(
        known,
        weights,
        seen_by(program.instance, state, remaining, tables.queries.dtype.element_ty),
        state.current,
        moves,
        nodes,
        num_nodes,
        width,
        heads,
        hidden,
        head_kind,
        ramped,
        masking,
        hidden_block,
        stages,
    )
    row = program.first_row + lane
    present = row < program.num_rows
    so_far = tl.load(log_likelihood + row, mask=present, other=0.0)
    tl.debug_barrier()  # what follows is read again instead of waiting in registers
    state, moves = load_state(scratch, lane, rows), load_moves(scratch, lane, rows)
    action, gained = chosen(logits, moves, row == greedy_row, load_number(scratch, lane, rows), nodes, sampled)
    action = tl.where(moves.served, state.depot, action)
    gained = tl.where(is_decision(moves), gained, 0.0)
    tl.store(actions + row, action.to(tl.int64), mask=present)
    tl.store(log_likelihood + row, so_far + gained, mask=present)


@triton.jit(do_not_specialize=["first_instance", "greedy_row"])
def rollout(
    problem,  # Problem
    tables,  # Tables
    weights,  # Weights
    starts,  # int64 [S, F]
    seed,  # int64 [1]
    tours,  # Tours, written
    record,  # Record, written
    scratch,  # Scratch
    first_instance,
    greedy_row,  # takes the most probable actions while the others sample; -1 for none
    num_nodes,
    num_rows,
    num_actions,
    length,
    num_forced: tl.constexpr,
    num_depots: tl.constexpr,
    strict: tl.constexpr,
    remaining: tl.constexpr,
    head_kind: tl.constexpr,
    ramped: tl.constexpr,
    masking: tl.constexpr,
    sampled: tl.constexpr,
    recorded: tl.constexpr,
    width: tl.constexpr,
    heads: tl.constexpr,
    hidden: tl.constexpr,
    hidden_block: tl.constexpr,
    node_block: tl.constexpr,
    rows: tl.constexpr,
    chunk: tl.constexpr,
    stages: tl.constexpr,
):
    """Rollout of a policy."""
    segment = tl.program_id(0).to(tl.int64)
    nodes = tl.arange(0, node_block)
    scratch = scratch_of(scratch, segment, rows)
    program = program_of(
        problem, scratch, seed, segment, first_instance, num_nodes, num_rows, length, nodes, num_depots, rows
    )
    index, lane = program.index, tl.arange(0, rows)
    row = program.first_row + lane
    present = row < num_rows
    legal, step, made, active = present, 0, 0, 1
    actions = tours.actions + index * num_actions * num_rows
    log_likelihood = tours.log_likelihood + index * num_rows
    tl.store(log_likelihood + row, lane * 0.0, mask=present)
    begin(program, nodes, num_depots, strict, rows, chunk)
    for forced_step in tl.static_range(num_forced):
        action = tl.load(starts + row * num_forced + forced_step, mask=present, other=0)
        moves = load_moves(scratch, lane, rows)
        free_choice = (num_depots == 1) & (action == 0)
        legal = legal & (free_choice | contains(moves.low, moves.high, action, node_block))
        tl.store(actions + row, action, mask=present)
        active, made = move(
            program, record, actions, step, made, nodes, num_depots, strict, sampled, False, rows, chunk
        )
        actions += num_rows
        step += 1
    while (step < num_actions) & (active > 0):
        decide(
            program,
            index,
            tables,
            weights,
            actions,
            log_likelihood,
            greedy_row,
            nodes,
            num_nodes,
            remaining,
            head_kind,
            ramped,
            masking,
            sampled,
            width,
            heads,
            hidden,
            hidden_block,
            rows,
            stages,
        )
        active, made = move(
            program, record, actions, step, made, nodes, num_depots, strict, sampled, recorded, rows, chunk
        )
        actions += num_rows
        step += 1
    state, moves = load_state(scratch, lane, rows), load_moves(scratch, lane, rows)
    while step < num_actions:
        tl.store(actions + row, state.depot.to(tl.int64), mask=present)
        actions += num_rows
        step += 1
    if recorded:
        tl.store(record.made + segment, made)
    finish(tours, index * num_rows + row, present, length_of(program.instance, state, node_block), legal, moves)


@triton.jit(do_not_specialize=["num_free"])
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
    """Replay of given tours; legal are those whose actions all are, and served those that serve everyone."""
    segment = tl.program_id(0).to(tl.int64)
    nodes = tl.arange(0, node_block)
    program = program_of(problem, 0, 0, segment, 0, num_nodes, num_rows, length, nodes, num_depots, rows)
    instance, everyone = program.instance, program.everyone
    row = program.first_row + tl.arange(0, rows)
    present = row < num_rows
    legal, step, made = present, 0, 0
    state = start_of(present, everyone)
    moves = legal_moves(instance, state, nodes, 0, everyone, num_depots, strict)
    active = unserved(moves)
    place = program.index * num_actions * num_rows + row
    while (step < num_actions) & (active > 0):
        given = tl.load(actions + place + step * num_rows, mask=present, other=0).to(tl.int32)
        action = tl.where(moves.served, state.depot, given)
        free_choice = (num_depots == 1) & (action == 0) & (step == 0)
        legal = legal & (moves.served | free_choice | contains(moves.low, moves.high, action, node_block))
        decided = is_decision(moves) & (step >= num_free) & legal
        made = note(record, program, made, decided, row, action, state, moves, node_block)
        state = advance(instance, state, moves, action, node_block, num_depots)
        moves = legal_moves(instance, state, nodes, step + 1, everyone, num_depots, strict)
        active = unserved(moves)
        step += 1
    tl.store(record.made + segment, made)
    finish(tours, program.index * num_rows + row, present, length_of(instance, state, node_block), legal, moves)
