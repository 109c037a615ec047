"""A policy: embedding, conditioning, stack and decoder behind three calls.

Shape legend: B instances, N nodes, M queries an instance, d features.
"""

import torch
from torch import Tensor, nn

from polarvrp.config.model import ModelConfig
from polarvrp.model.conditioning import Conditioning
from polarvrp.model.decoder import DecoderCache, PointerDecoder
from polarvrp.model.embedding import NodeEmbedding
from polarvrp.model.heads import Ramp
from polarvrp.model.linear import accumulation_dtype
from polarvrp.model.mixture import Router
from polarvrp.model.rotation import rotation_of
from polarvrp.model.stacks import Encoding
from polarvrp.problem.instances import Instances
from polarvrp.problem.variants import FLAG_NAMES, UNSEEN_FLAGS

__all__ = ["DecoderCache", "Encoding", "Policy"]

NUM_TRAINED_FLAGS = FLAG_NAMES.index(UNSEEN_FLAGS[0])
BACKHAUL_FLAG, MIXED_FLAG = FLAG_NAMES.index("B"), FLAG_NAMES.index("MB")


class Policy(nn.Module):
    """Encodes instances once and gives log-probabilities of next nodes for any number of queries.

    Args:
        config: What was asked for.
        embedding: Instances to node embeddings.
        conditioning: Constraint flags to modulation and prompt.
        stack: ``(x, prompt, rotation) -> Encoding``.
        decoder: The pointer.
        rope: Form of the rotary embedding, ``off`` for none.

    Attributes:
        ramp: How much of the decoder's residual block is on, 0 to 1; the trainer raises it at first. A tensor
            is read at run time, so that a captured or compiled step need not be built again.
        mask_unseen_flags: Hide the flags of mixed backhauls and several depots, which no training instance sets.
        mb_sets_b: Whether flag B is set beside MB for mixed backhauls, as in the published tests, or MB alone.
    """

    def __init__(
        self,
        config: ModelConfig,
        embedding: NodeEmbedding,
        conditioning: Conditioning,
        stack: nn.Module,
        decoder: PointerDecoder,
        rope: str = "off",
    ) -> None:
        super().__init__()
        self.config, self.rope = config, rope
        self.embedding, self.conditioning, self.stack, self.decoder = embedding, conditioning, stack, decoder
        self.ramp: Ramp = 1.0
        self._noise: torch.Generator | None = None
        self.mask_unseen_flags = False
        self.mb_sets_b = True

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the parameters."""
        return next(self.parameters()).dtype

    def draw_noise_from(self, generator: torch.Generator | None) -> None:
        """Take the routing noise of mixtures in training mode from ``generator``; ``None``: torch's global one."""
        self._noise = generator
        for module in self.modules():
            if isinstance(module, Router):
                module.generator = generator

    def noise_generators(self) -> set[torch.Generator]:
        """What it draws from as it is: what :meth:`draw_noise_from` set, in training and if it has mixtures."""
        mixtures = self.training and any(isinstance(module, Router) for module in self.modules())
        return {self._noise} if mixtures and self._noise is not None else set()

    def routing_noise(self, current: Tensor) -> Tensor:
        """Normal numbers that its decoder routes queries by: in training, and if it holds a mixture of experts.

        Whoever scores decisions later needs those that they were made by, as it needs their masks.

        Args:
            current: Current nodes, ``[B, M]``.

        Returns:
            In the dtype that a mixture computes in, ``[B, M, R]``; R = 0 where none are needed.
        """
        count: int = self.decoder.head.num_noise if self.training else 0  # type: ignore[assignment]  # of a module
        noise = torch.empty(*current.shape, count, dtype=accumulation_dtype(self.dtype), device=current.device)
        return noise.normal_(generator=self._noise) if count else noise

    def encode(self, instances: Instances[Tensor]) -> Encoding:
        """Embed the nodes of a batch.

        Args:
            instances: B instances; infinite features count as 0.

        Returns:
            Embeddings ``[B, N, d]`` and auxiliary loss.
        """
        flags = instances.flags
        if not self.mb_sets_b:
            seen = flags[:, BACKHAUL_FLAG] & ~flags[:, MIXED_FLAG]
            flags = torch.cat((flags[:, :BACKHAUL_FLAG], seen[:, None], flags[:, MIXED_FLAG:]), dim=1)
        if self.mask_unseen_flags:
            flags = torch.cat((flags[:, :NUM_TRAINED_FLAGS], torch.zeros_like(flags[:, NUM_TRAINED_FLAGS:])), dim=1)
        x = self.embedding(instances, self.dtype)
        x, prompt = self.conditioning(x, flags, instances.num_depots, self.dtype)
        rotation = None
        if self.rope != "off":
            num_tokens = 0 if prompt is None else prompt.shape[1]
            head_width = self.config.width // self.config.heads
            rotation = rotation_of(instances.locs.to(self.dtype), head_width, self.rope, num_tokens)
        encoding: Encoding = self.stack(x, prompt, rotation)
        return encoding

    def cache(self, embeddings: Tensor, instances: Instances[Tensor]) -> DecoderCache:
        """What the decoder computes once an instance.

        Args:
            embeddings: ``[B, N, d]``.
            instances: The same B instances.
        """
        return self.decoder.cache(embeddings, instances.locs.to(self.dtype), instances.distance_limit)

    def log_probs(
        self,
        cache: DecoderCache,
        current: Tensor,
        state: Tensor,
        mask: Tensor,
        decided: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the next node for M queries an instance.

        Args:
            cache: Of the same B instances.
            current: Current nodes, int64, ``[B, M]``.
            state: Free linehaul load, free backhaul load, time, route length, open, float, ``[B, M, 5]``.
            mask: Whether a node may follow, at least one a row, bool, ``[B, M, N]``.
            decided: Queries whose answer matters, bool, ``[B, M]``; the others may get equal probabilities. Given, the
                work may depend on how many they are. ``None``: all.
            noise: As :meth:`routing_noise` gives it; ``None``: drawn here.

        Returns:
            Float32 (float64 for float64 parameters) ``[B, M, N]``, -inf where the mask is False; auxiliary loss,
            scalar.
        """
        noise = self.routing_noise(current) if noise is None else noise
        log_probs, auxiliary = self.decoder.log_probs(cache, current, state, mask, self.ramp, noise, decided)
        return log_probs, auxiliary if isinstance(auxiliary, Tensor) else log_probs.new_full((), auxiliary)
