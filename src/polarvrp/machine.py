"""Machine that a number was made on: processor or card, its rates, versions of packages; what becomes of freed memory.

Imports nothing heavy.
"""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

PACKAGES = ("polarvrp", "torch", "triton", "numpy", "pyvrp")
"""Packages that decide what networks and local search compute."""

GPU_DRIVER = Path("/dev/nvidiactl")
"""Exists where an NVIDIA driver is loaded."""

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""What glibc's header ``malloc.h`` calls ``M_TRIM_THRESHOLD`` and ``M_MMAP_MAX``."""

USERS_OWN = ("mmap_max", "mmap_threshold", "trim_threshold")
"""Settings by which users decide themselves what becomes of freed memory, as glibc's tunables are named."""


def has_gpu_driver() -> bool:
    """Whether the machine has a GPU, without the seconds that importing torch takes."""
    return GPU_DRIVER.exists()


def keep_freed_memory() -> None:
    """Keep what the process frees for what it allocates next, until it ends.

    glibc gives large blocks back to the system at once, and each page of the next tensor then costs a page fault: up to
    a third of the time of networks on a CPU. From now on large blocks lie in the heap, and the heap does not shrink. A
    user's own settings in the environment stay, and so does every other C library. In other threads than the first,
    blocks beyond 64 MiB are mapped as before.

    Source: mallopt(3).
    """
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    chosen = any(f"MALLOC_{name.upper()}_" in os.environ or f"glibc.malloc.{name}=" in tunables for name in USERS_OWN)
    if chosen or platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(MMAP_MAX, 0)
    libc.mallopt(TRIM_THRESHOLD, -1)  # never


def reason_for_no_card() -> str:
    """Why torch computes on no card, where it does not."""
    import torch

    return "torch shows none" if torch.version.cuda else "torch is built without CUDA"


def usable_cores() -> int:
    """Cores that this process may use, which on a shared machine may be fewer than there are."""
    # Not all systems can bind a process to some cores.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor_name() -> str:
    """Model of the processor, as far as the system tells."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def device_name(device: torch.device) -> str:
    """Model of the card, or of the processor."""
    if device.type != "cuda":
        return processor_name()
    import torch

    return torch.cuda.get_device_name(device)


def driver_version() -> str | None:
    """Version of NVIDIA's driver, None where there is none."""
    with suppress(OSError):
        words = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").split()
        return next((word for word in words if word[0].isdigit() and "." in word), None)
    return None


def product_rate(device: torch.device) -> float:
    """Floating-point operations a second of a large matrix product, bfloat16 on a card and float32 elsewhere."""
    import torch

    side, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (2048, torch.float32)
    one, other = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    return 2.0 * side**3 / _fastest(lambda: one @ other, device)


def copy_rate(device: torch.device) -> float:
    """Bytes a second of a large copy within the device, those read plus those written."""
    import torch

    source = torch.randn((1 << 28) if device.type == "cuda" else (1 << 24), device=device)
    target = torch.empty_like(source)
    return 2.0 * source.numel() * source.element_size() / _fastest(lambda: target.copy_(source), device)


def _fastest(function: Callable[[], object], device: torch.device) -> float:
    """Least seconds of ten calls."""
    import torch

    seconds = []
    for _ in range(10):
        start_s = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start_s)
    return min(seconds)


def card_identity(device: torch.device) -> str | None:
    """UUID of a card, by which it is known whatever its number; None for a processor."""
    if device.type != "cuda":
        return None
    import torch

    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def versions() -> dict[str, str]:
    """Versions of Python and of those of ``PACKAGES`` that are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):  # a checkout may be used where it lies, and without local search
            found[name] = version(name)
    return found
