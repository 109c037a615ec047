"""Feed-forward networks of a block; each returns its output and an auxiliary loss (0 without routing).

Shape legend: E experts of a PLE layer (absent for a plain block), B instances, T rows, d features, f hidden features.
"""

from torch import Tensor, nn
from torch.nn import functional

from polarvrp.model.cpu_elementwise import GatedUnit
from polarvrp.model.linear import Linear


class ReluFeedForward(nn.Module):
    """``W2 relu(W1 x + b1) + b2``.

    Args:
        width: d.
        hidden: f.
        experts: Experts with their own weights.
    """

    def __init__(self, width: int, hidden: int, experts: int | None = None) -> None:
        super().__init__()
        self.up = Linear(width, hidden, experts=experts)
        self.down = Linear(hidden, width, experts=experts)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        return self.down(functional.relu(self.up(x))), 0.0


class SwiGLU(nn.Module):
    """``W3 (silu(W1 x) ⊙ W2 x)`` without biases; W1 and W2 lie side by side.

    Args:
        width: d.
        hidden: f.
        experts: Experts with their own weights.
    """

    def __init__(self, width: int, hidden: int, experts: int | None = None) -> None:
        super().__init__()
        self.gate_up = Linear(width, 2 * hidden, bias=False, experts=experts, parts=2)
        self.down = Linear(hidden, width, bias=False, experts=experts)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        gate_up = self.gate_up(x)
        if gate_up.device.type == "cpu":
            return self.down(GatedUnit.apply(gate_up)), 0.0  # type: ignore[no-untyped-call]
        gate, up = gate_up.chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up), 0.0
