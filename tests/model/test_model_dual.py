"""Dual stacks: top-half attention and both fusions against plain versions."""

import math
from typing import Any

import pytest
import torch

from helpers.instances import sample
from helpers.model_samples import policy_of, shaken
from polarvrp.model.attention import sparse_attention, sparse_weights


@pytest.mark.parametrize("num_rows", [7, 8])
def test_each_query_and_head_attends_to_half_of_the_nodes_with_the_largest_scores(num_rows: int) -> None:
    query, key = torch.randn(2, 3, 2, num_rows, 8, dtype=torch.float64).unbind(0)
    weights = sparse_weights(query, key)
    scores = query @ key.transpose(-1, -2) / math.sqrt(8)
    assert bool(((weights > 0).sum(-1) == num_rows // 2).all())
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, num_rows, dtype=torch.float64))
    for row, row_scores in zip(weights.flatten(0, 2), scores.flatten(0, 2), strict=True):
        chosen = sorted(range(num_rows), key=lambda i: -float(row_scores[i]))[: num_rows // 2]
        total = sum(math.exp(row_scores[i]) for i in chosen)
        wanted = [math.exp(row_scores[i]) / total if i in chosen else 0.0 for i in range(num_rows)]
        assert row.tolist() == pytest.approx(wanted)


def test_equal_scores_still_choose_exactly_half() -> None:
    weights = sparse_weights(torch.zeros(1, 1, 4, 8), torch.zeros(1, 1, 9, 8))
    assert bool(((weights > 0).sum(-1) == 4).all())


def test_factor_scales_sparse_attention_before_the_output_map() -> None:
    attention = policy_of("cada", "shared", dtype=torch.float64).stack.sparse_blocks[0].attention
    rows = torch.randn(2, 8, 32, dtype=torch.float64)
    assert attention.factor.item() == pytest.approx(0.2)
    q, k, v = attention.query_key_value(rows).reshape(2, 8, 3, 2, 16).permute(2, 0, 3, 1, 4)
    heads = 0.2 * sparse_attention(q, k, v).transpose(1, 2).reshape(2, 8, 32)
    with torch.no_grad():
        attention.factor.fill_(0.2)
    torch.testing.assert_close(attention(rows, None, 8), attention.output(heads))
    large = policy_of("cada", "shared", num_customers=100)
    assert large.stack.sparse_blocks[0].attention.factor is None
    assert large.conditioning.prompt.num_tokens == 1


@pytest.mark.parametrize("backbone", ["cada", "moses"])
def test_streams_are_fused_as_published(backbone: str) -> None:
    """CaDA fuses the sparse stream first and hands it on; MoSES fuses both from what the blocks returned."""
    options: dict[str, Any] = {"adapters": "none"} if backbone == "moses" else {}
    policy = shaken(policy_of(backbone, "shared", layers=3, dtype=torch.float64, **options))
    instances: Any = sample(dtype=torch.float64)
    stack: Any = policy.stack
    nodes = instances.num_nodes
    with torch.no_grad():
        x = policy.embedding(instances, torch.float64)
        x, prompt = policy.conditioning(x, instances.flags, 1, torch.float64)
        sparse, dense = x, x if prompt is None else torch.cat((x, prompt), 1)
        for layer in range(3):
            sparse, dense = stack.sparse_blocks[layer](sparse)[0], stack.dense_blocks[layer](dense)[0]
            towards, back = stack.to_returned[layer], stack.to_other[min(layer, len(stack.to_other) - 1)]
            if backbone == "cada":
                sparse = sparse + towards(dense[:, :nodes])
                dense = torch.cat((dense[:, :nodes] + back(sparse), dense[:, nodes:]), 1)
            else:
                dense, sparse = dense + towards(sparse), sparse + back(dense)
        wanted = sparse if backbone == "cada" else dense
        torch.testing.assert_close(policy.encode(instances).embeddings, wanted)
    assert len(stack.to_other) == (2 if backbone == "cada" else 3)


def test_post_norm_block_normalises_after_each_residual() -> None:
    block = shaken(policy_of("cada", "shared", dtype=torch.float64)).stack.dense_blocks[0]
    rows = torch.randn(2, 5, 32, dtype=torch.float64)
    middle = block.norm_attention(rows + block.attention(rows, None, 5))
    wanted = block.norm_feedforward(middle + block.feedforward(middle)[0])
    torch.testing.assert_close(block(rows)[0], wanted)
    scaled = wanted / block.norm_feedforward.weight
    torch.testing.assert_close(scaled.square().mean(-1), torch.ones(2, 5, dtype=torch.float64), atol=1e-4, rtol=1e-4)
