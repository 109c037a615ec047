"""``polarvrp doctor``: what this machine is, how fast, and whether the engine's kernels are right on it."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterable
from importlib.util import find_spec
from itertools import chain, product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from polarvrp.decoding.fused.checks.verdicts import KernelVerdict

INTERPRETER_NODES = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--num-customers",
        type=int,
        nargs="+",
        default=[50, 100],
        metavar="N",
        help="sizes that kernels are checked at on a card, up to 127 (default: 50 100)",
    )


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are defined
    from polarvrp.training.locks import leased_device

    with leased_device() as device:
        _print_machine(device)
        if find_spec("triton") is None:
            _line("engine", "parallel; triton is not installed, so level fused cannot be used")
            return 0
        if device.type != "cuda":
            return 0 if _interpreter_is_right(device) else 1
        kernels_right = [_check_kernels(size, device) for size in options.num_customers]
        levels_right = [_check_level(size, device) for size in options.num_customers]
    return 0 if all(kernels_right) and all(levels_right) else 1


def _line(name: str, text: str) -> None:
    print(f"{name:<10} {text}", flush=True)


def _print_machine(device: torch.device) -> None:
    import torch

    from polarvrp.machine import (
        card_identity,
        copy_rate,
        driver_version,
        processor_name,
        product_rate,
        reason_for_no_card,
        versions,
    )

    _line("machine", f"{processor_name()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}")
    _line("versions", ", ".join(f"{name} {version}" for name, version in versions().items()))
    if device.type == "cuda":
        card = torch.cuda.get_device_properties(device)
        capability = f"{card.major}.{card.minor}, {card.total_memory / 1e9:.0f} GB"
        _line("card", f"{card.name}, {card_identity(device)}, compute capability {capability}")
        _line("driver", f"{driver_version() or 'unknown'}, CUDA {torch.version.cuda}")
    else:
        _line("card", f"none: {reason_for_no_card()}; driver {driver_version() or 'not found'}")
    _line("copies", f"{copy_rate(device) / 1e12:.3g} TB/s")
    _line("products", f"{product_rate(device) / 1e12:.3g} TFLOP/s in {_precision(device)}")


def _precision(device: torch.device) -> str:
    return "bfloat16" if device.type == "cuda" else "float32"


def _check_kernels(size: int, device: torch.device) -> bool:
    """Print the verdict on each kernel, then on those that are compiled anew for several depots; whether all are right.

    These are given as many nodes, so that all sizes fit.
    """
    import torch

    from polarvrp.decoding.fused.checks.kernels import check_kernels, replay_verdicts, rollout_verdicts
    from polarvrp.decoding.fused.checks.verdicts import KernelSetting
    from polarvrp.model.precision import has_bfloat16
    from polarvrp.problem.variants import KINDS, MULTI_DEPOT_COUNT

    dtype = torch.bfloat16 if has_bfloat16(device) else torch.float32
    right = _print_verdicts("kernel", size, check_kernels(KernelSetting.usual(size, device, dtype)))
    fewer, hardest = max(size + 1 - MULTI_DEPOT_COUNT, 1), KINDS[-1]
    several = KernelSetting.usual(fewer, device, dtype, hardest)
    verdicts = chain(replay_verdicts(several), rollout_verdicts(several))
    return _print_verdicts(hardest.words, fewer, verdicts) and right


def _print_verdicts(title: str, size: int, verdicts: Iterable[KernelVerdict]) -> bool:
    """Print a table of verdicts as they are found; whether all are right."""
    right = True
    print(f"{title:<32}{'n':>5}{'error':>10}{'bar':>10}{'ms':>9}  verdict")
    for verdict in verdicts:
        print(verdict_line(verdict, size), flush=True)
        right = right and verdict.right
    return right


def verdict_line(verdict: KernelVerdict, size: int) -> str:
    """One line of the table of kernels."""
    text = "right" if verdict.right else f"WRONG{': ' + verdict.fault if verdict.fault else ''}"
    numbers = f"{verdict.error:>10.2g}{verdict.bar:>10.2g}{verdict.milliseconds:>9.3f}"
    return f"{verdict.kernel:<32}{size:>5}{numbers}  {text}"


def _check_level(size: int, device: torch.device) -> bool:
    """Print whether level fused as a whole is right on each kind of instances, captured too, and by published rules.

    The check of trainings holds that of inference by the rules of the problem.
    """
    from polarvrp.config.model import ModelConfig
    from polarvrp.decoding.fused.self_check import fault_of
    from polarvrp.environment.environment import Protocol
    from polarvrp.model.precision import has_bfloat16
    from polarvrp.model.registry import build_policy
    from polarvrp.problem.variants import KINDS

    policy, bfloat16 = build_policy(ModelConfig(), 0).to(device).eval(), has_bfloat16(device)
    rules: dict[Protocol | None, str] = {None: "", "published": ", published rules"}
    forms = list(product(rules, KINDS))
    faults = [fault_of(policy, size + 1, kind, protocol, bfloat16=bfloat16) for protocol, kind in forms]
    for (protocol, kind), fault in zip(forms, faults, strict=True):
        level = "fused" if fault is None else f"parallel, because level fused fails: {fault}"
        _line("engine", f"{size + 1} nodes, {kind.words}{rules[protocol]}: {level}")
    return not any(faults)


def _interpreter_is_right(device: torch.device) -> bool:
    """Print what the self-check finds in Triton's interpreter."""
    from polarvrp.config.model import ModelConfig
    from polarvrp.decoding.fused.self_check import fault_of
    from polarvrp.model.registry import build_policy
    from polarvrp.problem.variants import KINDS

    policy = build_policy(ModelConfig(width=32, heads=2, layers=1, feedforward_width=32), 0).to(device).eval()
    faults = (fault_of(policy, INTERPRETER_NODES, kind, bfloat16=False) for kind in KINDS)
    fault = next(filter(None, faults), None)
    found = "agrees with level parallel" if fault is None else f"fails: {fault}"
    _line("engine", f"parallel; level fused {found} in Triton's interpreter (float32, {INTERPRETER_NODES} nodes)")
    _line("", "compiled kernels and CUDA graphs need a card to be checked")
    return fault is None
