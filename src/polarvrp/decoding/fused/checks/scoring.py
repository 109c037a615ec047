"""Checks of the scoring kernels, forward and backward, against tensor operations in float32.

Shape legend: B instances, N nodes, C slots of the table, P slots of a chunk, H heads, D = d / H features of a head,
d width.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from polarvrp.decoding.fused.checks.rollout import random_tours
from polarvrp.decoding.fused.checks.verdicts import (
    BARS,
    KernelSetting,
    KernelVerdict,
    guarded,
    milliseconds_of,
    relative_error,
)
from polarvrp.decoding.fused.packed_attention import (
    Shared,
    Sums,
    add_node_gradients,
    chunks_of,
    packed_glimpse,
    packed_pointer,
    totals_of_tours,
)
from polarvrp.decoding.fused.packing import TILE, PackedDecisions, Segments, pack
from polarvrp.decoding.masks import from_words
from polarvrp.decoding.rollout import replay_actions
from polarvrp.decoding.steps import ScoredSteps
from polarvrp.environment.environment import Environment
from polarvrp.model.decoder import CLIP
from polarvrp.model.precision import bfloat16_products


def pack_steps(steps: ScoredSteps, capacity: int) -> PackedDecisions:
    """Pack decisions whose valid ones come first in each instance into a flat table.

    Args:
        steps: Decisions of B instances.
        capacity: C, a multiple of ``TILE``.
    """
    segments = Segments(
        count=steps.valid.sum(1, keepdim=True),
        row=steps.row[:, None].to(torch.int32),
        current=steps.current[:, None].to(torch.int32),
        action=steps.action[:, None].to(torch.int32),
        features=steps.features[:, None].to(torch.float32),
        mask=steps.mask[:, None],
    )
    return pack(segments, steps.num_rows, steps.num_actions, capacity)


MOST_TOURS = 32
"""Of an instance: so few that the decisions of all fit into one chunk, however long random tours are."""


class ScoringChecks:
    """Checks of the scoring kernels on one chunk of the decisions of random tours.

    Args:
        setting: Sizes.
        environment: The instances.
        head: Head of the decoder; ``reld`` subtracts distances from the logits.
    """

    def __init__(self, setting: KernelSetting, environment: Environment, head: str) -> None:
        self._setting, self._head, self._batch = setting, head, len(environment.instances)
        policy = setting.policy(head)
        with torch.no_grad(), bfloat16_products(setting.device, setting.bfloat16):
            cache = policy.cache(setting.embeddings(environment), environment.instances)
        self._shared = Shared.of(cache, policy.decoder)
        tours = random_tours(environment, min(setting.max_starts, MOST_TOURS), setting.generator(3))
        moves = replay_actions(environment, tours, num_free=1).moves
        assert moves is not None
        steps = moves.pack()
        tiles = int((-(-steps.valid.sum(1) // TILE)).sum())
        self._packed = pack_steps(steps, TILE * (tiles + 1))
        (self._chunk,) = chunks_of(self._packed, self._batch)
        self._legal = from_words(self._chunk.mask.view(torch.int64), self._shared.keys.shape[1])
        self._slots = [(self._chunk.instance == index).nonzero()[:, 0] for index in range(self._batch)]

    def verdicts(self) -> Iterator[KernelVerdict]:
        """One after the other."""
        for name, check in (
            ("glimpse_forward", self.glimpse_forward),
            ("glimpse_backward", self.glimpse_backward),
            ("pointer_forward", self.pointer_forward),
            ("pointer_backward", self.pointer_backward),
            ("node_backward", self.node_backward),
            ("sum_rows", self.sum_rows),
        ):
            yield guarded(f"{name} {self._head}", check)

    def glimpse_forward(self) -> KernelVerdict:
        """Attention of decisions to the nodes of their instances."""
        query = self._random(5)

        def run() -> Tensor:
            return packed_glimpse(query, self._shared, None, self._chunk)

        with torch.no_grad():
            shared = self._shared
            wanted = self._glimpse(query.float(), shared.keys.float(), shared.values.float())
            return self._verdict("glimpse_forward", [(run(), wanted)], 0, milliseconds_of(run, self._setting.device))

    def glimpse_backward(self) -> KernelVerdict:
        """Its gradients by queries, keys and values."""
        shared, sums, upstream = self._shared, self._sums(), self._random(6)
        query = self._random(5).requires_grad_()
        glimpse = packed_glimpse(query, shared, sums, self._chunk)

        def run() -> Tensor:
            return torch.autograd.grad(glimpse, query, upstream, retain_graph=True)[0]

        gradient = run()
        found = [gradient, sums.keys.sum(0), sums.values.sum(0)]
        leaves = [tensor.detach().float().requires_grad_() for tensor in (query, shared.keys, shared.values)]
        wanted = torch.autograd.grad(self._glimpse(*leaves), leaves, upstream.float())
        pairs = list(zip(found, wanted, strict=True))
        return self._verdict("glimpse_backward", pairs, 1, milliseconds_of(run, self._setting.device))

    def pointer_forward(self) -> KernelVerdict:
        """Log-probabilities of the actions."""
        pointer = self._random(7)

        def run() -> Tensor:
            return packed_pointer(pointer, self._shared, None, self._chunk)

        with torch.no_grad():
            wanted = self._log_probs(pointer.float(), self._shared.logit_keys.float())
            return self._verdict("pointer_forward", [(run(), wanted)], 0, milliseconds_of(run, self._setting.device))

    def pointer_backward(self) -> KernelVerdict:
        """Their gradients by the pointer's queries and keys."""
        shared, sums = self._shared, self._sums()
        upstream = self._random(8)[:, 0].float()
        pointer = self._random(7).requires_grad_()
        log_probs = packed_pointer(pointer, shared, sums, self._chunk)

        def run() -> Tensor:
            return torch.autograd.grad(log_probs, pointer, upstream, retain_graph=True)[0]

        gradient = run()
        found = [gradient, sums.logit_keys.sum(0)]
        leaves = [tensor.detach().float().requires_grad_() for tensor in (pointer, shared.logit_keys)]
        wanted = torch.autograd.grad(self._log_probs(*leaves), leaves, upstream)
        pairs = list(zip(found, wanted, strict=True))
        return self._verdict("pointer_backward", pairs, 1, milliseconds_of(run, self._setting.device))

    def node_backward(self) -> KernelVerdict:
        """Sums of gradients by the embeddings of current nodes."""
        sums, upstream, chunk = self._sums(), self._random(9), self._chunk

        def run() -> None:
            add_node_gradients(upstream, self._shared, sums, chunk)

        run()
        used = chunk.instance < self._batch
        wanted = torch.zeros_like(self._shared.keys, dtype=torch.float32)
        wanted.index_put_((chunk.owner[used], chunk.current[used]), upstream[used].float(), accumulate=True)
        pairs = [(sums.embeddings.sum(0), wanted)]
        return self._verdict("node_backward", pairs, 1, milliseconds_of(run, self._setting.device))

    def sum_rows(self) -> KernelVerdict:
        """Sums of log-probabilities by tour."""
        packed = self._packed
        log_probs = torch.where(packed.valid, self._random(10)[: len(packed.valid), 0].float(), 0.0)

        def run() -> Tensor:
            return totals_of_tours(log_probs, packed, self._batch)

        wanted = torch.zeros(self._batch + 1, packed.num_rows, device=log_probs.device)
        wanted.index_put_((packed.instance, packed.row), log_probs, accumulate=True)
        bar = BARS[torch.float32][0]
        return KernelVerdict(
            f"sum_rows {self._head}",
            relative_error(run(), wanted[:-1]),
            bar,
            milliseconds_of(run, self._setting.device),
        )

    def _verdict(
        self, kernel: str, pairs: list[tuple[Tensor, Tensor]], direction: int, milliseconds: float
    ) -> KernelVerdict:
        error = max(relative_error(found, wanted) for found, wanted in pairs)
        return KernelVerdict(f"{kernel} {self._head}", error, BARS[self._setting.dtype][direction], milliseconds)

    def _sums(self) -> Sums:
        return Sums.zeros(self._shared, len(self._packed.row) // TILE, self._chunk.num_tiles)

    def _random(self, seed: int) -> Tensor:
        """Rows for the slots of the chunk, ``[P, d]``."""
        shape = (len(self._chunk.row), self._shared.keys.shape[2])
        device = self._setting.device
        return torch.randn(shape, generator=self._setting.generator(seed), device=device).to(self._shared.keys.dtype)

    def _glimpse(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """What ``glimpse_forward`` computes, instance by instance, ``[P, d]``."""
        shared, glimpse = self._shared, torch.zeros_like(query)
        for index, slots in enumerate(self._slots):
            q, k, v = (
                rows.view(len(rows), shared.heads, -1).transpose(0, 1)
                for rows in (query[slots], keys[index], values[index])
            )
            scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5  # [H, slots, N]
            weights = scores.masked_fill(~self._legal[slots], float("-inf")).softmax(-1)
            glimpse = glimpse.index_copy(0, slots, (weights @ v).transpose(0, 1).flatten(1))
        return glimpse

    def _log_probs(self, pointer: Tensor, keys: Tensor) -> Tensor:
        """What ``pointer_forward`` computes, instance by instance, ``[P]``."""
        shared, chunk, found = self._shared, self._chunk, pointer.new_zeros(len(pointer))
        for index, slots in enumerate(self._slots):
            logits = CLIP * torch.tanh(pointer[slots] @ keys[index].T * pointer.shape[1] ** -0.5)
            if shared.log_distances is not None:
                logits = logits - shared.log_distances[index][chunk.current[slots]]
            log_probs = logits.masked_fill(~self._legal[slots], float("-inf")).log_softmax(-1)
            taken = log_probs.gather(1, chunk.action[slots, None])[:, 0]
            found = found.index_copy(0, slots, torch.where(chunk.valid[slots], taken, 0.0))
        return found
