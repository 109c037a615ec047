"""Numbers on their way from the device to main memory, read without waiting for what was launched after them."""

from typing import Any

import torch
from torch import Tensor


class HostCopy:
    """Copy of some numbers in main memory, begun when this is made.

    Args:
        values: On any device; may be written over afterwards.
    """

    def __init__(self, values: Tensor) -> None:
        self._arrived: torch.cuda.Event | None = None
        if not values.is_cuda:
            self._values = values.detach().clone()
            return
        self._values = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        self._values.copy_(values.detach(), non_blocking=True)
        self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._arrived.record(torch.cuda.current_stream(values.device))

    def read(self) -> list[Any]:
        """The numbers; waits until they have arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
        numbers: list[Any] = self._values.tolist()
        return numbers
