"""Self-check of level ``fused``: compiled, right and capturable here, found out on a tiny batch before it is trusted.

The batch is of the kind of instances that the level is wanted for: with several depots kernels are compiled anew, and
mixed backhauls have rules of their own. Three depots stand for all numbers of several. Inference has a rollout of its
own, and another by the rules of published environments; where nothing else is wanted nothing else is checked.

Shape legend: B instances, S tours per instance, n customers, N nodes, K depots, d width.
"""

import math
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from polarvrp.config.architectures import ramps_decoder
from polarvrp.decoding.fused.engine import INITIAL_ROOM, FusedEngine
from polarvrp.decoding.fused.packed_attention import SLOTS_PER_CHUNK
from polarvrp.decoding.fused.rollout import interpreted
from polarvrp.decoding.graphs import CapturedCall
from polarvrp.decoding.greedy_check import greedy_problem
from polarvrp.decoding.level_check import SAMPLING_SEED, Agreement, Probe, ProbeResult, compare_with_parallel
from polarvrp.environment.environment import Environment, Protocol
from polarvrp.errors import EngineError
from polarvrp.model.decoder import PointerDecoder
from polarvrp.model.policy import Policy
from polarvrp.problem.instances import Instances
from polarvrp.problem.torch_generator import generate_batch
from polarvrp.problem.variants import TRAINING_KIND, VARIANTS, Kind, variants_of

INTERPRETER_BATCH = 2
CAPTURE_ERROR = 1e-3
"""Largest relative difference between captured and uncaptured gradients."""

_faults: dict[Hashable, str | None] = {}


def fault_of(
    policy: Policy, num_nodes: int, kind: Kind = TRAINING_KIND, protocol: Protocol | None = None, *, bfloat16: bool
) -> str | None:
    """Why level ``fused`` must not be used here, ``None`` if it may; found out once a process for each form and kind.

    Args:
        policy: One that ``rollout.supports`` accepts, on its device.
        num_nodes: N.
        kind: Of the instances.
        protocol: Rules of an inference, for which greedy tours alone are checked; ``None`` for trainings.
        bfloat16: Whether matrix products will run in bfloat16.

    Raises:
        EngineError: If the device is of no use any more after the check.
    """
    bfloat16 = bfloat16 and not interpreted()  # the interpreter cuts digits off instead of rounding
    key = (_form(policy, num_nodes, bfloat16), kind, protocol)
    if key not in _faults:
        _faults[key] = _found_fault(policy, num_nodes, kind, protocol, bfloat16)
    return _faults[key]


def self_check(
    policy: Policy, num_nodes: int, kind: Kind = TRAINING_KIND, *, bfloat16: bool
) -> tuple[Agreement, str | None]:
    """Run level ``fused`` on a tiny batch as trainings do, uncaptured and captured, and as their validations do.

    Args:
        policy: As of :func:`fault_of`.
        num_nodes: N.
        kind: Of the instances.
        bfloat16: Whether matrix products run in bfloat16.

    Returns:
        Agreement with level ``parallel`` in float32, and what is wrong with greedy tours, with the first epochs or when
        captured.
    """
    engine = FusedEngine()
    with _set_apart(policy) as device:
        environment = Environment(instances_of(kind, num_nodes, device))
        embeddings = _embeddings(policy, environment.instances, bfloat16)
        probe = Probe(engine, policy, environment, embeddings, bfloat16=bfloat16)
        result = probe.run()
        agreement = compare_with_parallel(probe, result)
        if agreement.problem is not None:
            return agreement, None
        problem = greedy_problem(engine, policy, environment, embeddings, bfloat16=bfloat16)
        return agreement, problem or _ramp_problem(probe) or _capture_problem(probe, result)


def greedy_self_check(policy: Policy, num_nodes: int, kind: Kind, protocol: Protocol, *, bfloat16: bool) -> str | None:
    """What is wrong with greedy tours of level ``fused`` on a tiny batch; arguments as of :func:`fault_of`."""
    with _set_apart(policy) as device:
        environment = Environment(instances_of(kind, num_nodes, device), protocol)
        embeddings = _embeddings(policy, environment.instances, bfloat16)
        return greedy_problem(FusedEngine(), policy, environment, embeddings, bfloat16=bfloat16)


def instances_of(kind: Kind, num_nodes: int, device: torch.device) -> Instances[Tensor]:
    """The batch of a check: so many instances that their decisions fill a chunk on a GPU, few in the interpreter.

    Args:
        kind: Of all of them.
        num_nodes: N.
        device: Where they are made.
    """
    variants = variants_of(kind)
    num_depots = VARIANTS[variants[0]].num_depots
    customers = max(num_nodes - num_depots, 2)  # one customer leaves nothing to decide
    batch = INTERPRETER_BATCH
    if device.type == "cuda":  # what is compiled here then serves trainings too
        rows = customers + 1 if num_depots == 1 else num_depots * customers
        batch = math.ceil(SLOTS_PER_CHUNK / (rows * customers * INITIAL_ROOM))
    return generate_batch(customers, batch, _generator(device), device, variants)


def first_line(error: Exception) -> str:
    """Kind of an error and the first line of its message that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _found_fault(policy: Policy, num_nodes: int, kind: Kind, protocol: Protocol | None, bfloat16: bool) -> str | None:
    device = next(policy.parameters()).device
    try:
        if protocol is not None:
            return greedy_self_check(policy, num_nodes, kind, protocol, bfloat16=bfloat16)
        agreement, problem = self_check(policy, num_nodes, kind, bfloat16=bfloat16)
    except Exception as error:  # compilers and drivers raise what they like
        _require_working(device, error)
        return first_line(error)
    return agreement.problem or problem


def _require_working(device: torch.device, error: Exception) -> None:
    """Make sure that a failed check has not left the device in a state in which everything fails."""
    if device.type != "cuda":
        return
    try:
        torch.zeros(1, device=device).add_(1)
        torch.cuda.synchronize(device)
    except RuntimeError as broken:
        raise EngineError(
            f"engine fused failed its self-check ({first_line(error)}) and left the GPU unusable; "
            "start again with engine parallel"
        ) from broken


def _ramp_problem(probe: Probe) -> str | None:
    """What is wrong while the decoder's residual block is half on: the first epochs have kernels of their own."""
    policy = probe.policy
    if not ramps_decoder(policy.config):
        return None
    before, policy.ramp = policy.ramp, torch.full((), 0.5, device=probe.embeddings.device)
    try:
        problem = compare_with_parallel(probe, probe.run()).problem
    finally:
        policy.ramp = before
    return None if problem is None else f"with half of the decoder's residual block {problem}"


def _capture_problem(probe: Probe, expected: ProbeResult) -> str | None:
    """What a CUDA graph of the probe gives that the probe itself does not."""
    probe.policy.zero_grad()
    probe.generator.manual_seed(SAMPLING_SEED)
    captured = CapturedCall(probe, probe.embeddings.device, [probe.generator])
    probe.generator.manual_seed(SAMPLING_SEED)
    found = captured()
    if not torch.equal(found.tours.cost, expected.tours.cost):
        return "captured tours differ from uncaptured ones"
    error = float((found.gradient - expected.gradient).norm() / expected.gradient.norm())
    return None if error < CAPTURE_ERROR else f"captured gradients differ from uncaptured ones by {error:.2g}"


def _form(policy: Policy, num_nodes: int, bfloat16: bool) -> Hashable:
    """What the code of kernels depends on, apart from the kind of instances."""
    decoder = policy.decoder
    assert isinstance(decoder, PointerDecoder)
    return (
        next(policy.parameters()).device,
        type(decoder.head),
        tuple(tuple(parameter.shape) for parameter in decoder.parameters()),
        decoder.state,
        decoder.glimpse_mask,
        (num_nodes - 1).bit_length(),
        bfloat16,
    )


def _embeddings(policy: Policy, instances: Instances[Tensor], bfloat16: bool) -> Tensor:
    """Random ones: they leave encoders normalised, and which ones makes no difference to a decoder's kernels."""
    device = instances.locs.device
    shape = (len(instances), instances.num_nodes, policy.decoder.query.out_features)
    embeddings = torch.randn(shape, generator=_generator(device), device=device)
    return embeddings.to(torch.bfloat16 if bfloat16 else torch.float32)


def _generator(device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(1)


@contextmanager
def _set_apart(policy: Policy) -> Iterator[torch.device]:
    """Where a check computes, whatever surrounds it; nothing of it stays behind."""
    device = next(policy.parameters()).device
    with torch.inference_mode(False), torch.enable_grad(), _kept_gradients(policy), _side_stream(device):
        yield device


@contextmanager
def _kept_gradients(policy: Policy) -> Iterator[None]:
    """Put the gradients back that the network has."""
    kept: list[Tensor | None] = [parameter.grad for parameter in policy.parameters()]
    try:
        yield
    finally:
        for parameter, gradient in zip(policy.parameters(), kept, strict=True):
            parameter.grad = gradient


@contextmanager
def _side_stream(device: torch.device) -> Iterator[None]:
    """A stream of its own on a GPU, as trainings have: the default one cannot be captured."""
    if device.type != "cuda":
        yield
        return
    caller, stream = torch.cuda.current_stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(caller)
    with torch.cuda.stream(stream):
        yield
    caller.wait_stream(stream)
