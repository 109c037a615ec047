"""Packing of decisions into one flat table of fixed capacity, the input of the fused scoring kernels.

Each instance owns a run of whole tiles, so that a kernel's tile never mixes instances; its last tile may have empty
slots. The capacity is fixed beforehand, as a captured graph needs it; decisions without room are counted, so that
they cannot be lost in silence.

Shape legend: B instances, G segments of an instance, L slots of a segment, C slots of the table, W mask words.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

TILE = 64

SMALLEST_BLOCK = 16
"""Rows or columns of the smallest matrix that tensor cores multiply."""


def block_of(count: int) -> int:
    """Rows or columns that kernels pad so many to: a power of two that tensor cores multiply."""
    return max(1 << (count - 1).bit_length(), SMALLEST_BLOCK)


@dataclass(frozen=True, slots=True)
class PackedDecisions:
    """Decisions of S tours of each of B instances.

    Attributes:
        instance: Instance of each slot; B on slots of unused tiles, int64, ``[C]``.
        row: Tour that made the decision, int64, ``[C]``.
        current: Node where it was made, int64, ``[C]``.
        action: Node chosen, int64, ``[C]``.
        features: What the environment tells the decoder (``Environment.features``), float32, ``[C, 5]``.
        mask: Legal actions (``decoding.masks``), int64, ``[C, W]``.
        valid: False on empty slots, whose other entries are 0 but for the mask, which is the first depot alone, bool,
            ``[C]``.
        first_tile: First tile of each instance and, last, the number of tiles in use, int64, ``[B + 1]``.
        dropped: Decisions that found no room, int64, scalar.
        num_rows: S.
        num_actions: T, the most actions that a tour may have.
    """

    instance: Tensor
    row: Tensor
    current: Tensor
    action: Tensor
    features: Tensor
    mask: Tensor
    valid: Tensor
    first_tile: Tensor
    dropped: Tensor
    num_rows: int
    num_actions: int


@dataclass(frozen=True, slots=True)
class Segments:
    """Unpacked decisions as the rollout records them: a segment for a few rows of one instance, its first slots in use.

    Attributes:
        count: Decisions that were made, which may exceed L, int64 or int32, ``[B, G]``.
        row: int32, ``[B, G, L]``.
        current: int32, ``[B, G, L]``.
        action: int32, ``[B, G, L]``.
        features: float32, ``[B, G, L, 5]``.
        mask: int64, ``[B, G, L, W]``.
    """

    count: Tensor
    row: Tensor
    current: Tensor
    action: Tensor
    features: Tensor
    mask: Tensor


def pack(segments: Segments, num_rows: int, num_actions: int, capacity: int) -> PackedDecisions:
    """Pack the decisions of all segments into one table; no shape depends on values, nothing waits for the device.

    Args:
        segments: Recorded decisions.
        num_rows: S.
        num_actions: T.
        capacity: C, a multiple of ``TILE``.
    """
    batch, _, length = segments.row.shape
    kept = segments.count.to(torch.int64).clamp(max=length)  # [B, G]
    ends = kept.cumsum(1)
    totals = ends[:, -1]
    tiles = (totals + TILE - 1) // TILE
    first_tile = functional.pad(tiles.cumsum(0), (1, 0))

    slot = torch.arange(capacity, device=kept.device)
    instance = torch.searchsorted(first_tile[1:], slot // TILE, right=True)
    owner = instance.clamp(max=batch - 1)
    offset = slot - first_tile[owner] * TILE
    valid = (instance < batch) & (offset < totals[owner])
    segment = (ends[owner] <= offset[:, None]).sum(1).clamp(max=kept.shape[1] - 1)
    position = (offset - ends[owner, segment] + kept[owner, segment]).clamp(0, length - 1)

    def taken(values: Tensor) -> Tensor:
        chosen = values[owner, segment, position]
        return torch.where(valid.view(-1, *[1] * (chosen.dim() - 1)), chosen, torch.zeros_like(chosen))

    mask = taken(segments.mask)
    return PackedDecisions(
        instance=instance,
        row=taken(segments.row).to(torch.int64),
        current=taken(segments.current).to(torch.int64),
        action=taken(segments.action).to(torch.int64),
        features=taken(segments.features),
        mask=torch.cat((mask[:, :1] | (~valid).to(torch.int64)[:, None], mask[:, 1:]), dim=1),
        valid=valid,
        first_tile=first_tile,
        dropped=segments.count.to(torch.int64).sum() - valid.sum(),
        num_rows=num_rows,
        num_actions=num_actions,
    )
