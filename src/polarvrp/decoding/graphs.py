"""CUDA graphs: computations captured once and replayed, a thousand launches become one."""

import dataclasses
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


class CaptureError(RuntimeError):
    """A computation cannot be captured; generators that were to be captured with it must not be used any more."""


class CapturedCall(Generic[Result]):
    """CUDA graph of a function without arguments, captured when this is made.

    Each call repeats the captured kernels on the same memory and returns the same object, whose tensors hold the
    new values: whoever keeps them copies them. The function must have run before with these shapes, so that nothing
    is compiled or allocated for the first time. Without a GPU each call just calls the function.

    Args:
        function: Reads and writes tensors that stay where they are.
        device: Where they are.
        generators: All that it draws from; they may be reseeded between calls.
        pool: Memory pool to share with graphs that are replayed in the order of their capture.

    Raises:
        CaptureError: If it cannot be captured, whatever the reason.
    """

    def __init__(
        self,
        function: Callable[[], Result],
        device: torch.device,
        generators: Iterable[torch.Generator] = (),
        pool: Any = None,
    ) -> None:
        # Not kept once captured: it leads back to the owner, and a cycle would hold the graph's memory for long.
        self._function = function if device.type != "cuda" else None
        self._graph: torch.cuda.CUDAGraph | None = None
        if device.type == "cuda":
            stream = torch.cuda.current_stream(device)
            self._graph = torch.cuda.CUDAGraph()
            for generator in generators:
                self._graph.register_generator_state(generator)
            own = _side_stream(device) if stream == torch.cuda.default_stream(device) else stream
            pool = torch.cuda.graph_pool_handle() if pool is None else pool
            reason = ""
            try:
                with torch.cuda.graph(self._graph, pool=pool, stream=own):
                    try:
                        self._result: Result = function()
                    except Exception as error:
                        reason = str(error)  # the end of a broken capture raises another error, which says less
                        raise
            except Exception as error:  # of the function, of the driver, or of the allocator
                torch.cuda.set_stream(stream)  # torch stays on the one of the capture where its end fails too
                _let_go(pool)
                raise CaptureError(reason or str(error)) from error

    def __call__(self) -> Result:
        """The function's result for the present contents of the tensors it reads."""
        if self._function is not None:
            return self._function()
        assert self._graph is not None
        self._graph.replay()
        return self._result


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """For captures from the default stream, which cannot capture; torch's own is one of the first device that did."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _let_go(pool: Any) -> None:
    """Free the memory of a broken capture, whose pool torch keeps for good where the end of the capture fails."""
    device = torch.cuda.current_device()
    with suppress(RuntimeError):  # the capture itself had ended, and the function alone failed
        torch._C._cuda_endAllocateToPool(device, pool)
        torch._C._cuda_releasePool(device, pool)


def detached_copy(tree: Result) -> Result:
    """A dataclass with copies of its tensors, other fields as they are."""
    copy: Result = _map(tree, lambda tensor: tensor.detach().clone())
    return copy


def copy_into(target: Any, source: Any) -> None:
    """Copy the tensors of a dataclass into those of another of the same shapes."""
    for field in dataclasses.fields(target):
        ours, theirs = getattr(target, field.name), getattr(source, field.name)
        if isinstance(ours, Tensor):
            ours.copy_(theirs)


def _map(tree: Any, function: Callable[[Tensor], Tensor]) -> Any:
    changed = {
        field.name: function(value)
        for field in dataclasses.fields(tree)
        if isinstance(value := getattr(tree, field.name), Tensor)
    }
    return dataclasses.replace(tree, **changed)
