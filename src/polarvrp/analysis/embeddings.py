"""Node embeddings of an encoder, and their t-SNE map in the plane.

Source: appendix on representation geometry, which names neither the number of nodes nor the settings of t-SNE; here
they are some customers of the first instances of each variant, and scikit-learn's defaults.

Shape legend: B instances, N nodes, P points (nodes over all instances and variants), d features.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from polarvrp.model.policy import Policy
from polarvrp.problem.datasets import variant_of
from polarvrp.problem.instances import Instances, NodeArrays, to_tensors
from polarvrp.seeds import derive_seed

INSTANCES_PER_VARIANT = 50
"""First instances of each test set that are encoded."""

CUSTOMERS_PER_INSTANCE = 5
"""Customers of each instance whose embeddings are kept, drawn alike for every encoder."""

PERPLEXITY = 30.0
"""Of t-SNE; lower where there are fewer than three times as many points."""

SCHEMA = pa.schema(
    [
        pa.field("variant", pa.string(), nullable=False),
        pa.field("instance", pa.int32(), nullable=False),
        pa.field("node", pa.int32(), nullable=False),
        pa.field("x", pa.float64(), nullable=False),
        pa.field("y", pa.float64(), nullable=False),
        pa.field("embedding", pa.list_(pa.float32()), nullable=False),
    ]
)
"""Columns of ``embeddings.parquet``, a row a point: the node, its place in the map of all points, its embedding."""


def embeddings(policy: Policy, sets: Sequence[Instances[NodeArrays]]) -> pd.DataFrame:
    """Embeddings of some customers of each variant, and their map.

    Args:
        policy: In evaluation mode.
        sets: Instances of one variant each.

    Returns:
        Columns of ``SCHEMA``; the same on each run on one machine.
    """
    frames, vectors = [], []
    with threadpool_limits(1):  # sums in another order make another map
        for instances in sets:
            some = instances[:INSTANCES_PER_VARIANT]
            with torch.inference_mode():
                encoded = policy.encode(to_tensors(some, dtype=policy.dtype)).embeddings  # [B, N, d]
            name = variant_of(some).name
            nodes = _some_customers(some, name)
            instance = np.arange(len(some)).repeat(nodes.shape[1])
            vectors.append(encoded[instance, nodes.ravel()].numpy())
            frames.append(pd.DataFrame({"variant": name, "instance": instance, "node": nodes.ravel()}))
        points = np.concatenate(vectors)  # [P, d]
        plane = tsne(points)
    frame: pd.DataFrame = pd.concat(frames, ignore_index=True)
    return frame.assign(x=plane[:, 0], y=plane[:, 1], embedding=list(points.astype(np.float32)))


def tsne(points: NDArray[np.floating]) -> NDArray[np.float64]:
    """t-SNE map, deterministic: started from principal components, one thread.

    Args:
        points: Float, ``[P, d]``.

    Returns:
        Float64, ``[P, 2]``.
    """
    perplexity = min(PERPLEXITY, (len(points) - 1) / 3)
    model: Any = TSNE(perplexity=perplexity, init="pca", random_state=0, n_jobs=1)
    plane: NDArray[np.float64] = model.fit_transform(points.astype(np.float64)).astype(np.float64)
    return plane


def _some_customers(instances: Instances[NodeArrays], variant: str) -> NDArray[np.int64]:
    """Nodes whose embeddings are kept, int64, ``[B, CUSTOMERS_PER_INSTANCE]``, fewer where there are fewer."""
    random = np.random.default_rng(derive_seed(0, "embeddings", variant))
    count = min(CUSTOMERS_PER_INSTANCE, instances.num_customers)
    drawn = [random.choice(instances.num_customers, count, replace=False) for _ in range(len(instances))]
    return np.sort(drawn, axis=1) + instances.num_depots
