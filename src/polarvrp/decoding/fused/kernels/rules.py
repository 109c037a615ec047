# mypy: disable-error-code="import-untyped, untyped-decorator, no-untyped-def"
"""Environment inside a kernel: mask and transition of ``environment.Environment`` for some rows of one instance.

The same operations in the same order, so that masks and costs are the same to the last bit.

Nodes are padded to P, a power of two; padded nodes are never legal. Sets of nodes are two words of bits, node n is
bit ``n % 64`` of word ``n // 64``; up to 64 nodes the second word is 0 and never looked at.

Shape legend: B instances, R rows of a program, P padded nodes.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from polarvrp.decoding import masks

WORD_BITS = tl.constexpr(masks.WORD_BITS)
RULES = tl.constexpr(3)


class Problem(NamedTuple):
    """Instances: ``environment.Constants`` as kernels read them."""

    distances: Any  # float32 [B, P, P]
    loads: Any  # int32 [B, 2, P]: linehaul, backhaul
    times: Any  # float32 [B, 2, P]: earliest, service
    bounds: Any  # float32 [B, K, 2, P]: last arrival (-inf at depots and on padding), longest way
    limit: Any  # float32 [B]
    rules: Any  # int32 [B, 3]: capacity, open route, mixed backhauls


class Instance(NamedTuple):
    """One of them: pointers to its tables, and its rules, ``[1]`` each."""

    distances: Any
    loads: Any
    times: Any
    bounds: Any
    limit: Any
    capacity: Any
    open_route: Any
    mixed: Any


class State(NamedTuple):
    """Rows under construction, as ``environment.State``; ``[R]`` each."""

    current: Any
    depot: Any
    time: Any
    length: Any
    used_linehaul: Any
    used_backhaul: Any
    peak_load: Any
    visited_low: Any
    visited_high: Any
    tried: Any
    travelled: Any


class Moves(NamedTuple):
    """What the rows may do next; ``[R]`` each."""

    low: Any
    high: Any
    number: Any
    served: Any
    tried: Any


@triton.jit
def as_words(flags, nodes):
    """Booleans ``[R, P]`` as two words of bits."""
    bits = flags.to(tl.int64) << (nodes % WORD_BITS).to(tl.int64)[None, :]
    if nodes.shape[0] <= WORD_BITS:
        low = tl.sum(bits, 1)
        high = low * 0
    else:
        in_low = (nodes < WORD_BITS)[None, :]
        low = tl.sum(tl.where(in_low, bits, 0), 1)
        high = tl.sum(tl.where(in_low, 0, bits), 1)
    return low, high


@triton.jit
def contains(low, high, nodes, node_block: tl.constexpr):
    """Whether sets contain nodes; shapes broadcast."""
    word = low.to(tl.int32)
    if node_block > 32:
        word = tl.where((nodes & 32) != 0, (low >> 32).to(tl.int32), word)
    if node_block > 64:
        later = tl.where((nodes & 32) != 0, (high >> 32).to(tl.int32), high.to(tl.int32))
        word = tl.where((nodes & 64) != 0, later, word)
    # Neighbouring nodes of a thread are 8 apart: this way they share the shift and differ by a constant alone.
    return ((word >> (nodes & 7)) & (1 << (nodes & 24))) != 0


@triton.jit
def instance_of(problem, index, num_depots: tl.constexpr, node_block: tl.constexpr):
    """Instance ``index``, an int64."""
    rules = problem.rules + index * RULES + tl.arange(0, 1)
    return Instance(
        distances=problem.distances + index * node_block * node_block,
        loads=problem.loads + index * 2 * node_block,
        times=problem.times + index * 2 * node_block,
        bounds=problem.bounds + index * num_depots * 2 * node_block,
        limit=tl.load(problem.limit + index + tl.arange(0, 1)),
        capacity=tl.load(rules),
        open_route=tl.load(rules + 1) > 0,
        mixed=tl.load(rules + 2) > 0,
    )


@triton.jit
def all_customers(nodes, num_nodes, num_depots: tl.constexpr):
    """The set of all customers as two words, ``[1]`` each."""
    return as_words(((nodes >= num_depots) & (nodes < num_nodes))[None, :], nodes)


@triton.jit
def start_of(present, everyone):
    """State before the first action; rows that are not present have served everyone."""
    zero = present.to(tl.float32) * 0.0
    nowhere = present.to(tl.int32) * 0
    nobody = present.to(tl.int64) * 0
    return State(
        current=nowhere,
        depot=nowhere,
        time=zero,
        length=zero,
        used_linehaul=nowhere,
        used_backhaul=nowhere,
        peak_load=nowhere,
        visited_low=tl.where(present, nobody, everyone[0]),
        visited_high=tl.where(present, nobody, everyone[1]),
        tried=nobody,
        travelled=zero,
    )


@triton.jit
def has_served(state, everyone):
    """Rows without customers left."""
    low_served = (state.visited_low & everyone[0]) == everyone[0]
    return low_served & ((state.visited_high & everyone[1]) == everyone[1])


@triton.jit
def free_share(instance, used):
    """Share of the capacity that a load leaves (``Environment.features``), ``[R]``."""
    return tl.div_rn((instance.capacity - used).to(tl.float32), instance.capacity.to(tl.float32))


@triton.jit
def load_fits(instance, state, nodes, strict: tl.constexpr):
    """Customers whose goods the vehicle can take (``Environment._load_fits``), ``[R, P]``."""
    node_block: tl.constexpr = nodes.shape[0]
    linehaul = tl.load(instance.loads + nodes)[None, :]
    backhaul = tl.load(instance.loads + node_block + nodes)[None, :]
    blocking = tl.maximum(state.used_linehaul, state.peak_load if strict else state.used_backhaul)
    free = instance.capacity - tl.where(instance.mixed, blocking, state.used_linehaul)
    after_backhaul = tl.load(instance.loads + node_block + state.current) > 0
    free = tl.where(after_backhaul & ~instance.mixed, -1, free)
    free_backhaul = instance.capacity - state.used_backhaul
    return tl.where(backhaul > 0, backhaul <= free_backhaul[:, None], linehaul <= free[:, None])


@triton.jit
def legal_customers(instance, state, nodes, num_depots: tl.constexpr, strict: tl.constexpr):
    """Customers that may come next (``Environment._customer_mask``), ``[R, P]``."""
    node_block: tl.constexpr = nodes.shape[0]
    out = tl.load(instance.distances + state.current[:, None] * node_block + nodes[None, :])
    if num_depots == 1:
        last_arrival = tl.load(instance.bounds + nodes)[None, :]
        longest_way = tl.load(instance.bounds + node_block + nodes)[None, :]
    else:
        bounds = instance.bounds + state.depot[:, None] * (2 * node_block) + nodes[None, :]
        last_arrival = tl.load(bounds)
        longest_way = tl.load(bounds + node_block)
    legal = state.time[:, None] + out < last_arrival
    legal = legal & (state.length[:, None] + out <= longest_way)
    legal = legal & load_fits(instance, state, nodes, strict)
    visited = contains(state.visited_low[:, None], state.visited_high[:, None], nodes[None, :], node_block)
    return legal & ~visited


@triton.jit
def legal_moves(instance, state, nodes, step, everyone, num_depots: tl.constexpr, strict: tl.constexpr):
    """Mask and deadlock bookkeeping (``Environment.reset`` and ``_with_mask``)."""
    customers = legal_customers(instance, state, nodes, num_depots, strict)
    if num_depots > 1:
        customers = customers & (step > 0)
    low, high = as_words(customers, nodes)
    number = tl.sum(customers.to(tl.int32), 1)
    served = has_served(state, everyone)
    away = state.current >= num_depots
    tried = state.tried
    if num_depots == 1:
        depots = (away | (number == 0)).to(tl.int64)
        number += depots.to(tl.int32)
    else:
        every_depot: tl.constexpr = (1 << num_depots) - 1
        deadlock = ~(away | served) & (number == 0) & (step > 0)
        own = tl.full([1], 1, tl.int64) << state.depot.to(tl.int64)
        tried = tl.where(deadlock, tried | own, 0)
        chooses = away | (served & (number == 0)) | deadlock | (step == 0)
        depots = tl.where(chooses, every_depot & ~tried, 0)
        for depot in tl.static_range(num_depots):
            number += ((depots >> depot) & 1).to(tl.int32)
    return Moves(low=low | depots, high=high, number=number, served=served, tried=tried)


@triton.jit
def advance(instance, state, moves, action, node_block: tl.constexpr, num_depots: tl.constexpr):
    """State after ``action`` (``Environment.step``)."""
    to_depot = action < num_depots
    target = tl.where(to_depot, state.depot, action)
    leg = tl.load(instance.distances + state.current * node_block + target)
    leg = tl.where(to_depot & ((state.current < num_depots) | instance.open_route), 0.0, leg)
    linehaul = tl.load(instance.loads + action)
    backhaul = tl.load(instance.loads + node_block + action)
    earliest = tl.load(instance.times + action)
    service = tl.load(instance.times + node_block + action)
    used_backhaul = state.used_backhaul + backhaul
    peak = tl.where(backhaul > 0, tl.maximum(state.peak_load, used_backhaul), state.peak_load + linehaul)
    bit = tl.full([1], 1, tl.int64) << (action % WORD_BITS).to(tl.int64)
    in_low = action < WORD_BITS
    return State(
        current=action,
        depot=tl.where(to_depot, action, state.depot),
        time=tl.where(to_depot, 0.0, tl.maximum(state.time + leg, earliest) + service),
        length=tl.where(to_depot, 0.0, state.length + leg),
        used_linehaul=tl.where(to_depot, 0, state.used_linehaul + linehaul),
        used_backhaul=tl.where(to_depot, 0, used_backhaul),
        peak_load=tl.where(to_depot, 0, peak),
        visited_low=state.visited_low | tl.where(in_low, bit, 0),
        visited_high=state.visited_high | tl.where(in_low, 0, bit),
        tried=moves.tried,
        travelled=state.travelled + leg,
    )


@triton.jit
def length_of(instance, state, node_block: tl.constexpr):
    """Length of the tours (``Environment.cost``)."""
    closing = tl.load(instance.distances + state.current * node_block + state.depot)
    return state.travelled + tl.where(instance.open_route, 0.0, closing)
