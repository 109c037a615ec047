"""A stand-in for a GPU's driver: Triton compiles kernels for a Hopper GPU and launches them, and nothing runs.

What a launcher hands over is compared with what the call gave and with what the compiled kernel expects.
"""

import ctypes
import os
import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.nvidia import driver as nvidia

SOURCE = Path(__file__).with_suffix(".c")
SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}
"""Bytes by bits."""

SCRATCH_POINTERS = 2
"""What every kernel takes after its own arguments."""


class StandInDriver(nvidia.CudaDriver):  # type: ignore[misc]
    """Triton's own driver and launchers on a library that stands in for CUDA's.

    Args:
        folder: For the library.
    """

    def __init__(self, folder: Path) -> None:
        library = folder / "libcuda.so.1"
        include = Path(nvidia.__file__).parent / "include"
        command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", f"-I{include}", str(SOURCE)]
        subprocess.run([*command, "-o", str(library)], check=True)
        os.environ["TRITON_LIBCUDA_PATH"] = str(folder)
        self.library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self.utils = nvidia.CudaUtils()
        self.launcher_cls = nvidia.CudaLauncher
        triton.runtime.driver.set_active(self)

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return 9, 0

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def launched(self, kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Compile and launch; the compiled kernel.

        Raises:
            AssertionError: If the kernel would not have got what the call gave.
        """
        compiled = kernel.warmup(*arguments, grid=grid, **named)
        entry = compiled.asm["ptx"].partition(".entry")[2].partition(")")[0]
        sizes = [SIZES[bits] for bits in re.findall(r"\.param \.[a-z]+(\d+)", entry)]
        self.library.expect_arguments(len(sizes), (ctypes.c_int * len(sizes))(*sizes))
        launches = ctypes.c_int.in_dll(self.library, "launches")
        before = launches.value
        kernel[grid](*arguments, **named)
        assert launches.value == before + 1, "it was not launched"
        assert tuple((ctypes.c_uint * 3).in_dll(self.library, "launched_grid")) == (*grid, 1, 1)[:3]
        handed = (ctypes.c_ulonglong * len(sizes)).in_dll(self.library, "launched_arguments")
        wanted = [
            bits
            for parameter, argument in zip(kernel.params, arguments, strict=False)
            for bits in expected(argument, specialized=not parameter.do_not_specialize)
        ]
        assert list(handed) == wanted + SCRATCH_POINTERS * [0], (kernel, list(handed), wanted)
        return compiled


def expected(argument: Any, specialized: bool) -> Iterator[int]:
    """What a kernel is handed of an argument: nothing of what its code already knows, None and where specialized 1."""
    match argument:
        case tuple():
            for part in argument:
                yield from expected(part, specialized)
        case torch.Tensor():
            yield argument.data_ptr()
        case bool():
            yield int(argument)
        case int():
            if argument != 1 or not specialized:
                yield argument % (1 << 32)
        case float():
            yield struct.unpack("<I", struct.pack("<f", argument))[0]
        case None:
            pass
        case _:
            raise TypeError(f"{argument!r} is no argument of a kernel")
