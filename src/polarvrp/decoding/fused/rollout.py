"""Rollout and replay of level ``fused``: operands, buffers and launches of ``kernels.rollout``.

Whatever depends on a node alone (its share in queries and gates, keys, values, distances) is computed beforehand, by
ordinary tensor operations. No shape depends on values and nothing waits for the device.

Shape legend: B instances, S tours per instance, F forced first actions, T actions, G programs per instance,
L slots of a segment, N nodes, P padded nodes, W mask words, H heads, D = d / H features of a head, d width,
f hidden features.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from triton.runtime.interpreter import InterpretedFunction

from polarvrp.decoding.fused.kernels import rollout as kernels
from polarvrp.decoding.fused.kernels.memory import Scratch
from polarvrp.decoding.fused.kernels.pointer import Tables, Weights
from polarvrp.decoding.fused.kernels.rollout import Record, Tours
from polarvrp.decoding.fused.kernels.rules import Problem
from polarvrp.decoding.fused.packing import SMALLEST_BLOCK, TILE, Segments, block_of
from polarvrp.decoding.masks import mask_words
from polarvrp.decoding.sampling import Sampler
from polarvrp.environment.environment import Environment
from polarvrp.errors import ConfigError
from polarvrp.model.adapters import AdaptedLinear, AdaptedNorm
from polarvrp.model.decoder import DecoderCache, PointerDecoder
from polarvrp.model.heads import GatedHead, PlainHead, ReldHead
from polarvrp.model.linear import Linear
from polarvrp.model.policy import Policy

MAX_NODES, MAX_DEPOTS = 128, 62

ROWS = {torch.bfloat16: TILE, torch.float16: TILE, torch.float32: 16}
"""Most rows of a program by the dtype of operands: tensor cores want many, without them few fit into registers."""

HIDDEN_BLOCK = 32
"""Hidden features of the decoder computed at once."""

MASK_ROWS = 32
"""Rows whose masks are computed at once."""

WARPS = 4
STAGES = 3
"""Of loads ahead of their use in loops over heads and hidden features."""


HEAD_KINDS = {PlainHead: "plain", GatedHead: "gated", ReldHead: "reld"}

STATE_COLUMNS = {"full": (0, 1, 2, 3, 4), "remaining_open": (0, 2, 4, 3), "remaining": (0, 2, 3)}
"""Which of the kernels' five numbers (``kernels.pointer.Seen``) each feature of a form of the state is."""


@dataclass(frozen=True, slots=True)
class FusedTours:
    """Tours of a batch.

    Attributes:
        actions: Nodes in order, padded with depots, int64, ``[B, S, T]``; T is ``environment.max_actions``.
        cost: Length, infinite where a forced first action was illegal and the protocol minds, or customers are left,
            float32, ``[B, S]``.
        legal: Whether forced first actions were legal, bool, ``[B, S]``.
        log_likelihood: Sum over decisions, forced first actions count 0, float32, ``[B, S]``.
        unserved: Tours that left customers out, int64, scalar.
        segments: The decisions, ``None`` unless they were asked for.
    """

    actions: Tensor
    cost: Tensor
    legal: Tensor
    log_likelihood: Tensor
    unserved: Tensor
    segments: Segments | None


def interpreted() -> bool:
    """Whether the kernels run in Triton's interpreter, on any device."""
    return isinstance(kernels.rollout, InterpretedFunction)


def supports(policy: Policy, num_nodes: int) -> str | None:
    """Reason why the kernels cannot serve a network and size, ``None`` if they can.

    Args:
        policy: Any network.
        num_nodes: N.
    """
    decoder = policy.decoder
    if num_nodes > MAX_NODES:
        return f"it serves up to {MAX_NODES} nodes, not {num_nodes}"
    if type(decoder) is not PointerDecoder:
        return f"its decoder is a {type(decoder).__name__}, not a PointerDecoder"
    if any(isinstance(module, AdaptedLinear | AdaptedNorm) for module in decoder.modules()):
        return "its decoder has adapters"
    if type(decoder.head) not in HEAD_KINDS:
        return f"its decoder has a {type(decoder.head).__name__}"
    if type(decoder.head.output) is not Linear:
        return f"the output map of its decoder is a {type(decoder.head.output).__name__}"
    return _unsuitable_sizes(decoder)


def _unsuitable_sizes(decoder: PointerDecoder) -> str | None:
    """What the kernels' blocks do not fit, or ``None``."""
    width, hidden = decoder.query.out_features, _hidden(decoder.head)
    head_width = width // decoder.heads
    if (block_of(head_width), block_of(width)) != (head_width, width):
        return f"width and width of a head must be powers of two from {SMALLEST_BLOCK} on, not {width}, {head_width}"
    if hidden % SMALLEST_BLOCK:
        return f"hidden features of its decoder must be a multiple of {SMALLEST_BLOCK}, not {hidden}"
    return None


@torch.no_grad()
def fused_rollout(
    policy: Policy,
    embeddings: Tensor,
    environment: Environment,
    starts: Tensor,
    sampler: Sampler | None = None,
    *,
    greedy_last: bool = False,
    record_length: int | None = None,
) -> FusedTours:
    """Rollout of S tours per instance.

    Args:
        policy: One that :func:`supports` accepts.
        embeddings: Node embeddings of the instances, float, ``[B, N, d]``.
        environment: The instances.
        starts: Forced first actions, int64, ``[S, F]``.
        sampler: Source of the samples; without one every row takes the most probable action.
        greedy_last: Let the last row take the most probable actions while the others sample.
        record_length: Keep the decisions, up to so many of each program's tours; L is that or all they can make.
    """
    cache = policy.cache(embeddings, environment.instances)
    decoder, dtype = policy.decoder, cache.keys.dtype
    batch, num_nodes, width = embeddings.shape
    num_rows, num_forced = starts.shape
    rows = min(block_of(num_rows), ROWS[dtype])
    grid = batch * -(-num_rows // rows)
    tours = _empty_tours(batch, num_rows, environment.max_actions, embeddings.device)
    length = min(record_length or 1, rows * environment.max_actions)
    segments = _empty_segments(batch, grid // batch, length, num_nodes, embeddings.device)
    seed = starts.new_zeros(1) if sampler is None else sampler.seed()
    kernels.rollout[(grid,)](
        _problem(environment),
        _tables(decoder, cache, dtype),
        _weights(decoder, dtype, policy.ramp),
        starts.contiguous(),
        seed,
        tours,
        _record(segments),
        Scratch(
            torch.empty(grid, 4, rows, dtype=torch.float32, device=starts.device),
            torch.empty(grid, 12, rows, dtype=torch.int64, device=starts.device),
            starts.new_zeros(1),
        ),
        0 if sampler is None else sampler.first,
        num_rows - 1 if greedy_last else -1,
        num_nodes,
        num_rows,
        environment.max_actions,
        length,
        num_forced=num_forced,
        num_depots=environment.num_depots,
        strict=environment.strict,
        remaining=decoder.state != "full",
        head_kind=HEAD_KINDS[type(decoder.head)],
        ramped=isinstance(policy.ramp, Tensor) or policy.ramp < 1.0,
        masking=decoder.glimpse_mask,
        sampled=sampler is not None,
        recorded=record_length is not None,
        width=width,
        heads=decoder.heads,
        hidden=_hidden(decoder.head),
        hidden_block=_hidden_block(_hidden(decoder.head)),
        node_block=block_of(num_nodes),
        rows=rows,
        chunk=min(rows, MASK_ROWS),
        stages=STAGES,
        num_warps=WARPS,
    )
    return FusedTours(
        actions=tours.actions.transpose(1, 2).contiguous(),
        cost=tours.cost.masked_fill(~(environment.admitted(tours.legal) & tours.served), torch.inf),
        legal=tours.legal,
        log_likelihood=tours.log_likelihood,
        unserved=(~tours.served).sum(),
        segments=None if record_length is None else segments,
    )


@torch.no_grad()
def fused_replay(
    environment: Environment, actions: Tensor, num_free: int, record_length: int
) -> tuple[Tensor, Tensor, Segments]:
    """Replay given tours.

    Args:
        environment: The instances.
        actions: Nodes in order, padded with depots, int64, ``[B, S, T]``.
        num_free: First actions that are not decisions, as the forced ones of a rollout.
        record_length: As of :func:`fused_rollout`.

    Returns:
        Lengths, float32, ``[B, S]``; whether every action was legal and everyone served, bool, ``[B, S]``; decisions
        of the legal parts.
    """
    batch, num_rows, num_actions = actions.shape
    num_nodes = environment.num_depots + environment.num_customers
    rows = SMALLEST_BLOCK  # states stay in registers here
    grid = batch * -(-num_rows // rows)
    tours = _empty_tours(batch, num_rows, 1, actions.device)
    length = min(record_length, rows * num_actions)
    segments = _empty_segments(batch, grid // batch, length, num_nodes, actions.device)
    kernels.replay[(grid,)](
        _problem(environment),
        actions.transpose(1, 2).contiguous(),
        tours,
        _record(segments),
        num_free,
        num_nodes,
        num_rows,
        num_actions,
        length,
        num_depots=environment.num_depots,
        strict=environment.strict,
        node_block=block_of(num_nodes),
        rows=rows,
        num_warps=WARPS,
    )
    return tours.cost, tours.legal & tours.served, segments


def _hidden(head: nn.Module) -> int:
    """f, any valid number for heads without a feed-forward network."""
    return head.feedforward.down.in_features if isinstance(head, GatedHead | ReldHead) else SMALLEST_BLOCK


def _hidden_block(hidden: int) -> int:
    """Hidden features computed at once: a power of two that divides f."""
    return min(hidden & -hidden, HIDDEN_BLOCK)


def _empty_tours(batch: int, num_rows: int, num_actions: int, device: torch.device) -> Tours:
    def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    return Tours(
        actions=empty(batch, num_actions, num_rows, dtype=torch.int64),
        cost=empty(batch, num_rows),
        log_likelihood=empty(batch, num_rows),
        legal=empty(batch, num_rows, dtype=torch.bool),
        served=empty(batch, num_rows, dtype=torch.bool),
    )


def _empty_segments(batch: int, programs: int, length: int, num_nodes: int, device: torch.device) -> Segments:
    def empty(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(batch, programs, *shape, dtype=dtype, device=device)

    return Segments(
        count=empty(),
        row=empty(length),
        current=empty(length),
        action=empty(length),
        features=empty(length, 5, dtype=torch.float32),
        mask=empty(length, mask_words(num_nodes), dtype=torch.int64),
    )


def _record(segments: Segments) -> Record:
    return Record(segments.count, segments.row, segments.current, segments.action, segments.features, segments.mask)


def _problem(environment: Environment) -> Problem:
    """Constants as the kernels read them."""
    if environment.num_depots > MAX_DEPOTS:
        raise ConfigError(
            f"engine fused serves up to {MAX_DEPOTS} depots, got {environment.num_depots}; use engine parallel"
        )
    constants = environment.constants
    num_nodes = constants.distances.shape[1]
    missing = block_of(num_nodes) - num_nodes

    def padded(*tables: Tensor) -> Tensor:
        return functional.pad(torch.stack(tables, dim=-2), (0, missing)).contiguous()

    last_arrival = functional.pad(constants.last_arrival, (0, missing), value=-torch.inf)
    longest_way = functional.pad(constants.longest_way, (0, missing))
    flags = (constants.open_route.int(), constants.mixed.int())
    return Problem(
        distances=functional.pad(constants.distances, (0, missing, 0, missing)).to(torch.float32).contiguous(),
        loads=padded(constants.linehaul[:, 0], constants.backhaul[:, 0]),
        times=padded(constants.earliest[:, 0], constants.service[:, 0]).to(torch.float32),
        bounds=torch.stack((last_arrival, longest_way), dim=2).to(torch.float32),
        limit=environment.instances.distance_limit.to(torch.float32).contiguous(),
        rules=torch.cat((constants.capacity, *flags), dim=1).contiguous(),
    )


def _tables(decoder: PointerDecoder, cache: DecoderCache, dtype: torch.dtype) -> Tables:
    """What is known of each node, computed with the precision that a surrounding autocast asks for."""
    embeddings = cache.embeddings
    num_nodes, width = embeddings.shape[1:]
    missing = block_of(num_nodes) - num_nodes

    def padded(rows: Tensor) -> Tensor:
        return functional.pad(rows, (0, 0, 0, missing)).contiguous()

    queries = padded(functional.linear(embeddings, decoder.query.weight[:, :width])).to(dtype)
    gates, log_distances = queries, queries
    if isinstance(decoder.head, GatedHead):
        gates = padded(functional.linear(embeddings, decoder.head.gate.weight[:, :width])).to(dtype)
        gates = gates.repeat_interleave(width // decoder.heads, dim=2)
    if cache.log_distances is not None:
        log_distances = functional.pad(cache.log_distances, (0, missing, 0, missing)).contiguous()
    return Tables(
        embeddings=padded(embeddings),
        queries=queries,
        gates=gates,
        glimpse_keys=padded(cache.keys),
        glimpse_values=padded(cache.values),
        logit_keys=padded(cache.logit_keys.to(dtype)),
        log_distances=log_distances,
    )


def _weights(decoder: PointerDecoder, dtype: torch.dtype, ramp: float | Tensor) -> Weights:
    """Parameters as the kernels read them; those that a head lacks are never read."""
    head, width = decoder.head, decoder.query.out_features
    assert isinstance(head, PlainHead | GatedHead | ReldHead)
    columns = STATE_COLUMNS[decoder.state]
    nothing = decoder.query.weight.new_zeros(width)

    def inputs_first(linear: nn.Module) -> Tensor:
        return linear.get_parameter("weight").t().to(dtype).contiguous()

    def of_state(weight: Tensor) -> Tensor:
        maps = weight.t().to(dtype)  # [s, ...]
        rows = [torch.zeros_like(maps[0])] * SMALLEST_BLOCK
        for column, row in zip(columns, maps, strict=True):
            rows[column] = row
        return torch.stack(rows)

    def bias(linear: nn.Module) -> Tensor:
        return nothing if linear.bias is None else linear.get_parameter("bias").to(dtype)

    weights = Weights(
        query=of_state(decoder.query.weight[:, width:]),
        gate=nothing,
        state=nothing,
        output=inputs_first(head.output),
        output_bias=bias(head.output),
        norm_glimpse=nothing,
        norm_output=nothing,
        up=nothing,
        up_bias=nothing,
        down=nothing,
        down_bias=nothing,
        ramp=ramp.detach().reshape(1) if isinstance(ramp, Tensor) else nothing.new_full((1,), ramp),
    )
    if isinstance(head, PlainHead):
        return weights
    down = head.feedforward.down
    weights = weights._replace(state=of_state(head.state.weight), down=inputs_first(down))
    if isinstance(head, ReldHead):
        up = head.feedforward.up
        return weights._replace(up=inputs_first(up), up_bias=bias(up), down_bias=bias(down))
    return weights._replace(
        gate=of_state(head.gate.weight[:, width:]).repeat_interleave(width // decoder.heads, dim=1),
        norm_glimpse=head.norm_glimpse.weight,
        norm_output=head.norm_output.weight,
        up=inputs_first(head.feedforward.gate_up),
    )
