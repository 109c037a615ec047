"""Two streams side by side: a sparse and a dense stack that exchange what they know after each layer.

Shape legend: B instances, N nodes, p prompt tokens, d features.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from polarvrp.model.blocks import Block
from polarvrp.model.linear import Linear
from polarvrp.model.rotation import Rotation
from polarvrp.model.stacks import Encoding, encoding_of


class DualStack(nn.Module):
    """Sparse and dense blocks with fusion by linear maps A_l (towards the returned stream) and C_l (towards the other).

    ============  ===========================  ==============================  ========
    fusion        returned stream              other stream                    returned
    ============  ===========================  ==============================  ========
    sequential    ``S = S' + A_l D'``          ``D = D' + C_l S``              sparse
    simultaneous  ``D = D' + A_l S'``          ``S = S' + C_l D'``             dense
    ============  ===========================  ==============================  ========

    S' and D' are the blocks' outputs. Prompt tokens are rows of the dense stream, updated by its blocks and left alone
    by the fusion; a sequential stack has no C in its last layer, a simultaneous one has it and never uses it.

    Args:
        make_sparse: Makes a block of the sparse stream.
        make_dense: Makes a block of the dense stream.
        width: d.
        num_layers: Layers.
        sequential: Which fusion.
    """

    def __init__(
        self,
        make_sparse: Callable[[], Block],
        make_dense: Callable[[], Block],
        width: int,
        num_layers: int,
        sequential: bool,
    ) -> None:
        super().__init__()
        self.sequential = sequential
        self.sparse_blocks = nn.ModuleList(make_sparse() for _ in range(num_layers))
        self.dense_blocks = nn.ModuleList(make_dense() for _ in range(num_layers))
        self.to_returned = nn.ModuleList(Linear(width, width) for _ in range(num_layers))
        self.to_other = nn.ModuleList(Linear(width, width) for _ in range(num_layers - int(sequential)))

    def forward(self, x: Tensor, prompt: Tensor | None, rotation: Rotation | None) -> Encoding:
        """Encode nodes.

        Args:
            x: ``[B, N, d]``.
            prompt: ``[B, p, d]`` or ``None``.
            rotation: Tables for N + p rows, or ``None``.
        """
        num_nodes, last = x.shape[1], len(self.to_returned) - 1
        node_rotation = None if rotation is None else rotation.first(num_nodes)
        sparse, dense = x, x if prompt is None else torch.cat((x, prompt), dim=1)
        total: Tensor | float = 0.0
        for layer in range(last + 1):
            sparse, sparse_auxiliary = self.sparse_blocks[layer](sparse, node_rotation)
            dense, dense_auxiliary = self.dense_blocks[layer](dense, rotation)
            total = total + sparse_auxiliary + dense_auxiliary
            nodes, tokens = dense[:, :num_nodes], dense[:, num_nodes:]
            returned, other = (sparse, nodes) if self.sequential else (nodes, sparse)
            fused = returned + self.to_returned[layer](other)
            if layer < last:
                other = other + self.to_other[layer](fused if self.sequential else returned)
            sparse, nodes = (fused, other) if self.sequential else (other, fused)
            dense = torch.cat((nodes, tokens), dim=1)
        return encoding_of(sparse if self.sequential else dense[:, :num_nodes], total)
