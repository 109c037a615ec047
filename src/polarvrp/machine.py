"""What a number was made on: the model of the processor or card, versions of packages. Imports nothing heavy."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

PACKAGES = ("polarvrp", "torch", "numpy", "pyvrp")
"""Packages that decide what networks and local search compute."""

GPU_DRIVER = Path("/dev/nvidiactl")
"""Exists where an NVIDIA driver is loaded."""


def has_gpu_driver() -> bool:
    """Whether the machine has a GPU, without the seconds that importing torch takes."""
    return GPU_DRIVER.exists()


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
