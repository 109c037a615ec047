"""How constraint flags enter the encoder: modulated customers (FiLM), prompt tokens, a concatenated prompt.

Shape legend: B instances, N nodes, K depots, p prompt tokens, c flags, d features.
"""

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional

from polarvrp.model.linear import Linear
from polarvrp.problem.variants import FLAG_NAMES

PROMPT_BOTTLENECK = 16
PROMPT_DEVIATION = 0.01


def select_flags(flags: Tensor, names: tuple[str, ...], dtype: torch.dtype) -> Tensor:
    """Columns of the constraint vector; ``C``, the closed route, is 1 where ``O`` is 0.

    Args:
        flags: In the order of ``FLAG_NAMES``, bool, ``[B, 6]``.
        names: Wanted columns.
        dtype: Dtype of the result.

    Returns:
        ``[B, len(names)]``.
    """
    columns = [~flags[:, 0] if name == "C" else flags[:, FLAG_NAMES.index(name)] for name in names]
    return torch.stack(columns, dim=-1).to(dtype)


class FiLM(nn.Module):
    """Customers' embeddings scaled and shifted by the flags: ``x ← γ(z) ⊙ x + β(z)``; depots stay as they are.

    (γ, β) is a perceptron of z with ReLU between its linear maps; the last one starts with weights 0, bias 1 for γ
    and 0 for β, so that the module starts as the identity.

    Args:
        num_flags: c.
        width: d.
        depth: Linear maps.
    """

    def __init__(self, num_flags: int, width: int, depth: int) -> None:
        super().__init__()
        sizes = [num_flags, *[width] * (depth - 1), 2 * width]
        self.maps = nn.ModuleList(Linear(inputs, outputs) for inputs, outputs in itertools.pairwise(sizes))
        weight, bias = self.maps[-1].parameters()
        nn.init.zeros_(weight)
        with torch.no_grad():
            bias.copy_(torch.cat((torch.ones(width), torch.zeros(width))))

    def forward(self, x: Tensor, flags: Tensor, num_depots: int) -> Tensor:
        """Modulate rows from ``num_depots`` on.

        Args:
            x: ``[B, N, d]``.
            flags: ``[B, c]``.
            num_depots: K.

        Returns:
            ``[B, N, d]``.
        """
        hidden = flags
        for layer in self.maps:
            hidden = layer(hidden if layer is self.maps[0] else functional.relu(hidden))
        scale, shift = hidden[:, None].chunk(2, dim=-1)  # [B, 1, d] each
        return torch.cat((x[:, :num_depots], scale * x[:, num_depots:] + shift), dim=1)


class PromptTokens(nn.Module):
    """All flags together give p tokens: linear, LayerNorm, linear, ReLU, linear to 16, LayerNorm, linear to p·d.

    The first map has no bias and starts uniform in [0, 1); the others start normal with deviation 0.01 and bias 0.

    Args:
        num_flags: c.
        width: d.
        num_tokens: p.
    """

    def __init__(self, num_flags: int, width: int, num_tokens: int) -> None:
        super().__init__()
        self.num_tokens = num_tokens
        self.lift = Linear(num_flags, width, bias=False)
        self.norm_lift = nn.LayerNorm(width)
        self.hidden = Linear(width, width)
        self.narrow = Linear(width, PROMPT_BOTTLENECK)
        self.norm_narrow = nn.LayerNorm(PROMPT_BOTTLENECK)
        self.tokens = Linear(PROMPT_BOTTLENECK, num_tokens * width)
        nn.init.uniform_(self.lift.weight)
        for layer in (self.hidden, self.narrow, self.tokens):
            weight, bias = layer.parameters()
            nn.init.normal_(weight, std=PROMPT_DEVIATION)
            nn.init.zeros_(bias)

    def forward(self, flags: Tensor) -> Tensor:
        """Tokens of each instance, ``[B, c]`` to ``[B, p, d]``."""
        lifted = self.norm_lift(self.lift(flags))
        narrow = self.norm_narrow(self.narrow(functional.relu(self.hidden(lifted))))
        tokens: Tensor = self.tokens(narrow)
        return tokens.reshape(len(flags), self.num_tokens, -1)


class ConcatenatedPrompt(nn.Module):
    """``x ← W3 [x ; W2 (W1 z + b1) + b2] + b3`` on every node, depots too; nothing nonlinear.

    Args:
        num_flags: c.
        width: d.
    """

    def __init__(self, num_flags: int, width: int) -> None:
        super().__init__()
        self.lift = Linear(num_flags, width)
        self.hidden = Linear(width, width)
        self.merge = Linear(2 * width, width)

    def forward(self, x: Tensor, flags: Tensor) -> Tensor:
        """``[B, N, d]`` and ``[B, c]`` to ``[B, N, d]``."""
        prompt = self.hidden(self.lift(flags))[:, None].expand(-1, x.shape[1], -1)
        merged: Tensor = self.merge(torch.cat((x, prompt.to(x.dtype)), dim=-1))
        return merged


class Conditioning(nn.Module):
    """What a backbone does with the constraint flags, before its stack.

    Args:
        flag_names: The flags it looks at.
        film: Modulation of customers, or ``None``.
        prompt: Tokens handed to the stack, or ``None``.
        concatenated: Prompt merged into every node, or ``None``.
    """

    def __init__(
        self,
        flag_names: tuple[str, ...],
        film: FiLM | None = None,
        prompt: PromptTokens | None = None,
        concatenated: ConcatenatedPrompt | None = None,
    ) -> None:
        super().__init__()
        self.flag_names = flag_names
        self.film, self.prompt, self.concatenated = film, prompt, concatenated

    def forward(self, x: Tensor, flags: Tensor, num_depots: int, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Condition node embeddings.

        Args:
            x: ``[B, N, d]``.
            flags: Bool, ``[B, 6]``.
            num_depots: K.
            dtype: Dtype of the flags as features.

        Returns:
            Embeddings ``[B, N, d]`` and prompt tokens ``[B, p, d]`` or ``None``.
        """
        if not self.flag_names:
            return x, None
        chosen = select_flags(flags, self.flag_names, dtype)
        if self.film is not None:
            x = self.film(x, chosen, num_depots)
        if self.concatenated is not None:
            x = self.concatenated(x, chosen)
        return x, None if self.prompt is None else self.prompt(chosen)
