"""Stages of ``benchmarks/device.py``, each run in a process of its own.

A stage prints its numbers as it finds them, one ``NUMBERS key=value ...`` line at a time, and raises where something
is wrong. Without a card the kernels run in Triton's interpreter at tiny sizes, and what only a card can do is named in
the number ``needs_card``.
"""

import argparse
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import minutes
import numpy as np
import torch
from device import LOG
from timing import timed_steps
from torch import Tensor

from polarvrp.config.model import ModelConfig
from polarvrp.config.training import TrainConfig
from polarvrp.decoding.fused import scoring as fused_scoring
from polarvrp.decoding.fused.checks.kernels import replay_verdicts, rollout_verdicts, scoring_verdicts
from polarvrp.decoding.fused.checks.verdicts import KernelSetting, KernelVerdict, milliseconds_of, relative_error
from polarvrp.decoding.fused.engine import FusedEngine
from polarvrp.decoding.graphs import CapturedCall
from polarvrp.decoding.greedy import Decoding, GreedySolver
from polarvrp.decoding.level_check import Probe, compare_with_parallel
from polarvrp.environment.environment import Environment
from polarvrp.local_search.refinement import Refiner
from polarvrp.machine import card_identity, copy_rate, device_name, driver_version, product_rate, versions
from polarvrp.model.policy import Policy
from polarvrp.model.precision import bfloat16_products, compile_parts, has_bfloat16
from polarvrp.model.registry import build_policy
from polarvrp.problem.instances import to_arrays
from polarvrp.problem.torch_generator import generate_batch
from polarvrp.problem.tours import check_tour, flat_tours
from polarvrp.tolerances import POLICY_TOLERANCE
from polarvrp.training.optimizer import make_optimizer
from polarvrp.training.plan import WARM_UP_RUNS, Plan
from polarvrp.training.step import TrainingStep

EPOCH_INSTANCES = 100_000
TINY = {"width": 32, "heads": 2, "layers": 1, "feedforward_width": 32}
PREFERENCES = {"paradigm": "po"}
REPLAYED_INSTANCES = 16
CAPTURED_STEPS = 8
PARAMETER_DIFFERENCE = 1e-3
"""Largest relative difference of parameters after captured and uncaptured steps."""

NAME_LENGTH = 100
"""Of a kernel."""

ASSUMED_MS = {"step_ms": 25.0, "pyvrp_ms": 45.0}
"""Of stages 7 and 8, where those have not told."""

STEPS_SHARE, SLICE_SHARE, LAST_SLICE_SHARE = 0.35, 0.33, 0.75
"""Of the limit of stage 11: what its steps are planned to take; a slice; by when the last one ends. Two slices fit;
about half a minute goes to the start and the evaluation of each, and a tenth to validations and checkpoints."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What stages are given.

    Attributes:
        device: The card, or the processor.
        output: Folder of all stages.
        weights: To go on from in stage 11, None for fresh ones.
        workers: Processes of local search.
        seconds: Limit of the stage.
    """

    device: torch.device
    output: Path
    weights: Path | None
    workers: int
    seconds: float

    @property
    def on_card(self) -> bool:
        return self.device.type == "cuda"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Customers of an instance."""
        return (50, 100) if self.on_card else (4,)

    @property
    def bfloat16(self) -> bool:
        return has_bfloat16(self.device)

    def policy(self, backbone: str = "polarnet", encoder: str = "ple") -> Policy:
        """Fresh network of full size, or a tiny one."""
        size = {} if self.on_card else TINY
        return build_policy(ModelConfig(backbone=backbone, encoder=encoder, **size), 0).to(self.device)

    def batch(self, size: int) -> int:
        """Instances of a training step."""
        return (256 if size <= 50 else 128) if self.on_card else 2

    def step(
        self, policy: Policy, size: int, engine: str, refiner: Refiner | None, values: Mapping[str, str]
    ) -> TrainingStep:
        """Steps of a training with some values of its configuration."""
        fixed = {"num_customers": size, "batch_size": self.batch(size), "refinement_start_epoch": 0}
        config = TrainConfig(**fixed, **values)
        optimizer = make_optimizer(config, policy, self.device)
        return TrainingStep(policy, optimizer, config, self.bfloat16, refiner, engine=engine)

    def kernel_setting(self, size: int) -> KernelSetting:
        """Sizes of the checks of kernels."""
        return KernelSetting.usual(size, self.device, torch.bfloat16 if self.bfloat16 else torch.float32)


def report(**numbers: object) -> None:
    """Print numbers of the stage."""
    told = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in numbers.items()}
    print("NUMBERS", *(f"{key}={str(value).replace(' ', '_')}" for key, value in told.items()), flush=True)


def machine(setting: Setting) -> None:
    """Versions, card, rates, pinning."""
    for name, version in versions().items():
        report(**{name: version})
    report(device=device_name(setting.device), card=card_identity(setting.device), driver=driver_version())
    report(copy_tb_s=copy_rate(setting.device) / 1e12, product_tflop_s=product_rate(setting.device) / 1e12)
    if not setting.on_card:
        report(needs_card="pinning")
        return
    pinned = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
    milliseconds = milliseconds_of(lambda: pinned.to(setting.device, non_blocking=True), setting.device)
    memory = np.zeros(1 << 24, np.uint8)
    registered = int(torch.cuda.cudart().cudaHostRegister(memory.ctypes.data, memory.nbytes, 0))
    report(pinned_gb_s=pinned.numel() / milliseconds / 1e6, host_register=registered)


def judge(verdicts: Iterable[KernelVerdict], size: int) -> None:
    """Report verdicts on kernels, and their times where they were taken.

    Raises:
        RuntimeError: If one is wrong, once all have been reported.
    """
    wrong, untimed = [], False
    for verdict in verdicts:
        name = f"{verdict.kernel.replace(' ', '_')}_n{size}"
        timed = not math.isnan(verdict.milliseconds)
        report(**{f"{name}_error": verdict.error}, **({f"{name}_ms": verdict.milliseconds} if timed else {}))
        untimed = untimed or not timed
        if not verdict.right:
            wrong.append(f"{name} ({verdict.fault or f'error {verdict.error:.2g}, more than {verdict.bar:.2g}'})")
    if untimed:
        report(needs_card="kernel_times")
    if wrong:
        raise RuntimeError(f"wrong: {', '.join(wrong)}")


def replay_kernel(setting: Setting) -> None:
    """Replay of few and many tours against the stepwise replay."""
    for size in setting.sizes:
        kernel_setting = setting.kernel_setting(size)
        batch = REPLAYED_INSTANCES if setting.on_card else kernel_setting.batch
        judge(replay_verdicts(replace(kernel_setting, batch=batch)), size)


def rollout_kernel(setting: Setting) -> None:
    """Rollouts of all heads, greedy and sampled, twice; their tours before the exact checker."""
    for size in setting.sizes:
        judge(rollout_verdicts(setting.kernel_setting(size)), size)
        probe = level_probe(setting, size)
        with plain_head():
            tours = probe.run().tours
        arrays, actions = to_arrays(probe.environment.instances), tours.actions.cpu().numpy()
        problems = 0
        for index in range(len(arrays)):
            for flat in flat_tours(actions[index], arrays.num_depots):
                problems += check_tour(arrays, index, flat, POLICY_TOLERANCE).first_problem is not None
        report(**{f"checked_tours_n{size}": tours.cost.numel(), f"infeasible_n{size}": problems})
        if problems:
            raise RuntimeError(f"{problems} tours are infeasible")


def plain_head() -> AbstractContextManager[object]:
    """Leave the decoder's head uncompiled: compiling it takes longer than the tours and their gradient."""
    return mock.patch.object(fused_scoring, "_compiled", lambda function: function)


def scoring_kernels(setting: Setting) -> None:
    """Kernels of scoring and of the encoder's attention, forward and backward."""
    for size in setting.sizes:
        judge(scoring_verdicts(setting.kernel_setting(size)), size)


def level_probe(setting: Setting, size: int) -> Probe:
    """Rollout and gradient of level fused on a few instances."""
    policy = setting.policy().eval()
    generator = torch.Generator(setting.device).manual_seed(1)
    instances = generate_batch(size, 16 if setting.on_card else 2, generator, setting.device)
    with bfloat16_products(setting.device, setting.bfloat16):
        embeddings = policy.encode(instances).embeddings.detach()
    return Probe(FusedEngine(), policy, Environment(instances), embeddings, bfloat16=setting.bfloat16)


def gradients(setting: Setting) -> None:
    """Gradients of level fused against level parallel in float32, with the head as it is and compiled."""
    for size in setting.sizes:
        probe = level_probe(setting, size)
        for form in ("plain", "compiled") if setting.on_card else ("plain",):
            with plain_head() if form == "plain" else nullcontext():
                agreement = compare_with_parallel(probe, probe.run())
            errors, unavoidable = agreement.errors, agreement.unavoidable
            report(
                **{
                    f"{form}_gradient_error_n{size}": errors.gradient,
                    f"{form}_likelihood_error_n{size}": errors.mean_likelihood,
                    f"parallel_gradient_error_n{size}": unavoidable.gradient,
                }
            )
            if agreement.problem is not None:
                raise RuntimeError(f"{form} head, n = {size}: {agreement.problem}")
    if not setting.on_card:
        report(needs_card="compiled_head")


def encoder(setting: Setting) -> None:
    """Encoder forward and backward: as it is, compiled, captured."""
    size = setting.sizes[0]
    policy = setting.policy().train()
    generator = torch.Generator(setting.device).manual_seed(1)
    instances = generate_batch(size, setting.batch(size), generator, setting.device)
    parameters = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    # A sum of squares would not do: the norm at the end fixes it, and no layer would get a gradient.
    shape = (len(instances), instances.num_nodes, policy.config.width)
    upstream = torch.randn(shape, generator=generator, device=setting.device)

    def run(bfloat16: bool = setting.bfloat16) -> Tensor:
        for parameter in parameters:
            parameter.grad = None
        with bfloat16_products(setting.device, bfloat16):
            embeddings = policy.encode(instances).embeddings
        (embeddings.float() * upstream).sum().backward()
        return torch.cat([parameter.grad.flatten() for parameter in parameters if parameter.grad is not None])

    stream = torch.cuda.Stream(setting.device) if setting.on_card else None
    if stream is not None:
        stream.wait_stream(torch.cuda.current_stream(setting.device))  # instances and network are made there
    with torch.cuda.stream(stream):
        exact, plain = run(bfloat16=False), run()
        report(eager_error=relative_error(plain, exact), eager_ms=milliseconds_of(run, setting.device))
        if not setting.on_card:
            report(needs_card="compiled,captured")
            return
        begun_s = time.perf_counter()
        compile_parts(policy)
        compiled = run()
        report(compile_seconds=time.perf_counter() - begun_s, compiled_error=relative_error(compiled, exact))
        report(compiled_ms=milliseconds_of(run, setting.device))
        captured = CapturedCall(run, setting.device)
        report(captured_difference=relative_error(captured(), compiled))
        report(captured_ms=milliseconds_of(captured, setting.device))


def captured_step(setting: Setting) -> None:
    """Captured steps against uncaptured ones; a phase that cannot be captured is named by the error."""
    size = setting.sizes[0]
    policy = setting.policy().train()
    initial = {name: value.clone() for name, value in policy.state_dict().items()}
    if setting.on_card:
        compile_parts(policy)
    # Buffers that are fitted after the first warm-up begin another one.
    count = 2 * WARM_UP_RUNS + CAPTURED_STEPS if setting.on_card else WARM_UP_RUNS + 1

    def outcome() -> tuple[list[float], Tensor]:
        policy.load_state_dict(initial)
        step = setting.step(policy, size, "fused", None, PREFERENCES)
        losses = [step.run(0, 1, number, setting.batch(size))["loss"] for number in range(count)]
        return losses, torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])

    with mock.patch.object(Plan, "replays", False):
        losses, numbers = outcome()
    report(uncaptured_loss=losses[-1])
    captured_losses, captured_numbers = outcome()
    difference = relative_error(captured_numbers, numbers)
    report(captured_loss=captured_losses[-1], parameter_difference=difference)
    if not setting.on_card:
        report(needs_card="capture")
    if difference > PARAMETER_DIFFERENCE:
        raise RuntimeError(f"parameters differ by {difference:.2g} after {count} captured steps")


def step_times(
    setting: Setting, size: int, prefix: str, refiner: Refiner | None = None, values: Mapping[str, str] = PREFERENCES
) -> TrainingStep:
    """Report the times of steps, after a warm-up, before and after the odd batch that ends an epoch; the steps."""
    policy = setting.policy().train()
    if setting.on_card:
        compile_parts(policy)
        torch.cuda.reset_peak_memory_stats()
    batch = setting.batch(size)
    attempts = ("", "again_") if refiner is None else ("",)  # again: captured afresh
    for attempt in attempts:
        step = setting.step(policy, size, "auto", refiner, values)
        for number in range(3 * WARM_UP_RUNS if setting.on_card else 1):
            step.run(0, 1, number, batch)
        times = timed_steps(step, 2, batch, 20 if setting.on_card else 1)
        phases = {f"{prefix}{attempt}{phase}_ms": 1e3 * value for phase, value in times.phases_s.items() if value > 0}
        report(**{f"{prefix}{attempt}ms": 1e3 * times.median_s}, **phases, level=step.level)
        if attempt != attempts[-1]:  # nothing is compiled for a size whose steps nobody times
            step.run(0, 3, 0, EPOCH_INSTANCES % batch or batch)
    report(**{f"{prefix}epoch_seconds": times.median_s * EPOCH_INSTANCES / batch})
    report(**({f"{prefix}peak_gb": times.memory_gb} if setting.on_card else {"needs_card": "times,peak_gb"}))
    return step


def kernel_times(function: Callable[[], object], most: int) -> float:
    """Report the kernels that take the device longest; milliseconds of all of them."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        function()
        torch.cuda.synchronize()
    events = sorted(profile.key_averages(), key=lambda event: -event.self_device_time_total)
    for place, event in enumerate(events[:most]):
        name = f"kernel_{place}_{kernel_name(event.key)}"
        report(**{f"{name}_ms": event.self_device_time_total / 1e3, "launches": event.count})
    return sum(event.self_device_time_total for event in events) / 1e3


def kernel_name(signature: str) -> str:
    """A kernel in one word that tells it from others: those of ATen share namespaces and differ in a functor."""
    plain = re.sub(r"\b\w+::|\(anonymous namespace\)::|^void ", "", signature)
    return plain.replace(" ", "_")[:NAME_LENGTH]


def step_of_50(setting: Setting) -> None:
    """Times of a step by phase, then of its kernels."""
    size = setting.sizes[0]
    step = step_times(setting, size, "step_")
    if not setting.on_card:
        report(needs_card="kernel_times")
        return
    report(kernels_ms=kernel_times(partial(step.run, 0, 4, 0, setting.batch(size)), 15))


def refined_step(setting: Setting) -> None:
    """Times of a step with refinement on cores and on the device; ``refine`` is what it waits for cores."""
    with Refiner(setting.workers if setting.on_card else 0) as refiner:
        for kind in ("pyvrp", "gpu"):
            step_times(setting, setting.sizes[0], f"{kind}_", refiner, {"paradigm": "polar", "refiner": kind})


def step_of_100(setting: Setting) -> None:
    """Times of a step of the larger size by phase."""
    step_times(setting, setting.sizes[-1], "step100_")


def inference(setting: Setting) -> None:
    """Seconds of greedy inference under the eight symmetries, the device's share apart."""
    for size in setting.sizes:
        policy = setting.policy().eval()
        if setting.on_card:
            compile_parts(policy)
        generator = torch.Generator(setting.device).manual_seed(4)
        instances = generate_batch(size, 1000 if setting.on_card else 4, generator, setting.device)
        solver = GreedySolver(policy, Decoding(), setting.bfloat16)
        seconds = []
        for _ in range(4 if setting.on_card else 1):
            begun_s = time.perf_counter()
            solver.solve(instances)
            seconds.append(time.perf_counter() - begun_s)
        wall_s = min(seconds)
        report(**{f"inference_s_n{size}": wall_s, f"first_call_s_n{size}": seconds[0]})
        if setting.on_card:
            device_s = kernel_times(partial(solver.solve, instances), 5) / 1e3
            report(**{f"device_s_n{size}": device_s, f"python_s_n{size}": wall_s - device_s})
        else:
            report(needs_card="device_time")


def earlier_number(output: Path, key: str) -> float:
    """The number that an earlier stage reported last, else what is assumed."""
    log, found = output / LOG, ASSUMED_MS[key]
    for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
        if line.startswith("NUMBERS"):
            told = {name: value for name, _, value in (word.partition("=") for word in line.split()[1:])}
            found = float(told.get(key, found))
    return found


def training(setting: Setting) -> None:
    """POLAR of polarnet-ple at n = 50 whose schedule ends with the time; gaps to the published costs."""
    per_epoch, batch, epochs = 40_960, 256, 4  # epochs end in a validation: few of them
    slice_s, limit_s = SLICE_SHARE * setting.seconds, LAST_SLICE_SHARE * setting.seconds
    if setting.on_card:
        plain, refined = (earlier_number(setting.output, key) for key in ("step_ms", "pyvrp_ms"))
        epoch_s = (0.75 * plain + 0.25 * refined) * per_epoch / batch / 1e3
        epochs = max(epochs, int(STEPS_SHARE * setting.seconds / epoch_s))
    else:
        per_epoch, batch, slice_s, limit_s = 8, 4, 4.0, 32.0
    arguments = ["--seconds", str(limit_s), "--slice", str(slice_s), "--limit", str(limit_s), "--epochs", str(epochs)]
    arguments += ["--instances-per-epoch", str(per_epoch), "--batch-size", str(batch)]
    arguments += ["--instances", "200" if setting.on_card else "1", "--workers", str(setting.workers)]
    arguments += ["--output", str(setting.output / "minutes.parquet")]
    if setting.weights is not None:
        arguments += ["--weights", str(setting.weights)]
    report(epochs=epochs)

    def tell(row: Mapping[str, Any]) -> None:
        keys = ("training_seconds", "epoch", "mean_gap_percent")
        report(**{key: float(row[key]) for key in keys}, share_of_schedule=float(row["epoch"]) / epochs)

    with nullcontext() if setting.on_card else tiny_minutes():
        minutes.main(arguments, tell)


@contextmanager
def tiny_minutes() -> Iterator[None]:
    """A training on few variants, of a tiny network unless there are weights."""
    specification = minutes.specification

    def tiny(options: argparse.Namespace) -> dict[str, Any]:
        spec = specification(options)
        return spec if options.weights else spec | {"model": spec["model"] | TINY}

    with (
        mock.patch.object(minutes, "specification", tiny),
        mock.patch.object(minutes, "TRAINING_VARIANTS", ("CVRP", "OVRPBTW")),
        mock.patch.object(minutes, "VALIDATION_INSTANCES", 1),
    ):
        yield
