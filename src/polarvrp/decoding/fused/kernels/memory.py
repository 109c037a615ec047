# mypy: disable-error-code="import-untyped, untyped-decorator, no-untyped-def"
"""Rollout states spilled to memory, while the decoder needs the registers.

A thread may read what others wrote after a barrier only, and threads that share a row must all have read it before
one of them writes.

Shape legend: R rows of a program.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from polarvrp.decoding.fused.kernels.rules import Moves, State


class Scratch(NamedTuple):
    """Memory of all programs, or of one."""

    numbers: Any  # float32 [programs, 4, R]
    words: Any  # int64 [programs, 12, R]
    zero: Any  # int64 [1]


@triton.jit
def scratch_of(scratch, program, rows: tl.constexpr):
    """That of one program, an int64."""
    return Scratch(scratch.numbers + program * 4 * rows, scratch.words + program * 12 * rows, scratch.zero)


@triton.jit
def load_state(scratch, lane, rows: tl.constexpr):
    """Load the states of some rows."""
    numbers, words = scratch.numbers + lane, scratch.words + lane
    return State(
        current=tl.load(words).to(tl.int32),
        depot=tl.load(words + rows).to(tl.int32),
        time=tl.load(numbers),
        length=tl.load(numbers + rows),
        used_linehaul=tl.load(words + 9 * rows).to(tl.int32),
        used_backhaul=tl.load(words + 10 * rows).to(tl.int32),
        peak_load=tl.load(words + 11 * rows).to(tl.int32),
        visited_low=tl.load(words + 2 * rows),
        visited_high=tl.load(words + 3 * rows),
        tried=tl.load(words + 4 * rows),
        travelled=tl.load(numbers + 2 * rows),
    )


@triton.jit
def load_moves(scratch, lane, rows: tl.constexpr):
    """Load the moves of some rows."""
    words = scratch.words + lane
    return Moves(
        low=tl.load(words + 5 * rows),
        high=tl.load(words + 6 * rows),
        number=tl.load(words + 7 * rows).to(tl.int32),
        served=tl.load(words + 8 * rows) != 0,
        tried=tl.load(words + 4 * rows),
    )


@triton.jit
def load_number(scratch, lane, rows: tl.constexpr):
    """Load the random numbers of some rows."""
    return tl.load(scratch.numbers + 3 * rows + lane)


@triton.jit
def store_number(scratch, lane, number, rows: tl.constexpr):
    """Store a random number for each of some rows."""
    tl.store(scratch.numbers + 3 * rows + lane, number)


@triton.jit
def store(scratch, lane, state, moves, rows: tl.constexpr):
    """Store states and moves of some rows; visible to other threads after a barrier."""
    numbers, words = scratch.numbers + lane, scratch.words + lane
    tl.store(numbers, state.time)
    tl.store(numbers + rows, state.length)
    tl.store(numbers + 2 * rows, state.travelled)
    tl.store(words, state.current.to(tl.int64))
    tl.store(words + rows, state.depot.to(tl.int64))
    tl.store(words + 2 * rows, state.visited_low)
    tl.store(words + 3 * rows, state.visited_high)
    tl.store(words + 4 * rows, moves.tried)
    tl.store(words + 5 * rows, moves.low)
    tl.store(words + 6 * rows, moves.high)
    tl.store(words + 7 * rows, moves.number.to(tl.int64))
    tl.store(words + 8 * rows, moves.served.to(tl.int64))
    tl.store(words + 9 * rows, state.used_linehaul.to(tl.int64))
    tl.store(words + 10 * rows, state.used_backhaul.to(tl.int64))
    tl.store(words + 11 * rows, state.peak_load.to(tl.int64))
