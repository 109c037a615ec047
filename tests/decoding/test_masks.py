"""Masks as bits."""

import pytest
import torch

from polarvrp.decoding.masks import from_words, mask_words, to_words


@pytest.mark.parametrize("num_nodes", [1, 7, 8, 21, 63, 64, 65, 101, 130])
def test_node_n_is_bit_n(num_nodes: int) -> None:
    mask = torch.rand(3, 4, num_nodes, generator=torch.Generator().manual_seed(num_nodes)) < 0.5
    mask[0, 0], mask[0, 1] = True, False
    words = to_words(mask)
    assert words.shape == (3, 4, mask_words(num_nodes))
    for node in range(num_nodes):
        assert torch.equal((words[..., node // 64] >> (node % 64)) & 1, mask[..., node].long())
    assert torch.equal(from_words(words, num_nodes), mask)
    # A table may hold words that do not lie side by side.
    assert torch.equal(from_words(words.transpose(0, 1), num_nodes), mask.transpose(0, 1))
