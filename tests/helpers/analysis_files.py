"""Files of analyses with numbers that one can check by heart."""

import math
from pathlib import Path

import pandas as pd
import pyarrow as pa

from polarvrp.analysis import architectures, embeddings, experts, margins
from polarvrp.files import write_parquet
from polarvrp.problem.variants import TRAINING_VARIANTS
from polarvrp.study.layout import Layout

METRICS = [
    (metric, tolerance)
    for space in ("cost", "policy")
    for metric, tolerance in (
        (f"mean_{space}_gap", math.nan),
        *((f"{space}_near_tie_percent", tolerance) for tolerance in (0.1, 0.5, 1.0, 5.0)),
    )
]
EXPERTS = ("task_1", "task_2", "task_3", "shared")


def margin_file(root: Path, run: str, values: tuple[float, ...], start: int | None) -> None:
    """Margins with one value an epoch for all metrics; tours are refined after epoch ``start``."""
    rows = [
        {"epoch": epoch, "metric": metric, "epsilon_percent": tolerance, "value": value, "preferred_pairs": 10 * epoch}
        | {"refined_tours": 0 if start is None or epoch <= start else 7}
        for metric, tolerance in METRICS
        for epoch, value in enumerate(values, 1)
    ]
    write_analysis(root, run, "preference_margins", pd.DataFrame(rows), margins.SCHEMA)


def expert_file(root: Path, run: str, shift: float = 0.0) -> None:
    """Shares of 10, 20, 30 and 40 % on the first variant, each of the next one ``shift`` more for Task 1."""
    rows = [
        {"layer": layer, "variant": variant, "expert": expert, "gate": 0.1 * place, "weight": 0.2, "norm": 1.0}
        | {"percent": 10.0 * place + (shift * rank if place == 1 else 0.0), "instances": 5}
        for layer in (1, 2)
        for rank, variant in enumerate(TRAINING_VARIANTS)
        for place, expert in enumerate(EXPERTS, 1)
    ]
    write_analysis(root, run, "expert_contributions", pd.DataFrame(rows), experts.SCHEMA)


def embedding_file(root: Path, run: str, angle: float) -> None:
    """Two variants, each of two equal embeddings, with an angle between the variants."""
    rows = [
        {"variant": variant, "instance": instance, "node": 1, "x": float(place), "y": float(instance)}
        | {"embedding": [math.cos(place * angle), math.sin(place * angle)]}
        for place, variant in enumerate(("CVRP", "VRPTW"))
        for instance in (0, 1)
    ]
    write_analysis(root, run, "embeddings", pd.DataFrame(rows), embeddings.SCHEMA)


def architecture_file(root: Path, sizes: tuple[int, ...]) -> None:
    """Round numbers for the paper's network with two encoders, and for a backbone in its two forms."""
    networks = (("mtpomo", "shared"), ("mtpomo_ablation", "shared"), ("polarnet", "shared"), ("polarnet", "ple"))
    rows = [
        {"backbone": backbone, "encoder": encoder, "num_customers": size, "parameters": 1_000_000 * (1 + place)}
        | {"encoder_multiply_adds": 1_500_000 * size, "decoder_multiply_adds": 500_000 * size, "steps": size}
        for place, (backbone, encoder) in enumerate(networks)
        for size in sizes
    ]
    table = pa.Table.from_pandas(pd.DataFrame(rows), architectures.SCHEMA, preserve_index=False)
    write_parquet(Layout(root).architectures, table, {})


def write_analysis(root: Path, run: str, name: str, frame: pd.DataFrame, schema: pa.Schema) -> None:
    """File of an analysis of a run below the folder of results."""
    write_parquet(Layout(root).analysis(run, name), pa.Table.from_pandas(frame, schema, preserve_index=False), {})
