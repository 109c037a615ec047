"""Encoders as stacks of blocks: a sequence, and progressive layered extraction (PLE).

Shape legend: B instances, N nodes, p prompt tokens, κ task experts, d features.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from polarvrp.model.blocks import Block
from polarvrp.model.linear import Linear, accumulation_dtype
from polarvrp.model.norms import RootMeanSquareNorm
from polarvrp.model.rotation import Rotation

INITIAL_SHARED_SHARE = 0.1
SMALLEST_TASK_SHARE = 1e-6

BlockFactory = Callable[[int | None], Block]
"""Makes a block for that many experts, or a plain one for ``None``."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """What an encoder says about a batch.

    Attributes:
        embeddings: Node embeddings, ``[B, N, d]``.
        auxiliary_loss: To be added to the policy's loss, scalar; 0 without mixtures of experts.
    """

    embeddings: Tensor
    auxiliary_loss: Tensor


def encoding_of(embeddings: Tensor, auxiliary: Tensor | float) -> Encoding:
    """An encoding whose auxiliary loss is a tensor even where nothing is routed."""
    loss = auxiliary if isinstance(auxiliary, Tensor) else embeddings.new_full((), auxiliary, dtype=torch.float32)
    return Encoding(embeddings, loss)


class SequenceStack(nn.Module):
    """Blocks one after the other; prompt tokens, if any, are rows that every block may attend to.

    Args:
        make_block: Factory of blocks.
        num_layers: Number of blocks.
        final_norm: Norm of the result, or ``None``.
    """

    def __init__(self, make_block: BlockFactory, num_layers: int, final_norm: nn.Module | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(make_block(None) for _ in range(num_layers))
        self.final_norm = final_norm

    def forward(self, x: Tensor, prompt: Tensor | None, rotation: Rotation | None) -> Encoding:
        """Encode nodes.

        Args:
            x: ``[B, N, d]``.
            prompt: ``[B, p, d]`` or ``None``.
            rotation: Tables for N + p rows, or ``None``.
        """
        total: Tensor | float = 0.0
        for block in self.blocks:
            x, auxiliary = block(x, rotation, prompt)
            total = total + auxiliary
        return encoding_of(x if self.final_norm is None else self.final_norm(x), total)


class Gate(nn.Module):
    """``g = softmax(W_b relu(W_a [W_p P̄ ; μ] + b_a) + b_b)``, one vector an instance.

    P̄ is the mean prompt token, μ the mean node of the shared stream.

    Args:
        width: d.
        num_tasks: κ.
    """

    def __init__(self, width: int, num_tasks: int) -> None:
        super().__init__()
        self.prompt = Linear(width, width, bias=False)
        self.hidden = Linear(2 * width, width)
        self.weights = Linear(width, num_tasks + 1)

    def forward(self, mean_prompt: Tensor, shared: Tensor) -> Tensor:
        """Weights of the κ task experts, then of the shared one.

        Args:
            mean_prompt: P̄, ``[B, d]``.
            shared: Shared stream, ``[B, N, d]``.

        Returns:
            ``[B, κ + 1]``, float32 at least.
        """
        prompt = self.prompt(mean_prompt)
        mean_node = shared.mean(dim=1).to(prompt.dtype)
        logits: Tensor = self.weights(functional.relu(self.hidden(torch.cat((prompt, mean_node), dim=-1))))
        return logits.to(accumulation_dtype(logits.dtype)).softmax(dim=-1)


class PLELayer(nn.Module):
    """One layer of progressive layered extraction: a shared expert, κ task experts and a gate.

    With σ(ρ) starting at 0.1 and g from the gate::

        shared ← norm_s(E_shared(shared))
        tasks  ← norm_t(Σ_k g̃_k E_k([tasks ; P]) + σ(ρ) g_{κ+1} shared),  g̃_k = g_k / max(Σ_j≤κ g_j, 1e-6)

    In form ``post``, for blocks that end with a norm, norm_s and norm_t are absent and g̃_k = g_k. The prompt's rows
    are the same in every layer: what experts make of them is dropped.

    Args:
        make_block: Factory of blocks.
        width: d.
        num_tasks: κ.
        pre_form: Which form.
    """

    def __init__(self, make_block: BlockFactory, width: int, num_tasks: int, pre_form: bool) -> None:
        super().__init__()
        self.num_tasks, self.pre_form = num_tasks, pre_form
        self.shared_expert = make_block(None)
        self.task_experts = make_block(num_tasks)
        self.gate = Gate(width, num_tasks)
        self.share_logit = nn.Parameter(torch.tensor(math.log(INITIAL_SHARED_SHARE / (1 - INITIAL_SHARED_SHARE))))
        self.norm_shared = RootMeanSquareNorm(width) if pre_form else None
        self.norm_tasks = RootMeanSquareNorm(width) if pre_form else None

    def forward(
        self, shared: Tensor, tasks: Tensor, prompt: Tensor, mean_prompt: Tensor, rotation: Rotation | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | float]:
        """Update both streams.

        Args:
            shared: ``[B, N, d]``.
            tasks: ``[B, N, d]``.
            prompt: P, ``[B, p, d]``.
            mean_prompt: P̄, ``[B, d]``.
            rotation: Tables for N + p rows, or ``None``.

        Returns:
            Shared stream and task stream ``[B, N, d]``, gate ``[B, κ + 1]``, auxiliary loss.
        """
        node_rotation = None if rotation is None else rotation.first(shared.shape[1])
        shared, shared_auxiliary = self.shared_expert(shared, node_rotation)
        if self.norm_shared is not None:
            shared = self.norm_shared(shared)
        gate = self.gate(mean_prompt, shared)
        weights = self.task_weights(gate)
        experts, task_auxiliary = self.task_experts(tasks, rotation, prompt)  # [κ, B, N, d]
        weighted = weights.t()[..., None, None].to(experts.dtype) * experts
        mixed = weighted.sum(dim=0, dtype=experts.dtype)  # a GPU's autocast would leave the task stream in float32
        share = self.shared_weight(gate)[:, None, None].to(shared.dtype)
        tasks = mixed + share * shared
        if self.norm_tasks is not None:
            tasks = self.norm_tasks(tasks)
        return shared, tasks, gate, shared_auxiliary + task_auxiliary

    def task_weights(self, gate: Tensor) -> Tensor:
        """Weights g̃ of the task experts, from ``[B, κ + 1]`` to ``[B, κ]``."""
        weights = gate[:, : self.num_tasks]
        if self.pre_form:
            weights = weights / weights.sum(dim=-1, keepdim=True).clamp_min(SMALLEST_TASK_SHARE)
        return weights

    def shared_weight(self, gate: Tensor) -> Tensor:
        """Weight σ(ρ) g_{κ+1} of the shared stream in the task stream, from ``[B, κ + 1]`` to ``[B]``."""
        return self.share_logit.sigmoid() * gate[:, self.num_tasks]


class PLEStack(nn.Module):
    """Progressive layered extraction; both streams start from the embedded nodes and are fused at the end.

    The fusion is ``norm(W [shared ; tasks])`` in form ``pre``, ``W2 relu(W1 [shared ; tasks] + b1) + b2`` in ``post``.

    Args:
        make_block: Factory of blocks.
        width: d.
        num_layers: Layers.
        num_tasks: κ.
        pre_form: Form of the layers.
    """

    def __init__(self, make_block: BlockFactory, width: int, num_layers: int, num_tasks: int, pre_form: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(PLELayer(make_block, width, num_tasks, pre_form) for _ in range(num_layers))
        self.fusion: nn.Module
        if pre_form:
            self.fusion = nn.Sequential(Linear(2 * width, width, bias=False), RootMeanSquareNorm(width))
        else:
            self.fusion = nn.Sequential(Linear(2 * width, width), nn.ReLU(), Linear(width, width))

    def forward(self, x: Tensor, prompt: Tensor, rotation: Rotation | None) -> Encoding:
        """Encode nodes.

        Args:
            x: ``[B, N, d]``.
            prompt: ``[B, p, d]``.
            rotation: Tables for N + p rows, or ``None``.
        """
        # Compiled layers ask whether both streams are one object: the first layer would get code of its own. Gradients
        # on a CPU, whose layers are not compiled, would add up in another order.
        shared, tasks = x, x if x.device.type == "cpu" else x.view_as(x)
        mean_prompt = prompt.mean(dim=1)
        total: Tensor | float = 0.0
        for layer in self.layers:
            shared, tasks, _, auxiliary = layer(shared, tasks, prompt, mean_prompt, rotation)
            total = total + auxiliary
        return encoding_of(self.fusion(torch.cat((shared, tasks), dim=-1)), total)
