"""Size of every network of the catalog: parameters, and multiply-adds of one instance.

Shape of the result: a row a backbone, encoder and number of customers.
"""

from collections.abc import Sequence

import pandas as pd
import pyarrow as pa

from polarvrp.catalog.backbones import BACKBONES
from polarvrp.config.model import ModelConfig
from polarvrp.config.recipes import recipe_of
from polarvrp.model.description import describe_network

SCHEMA = pa.schema(
    [
        pa.field("backbone", pa.string(), nullable=False),
        pa.field("encoder", pa.string(), nullable=False),
        pa.field("num_customers", pa.int64(), nullable=False),
        pa.field("parameters", pa.int64(), nullable=False),
        pa.field("encoder_multiply_adds", pa.int64(), nullable=False),
        pa.field("decoder_multiply_adds", pa.int64(), nullable=False),
        pa.field("steps", pa.int64(), nullable=False),
    ]
)
"""Columns of ``architectures.parquet``; the decoder's share is a greedy rollout of so many steps from every customer,
without symmetries (``model.cost.multiply_adds``)."""


def architectures(sizes: Sequence[int]) -> pd.DataFrame:
    """Parameters and multiply-adds of every backbone with each of its encoders, in the form that is tested in the end.

    Args:
        sizes: Numbers of customers.

    Returns:
        Columns of ``SCHEMA``.
    """
    rows = []
    for backbone, record in BACKBONES.items():
        # Of the last stage of its training, for a backbone that is trained in stages.
        adapters = recipe_of(backbone, max(sizes)).get("stages", [{}])[-1].get("adapters")
        for encoder in record.encoders:
            for size in sizes:
                config = ModelConfig(backbone=backbone, encoder=encoder, num_customers=size, adapters=adapters)
                described = describe_network(config)
                cost = described["multiply_adds"]
                rows.append(
                    {"backbone": backbone, "encoder": encoder, "num_customers": size}
                    | {"parameters": described["parameters"], "steps": cost["steps"]}
                    | {f"{part}_multiply_adds": cost[part] for part in ("encoder", "decoder")}
                )
    return pd.DataFrame(rows, columns=SCHEMA.names)
