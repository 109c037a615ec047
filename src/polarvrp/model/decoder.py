"""The pointer decoder: one attention glimpse from the current node and the vehicle's state, then clipped logits.

Shape legend: B instances, N nodes, M queries an instance (parallel starts, or steps of many tours), H heads,
D = d / H features of a head, d features, s state features.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from polarvrp.model.cpu_attention import cpu_attention
from polarvrp.model.heads import LightHead, Ramp, ReldHead
from polarvrp.model.linear import Linear, accumulation_dtype, map_pair
from polarvrp.problem.table_rows import rows_of

CLIP = 10.0
REMAINING_WITHOUT_LIMIT = 10.0
STATE_FEATURES = {"full": 5, "remaining_open": 4, "remaining": 3}

UNPLANNED_ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Kernels of the glimpse on a GPU. Those of cuDNN, torch's first choice on a Hopper GPU, are planned in tens of
milliseconds for each number of queries, and scored decisions have another one in every step."""


@dataclass(frozen=True, slots=True)
class DecoderCache:
    """What every query of an instance shares.

    Attributes:
        embeddings: Node embeddings h, ``[B, N, d]``.
        keys: Keys of the glimpse, ``[B, H, N, D]``.
        values: Values of the glimpse, ``[B, H, N, D]``.
        logit_keys: Keys of the pointer, float32 at least, ``[B, N, d]``.
        distance_limit: Longest route, infinite where there is no limit, ``[B]``.
        log_distances: Logarithms of the distances between nodes, 0 where the distance is 0, ``[B, N, N]``; ``None``
            for heads that do not look at them.
        choice: Probabilities of the dense map and the mixture of a :class:`LightHead`, ``[B, 2]``; else ``None``.
    """

    embeddings: Tensor
    keys: Tensor
    values: Tensor
    logit_keys: Tensor
    distance_limit: Tensor
    log_distances: Tensor | None = None
    choice: Tensor | None = None


class PointerDecoder(nn.Module):
    """Log-probabilities of the next node.

    With the current node's embedding h_cur, the state D and ``c = [h_cur ; D]``::

        y_h     = softmax(W_q,h c · (W_k,h h)ᵀ / √D) W_v,h h        infeasible nodes excluded
        ĥ       = head(y)
        logit_i = 10 tanh(ĥ · k_i / √d)                              k_i = h_i or W_l h_i

    and a softmax over the feasible nodes. The pointer computes in float32 under autocast too: half precision rounds
    tanh to exactly 1 from about 3.5 on, which leaves no gradient.

    Args:
        width: d.
        heads: H.
        state: ``full`` [free linehaul, free backhaul, time, length, open], ``remaining_open`` [free load, time, open,
            length left] or ``remaining`` [free load, time, length left].
        map_logit_keys: Whether k_i = W_l h_i.
        head: What follows the glimpse.
        glimpse_mask: ``hard``, ``plus_one`` or ``none`` (:class:`polarvrp.config.ModelConfig`).
        unused_map: Hold the d x d map of a graph context that the authors' networks own and never use, so that
            parameter counts agree.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        state: str,
        map_logit_keys: bool,
        head: nn.Module,
        glimpse_mask: str = "hard",
        unused_map: bool = False,
    ) -> None:
        super().__init__()
        self.heads, self.state, self.map_logit_keys, self.glimpse_mask = heads, state, map_logit_keys, glimpse_mask
        parts = 3 if map_logit_keys else 2
        self.query = Linear(width + STATE_FEATURES[state], width, bias=False)
        self.keys_values = Linear(width, parts * width, bias=False, parts=parts)
        self.head = head
        self.unused = nn.Parameter(torch.empty(width, width), requires_grad=False) if unused_map else None
        if self.unused is not None:
            nn.init.uniform_(self.unused, -(width**-0.5), width**-0.5)

    def cache(self, embeddings: Tensor, locs: Tensor, distance_limit: Tensor) -> DecoderCache:
        """Everything that does not depend on the query.

        Args:
            embeddings: ``[B, N, d]``.
            locs: Coordinates, ``[B, N, 2]``.
            distance_limit: ``[B]``.
        """
        parts = self.keys_values(embeddings).chunk(3 if self.map_logit_keys else 2, dim=-1)
        logit_keys = parts[2] if self.map_logit_keys else embeddings
        keys, values = self._split(parts[0]), self._split(parts[1])
        choice = None
        if isinstance(self.head, LightHead):
            choice = self.head.choice(self._first_glimpse(embeddings[:, 0], keys, values))
        return DecoderCache(
            embeddings=embeddings,
            keys=keys,
            values=values,
            logit_keys=logit_keys.to(accumulation_dtype(logit_keys.dtype)),
            distance_limit=distance_limit,
            log_distances=log_distances(locs) if isinstance(self.head, ReldHead) else None,
            choice=choice,
        )

    def log_probs(
        self,
        cache: DecoderCache,
        current: Tensor,
        state: Tensor,
        mask: Tensor,
        ramp: Ramp,
        noise: Tensor,
        decided: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | float]:
        """Log-probabilities of the next node for each query.

        Args:
            cache: Of the same B instances.
            current: Current nodes, int64, ``[B, M]``.
            state: Free linehaul load, free backhaul load, time, route length, open, ``[B, M, 5]``.
            mask: Whether a node may follow, at least one a row, bool, ``[B, M, N]``.
            ramp: How much of the head's residual block is on.
            noise: Normal numbers that a head with a mixture routes by in training, ``[B, M, head.num_noise]``.
            decided: Queries whose answer matters, bool, ``[B, M]``; a head that answers each query by itself leaves the
                others out, which then get equal probabilities. ``None``: all.

        Returns:
            Float32 (float64 for float64 embeddings) ``[B, M, N]``, -inf where the mask is False; auxiliary loss.
        """
        features = self.state_features(state, cache.distance_limit).to(cache.embeddings.dtype)
        node = rows_of(cache.embeddings, current)  # [B, M, d]
        glimpse = self._glimpse(self._split(map_pair(self.query, node, features)), cache, mask).transpose(1, 2)
        if decided is None or not self.head.answers_alone:
            routing = (noise,) if self.head.num_noise else ()
            choice = () if cache.choice is None else (cache.choice,)
            pointer, auxiliary = self.head(glimpse, node, features, ramp, *routing, *choice)
        else:
            pointer, auxiliary = self._answers_of(decided, glimpse, node, features, ramp)
        with torch.autocast(pointer.device.type, enabled=False):
            dtype = cache.logit_keys.dtype
            scores = pointer.to(dtype) @ cache.logit_keys.transpose(1, 2) * pointer.shape[-1] ** -0.5
            logits = CLIP * torch.tanh(scores)
            if cache.log_distances is not None:
                logits = logits - rows_of(cache.log_distances, current).to(dtype)
            return (logits + hidden_bias(mask, dtype)).log_softmax(dim=-1), auxiliary

    def _glimpse(self, query: Tensor, cache: DecoderCache, mask: Tensor) -> Tensor:
        """Attention to the nodes, ``[B, H, M, D]``."""
        if query.device.type == "cpu":
            dtype, bias = accumulation_dtype(query.dtype), None
            if self.glimpse_mask != "none":
                bias = hidden_bias(mask, dtype) if self.glimpse_mask == "hard" else mask.to(dtype)
            return cpu_attention(query, cache.keys, cache.values, None if bias is None else bias[:, None])
        attention_mask = self._attention_mask(mask, cache.keys.dtype)
        with sdpa_kernel(UNPLANNED_ATTENTION):
            return functional.scaled_dot_product_attention(query, cache.keys, cache.values, attention_mask)

    def _answers_of(
        self, decided: Tensor, glimpse: Tensor, node: Tensor, features: Tensor, ramp: Ramp
    ) -> tuple[Tensor, Tensor | float]:
        """Pointer queries of some rows, 0 for the others."""
        rows = decided.flatten().nonzero().squeeze(1)
        some = (values.flatten(0, 1).index_select(0, rows)[None] for values in (glimpse, node, features))
        found, auxiliary = self.head(*some, ramp)
        pointer = found.new_zeros(decided.numel(), found.shape[-1]).index_copy_(0, rows, found[0])
        return pointer.view(*decided.shape, -1), auxiliary

    def state_features(self, state: Tensor, distance_limit: Tensor) -> Tensor:
        """The state as this decoder sees it.

        Args:
            state: ``[B, M, 5]``.
            distance_limit: ``[B]``.

        Returns:
            ``[B, M, s]``.
        """
        if self.state == "full":
            return state
        linehaul, backhaul, time, length, open_route = state.unbind(dim=-1)
        free = torch.where(backhaul == 1, linehaul, backhaul)
        left = distance_limit[:, None].to(length.dtype) - length
        left = left.masked_fill(left.isinf(), REMAINING_WITHOUT_LIMIT)
        if self.state == "remaining":
            return torch.stack((free, time, left), dim=-1)
        return torch.stack((free, time, open_route, left), dim=-1)

    def _first_glimpse(self, depot: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """What an empty vehicle at the first depot, ``[B, d]``, sees of all nodes, ``[B, d]``."""
        empty = depot.new_zeros(len(depot), STATE_FEATURES[self.state])
        empty[:, : 2 if self.state == "full" else 1] = 1.0  # free capacity
        query = self._split(self.query(torch.cat((depot, empty), dim=-1))[:, None])
        return functional.scaled_dot_product_attention(query, keys, values).transpose(1, 2).flatten(1)

    def _split(self, rows: Tensor) -> Tensor:
        return rows.reshape(*rows.shape[:-1], self.heads, -1).transpose(1, 2)  # [B, H, rows, D]

    def _attention_mask(self, mask: Tensor, dtype: torch.dtype) -> Tensor | None:
        if self.glimpse_mask == "none":
            return None
        return mask[:, None] if self.glimpse_mask == "hard" else mask[:, None].to(dtype)


def hidden_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where the mask is True, minus infinity elsewhere; adding it costs a CPU a tenth of filling by the mask."""
    return (mask.to(dtype) - 1).mul_(torch.finfo(dtype).max).mul_(2)  # twice the largest number overflows


def log_distances(locs: Tensor) -> Tensor:
    """Logarithms of the distances between nodes, 0 between nodes in one place, ``[B, N, 2]`` to ``[B, N, N]``."""
    distances = (locs[:, :, None] - locs[:, None]).norm(dim=-1)
    return torch.where(distances > 0, distances, torch.ones_like(distances)).log()
