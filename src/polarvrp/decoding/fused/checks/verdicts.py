"""Verdicts on kernels, and the sizes that kernels are checked at.

Shape legend: B instances, S tours per instance, n customers, N nodes, d width.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from polarvrp.config.model import ModelConfig
from polarvrp.decoding.fused.self_check import first_line
from polarvrp.environment.environment import Environment
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy
from polarvrp.problem.torch_generator import generate_batch
from polarvrp.problem.variants import TRAINING_KIND, Kind, variants_of

BARS = {torch.bfloat16: (0.01, 0.02), torch.float32: (1e-5, 1e-4)}
"""Largest relative errors forward and backward by the dtype of operands."""

TIMED_RUNS = 10


@dataclass(frozen=True, slots=True)
class KernelVerdict:
    """Verdict on a kernel.

    Attributes:
        kernel: Its name, and where there are several forms, which.
        error: Relative error, or a number of wrong results; not a number if there are none.
        bar: Largest error that passes.
        milliseconds: Of one launch; not a number in the interpreter.
        fault: What else is wrong, or what was raised, one line.
    """

    kernel: str
    error: float
    bar: float
    milliseconds: float
    fault: str | None = None

    @property
    def right(self) -> bool:
        """Whether the kernel may be trusted."""
        return self.fault is None and self.error <= self.bar


@dataclass(frozen=True, slots=True)
class KernelSetting:
    """Sizes that kernels are checked at.

    Attributes:
        num_customers: n.
        batch: B.
        max_starts: Starts of an instance; the greedy row comes on top.
        config: Of the network; its width, heads and hidden features are the kernels'.
        device: Of the check; a processor means Triton's interpreter.
        dtype: Of operands, bfloat16 or float32.
        kind: Of instances; scoring and attention know nothing of it.
    """

    num_customers: int
    batch: int
    max_starts: int
    config: ModelConfig
    device: torch.device
    dtype: torch.dtype
    kind: Kind

    @classmethod
    def usual(
        cls, num_customers: int, device: torch.device, dtype: torch.dtype, kind: Kind = TRAINING_KIND
    ) -> "KernelSetting":
        """Networks of full size and one chunk of decisions on a GPU, as little as there can be in the interpreter."""
        if device.type != "cuda":
            tiny = ModelConfig(width=32, heads=2, layers=1, feedforward_width=32)
            return cls(num_customers, 2, 3, tiny, device, dtype, kind)
        return cls(num_customers, 800 // num_customers, num_customers, ModelConfig(), device, dtype, kind)

    @property
    def bfloat16(self) -> bool:
        """Whether operands are bfloat16."""
        return self.dtype == torch.bfloat16

    def generator(self, seed: int) -> torch.Generator:
        """Freshly seeded, on the device."""
        return torch.Generator(self.device).manual_seed(seed)

    def environment(self) -> Environment:
        """Instances of all variants of the kind."""
        variants = variants_of(self.kind)
        return Environment(generate_batch(self.num_customers, self.batch, self.generator(1), self.device, variants))

    def policy(self, head: str) -> Policy:
        """Fresh network with a decoder of one head."""
        return build_policy(self.config.replace(head=head), 0).to(self.device).eval()

    def embeddings(self, environment: Environment) -> Tensor:
        """Random node embeddings, ``[B, N, d]``."""
        shape = (self.batch, environment.instances.num_nodes, self.config.width)
        return torch.randn(shape, generator=self.generator(2), device=self.device).to(self.dtype)


def guarded(kernel: str, check: Callable[[], KernelVerdict]) -> KernelVerdict:
    """Verdict of a check, whatever it raises."""
    try:
        return check()
    except Exception as error:  # compilers and drivers raise what they like
        return KernelVerdict(kernel, math.nan, 0.0, math.nan, first_line(error))


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """Norm of the difference over that of ``wanted``."""
    difference, norm = (found.float() - wanted.float()).norm(), wanted.float().norm()
    return float((difference / norm).detach())


def milliseconds_of(function: Callable[[], object], device: torch.device) -> float:
    """Milliseconds of a call that was made before, the least of some; not a number in the interpreter."""
    if device.type != "cuda":
        return math.nan
    found: list[float] = []
    for _ in range(TIMED_RUNS):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        first.record()
        function()
        last.record()
        last.synchronize()
        found.append(first.elapsed_time(last))
    return min(found)
