"""Bit masks of nodes: node n is bit ``n % 64`` of word ``n // 64``; an eighth of the memory of bools.

Shape legend: N nodes, W words.
"""

import torch
from torch import Tensor
from torch.nn import functional

WORD_BITS = 64


def mask_words(num_nodes: int) -> int:
    """Words of a mask of that many nodes."""
    return -(-num_nodes // WORD_BITS)


def to_words(mask: Tensor) -> Tensor:
    """Bool ``[..., N]`` as bits, int64 ``[..., W]``."""
    words = mask_words(mask.shape[-1])
    padded = functional.pad(mask, (0, words * WORD_BITS - mask.shape[-1]))
    bits = padded.reshape(*mask.shape[:-1], words, WORD_BITS).to(torch.int64)
    return (bits << torch.arange(WORD_BITS, device=mask.device)).sum(-1)


def from_words(words: Tensor, num_nodes: int) -> Tensor:
    """Bits as bool, int64 ``[..., W]`` to ``[..., N]``."""
    shifts = torch.arange(WORD_BITS, device=words.device)
    bits: Tensor = ((words[..., None] >> shifts) & 1).bool().flatten(-2)
    return bits[..., :num_nodes]
