"""Rows of tables that each instance has one of, such as its distances or the embeddings of its nodes."""

import torch
from torch import Tensor


def rows_of(table: Tensor, index: Tensor) -> Tensor:
    """Rows ``index`` of a table per instance: ``[B, N, d]``, ``[B, S]`` -> ``[B, S, d]``."""
    batch, rows, width = table.shape
    first = torch.arange(batch, device=index.device)[:, None] * rows
    # Whole rows are copied at once, which on a CPU takes a tenth of the time of gathering their entries.
    return table.reshape(batch * rows, width).index_select(0, (index + first).flatten()).view(*index.shape, width)
