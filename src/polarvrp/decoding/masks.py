"""Bit masks of nodes: node n is bit ``n % 64`` of word ``n // 64``; an eighth of the memory of bools.

Shape legend: N nodes, W words.
"""

import torch
from torch import Tensor
from torch.nn import functional

WORD_BITS = 64

GATHER_BITS = sum(1 << (56 - 7 * bit) for bit in range(8))
EIGHT_COPIES = sum(1 << (8 * byte) for byte in range(8))
OWN_BIT = sum(1 << (9 * byte) for byte in range(8)) - (1 << 64)
"""Factors and masks of 64 bits, the last with its sign: bit i in byte i. Bytes lie in order of their weight."""


def mask_words(num_nodes: int) -> int:
    """Words of a mask of that many nodes."""
    return -(-num_nodes // WORD_BITS)


def to_words(mask: Tensor) -> Tensor:
    """Bool ``[..., N]`` as bits, int64 ``[..., W]``."""
    words = mask_words(mask.shape[-1])
    padded = functional.pad(mask, (0, words * WORD_BITS - mask.shape[-1]))
    # Bool i of eight is bit 8 i of an integer: the product has it as bit 56 + i, and nothing else meets it there.
    bits = (padded.view(torch.int64) * GATHER_BITS) >> 56
    return bits.to(torch.uint8).view(torch.int64)


def from_words(words: Tensor, num_nodes: int) -> Tensor:
    """Bits as bool, int64 ``[..., W]`` to ``[..., N]``."""
    copies = words.view(torch.uint8).to(torch.int64) * EIGHT_COPIES
    return ((copies & OWN_BIT).view(torch.uint8) != 0)[..., :num_nodes]
