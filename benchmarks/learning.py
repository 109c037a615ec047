"""Does a small training on a CPU learn? polarnet-ple-polar at n = 20 against its untrained self and nearest neighbour.

    python benchmarks/learning.py --output results/benchmarks/learning.parquet

Trains a few minutes, then solves the first test instances of the sixteen training variants greedily from all starts
under the eight symmetries. Prints a table and writes it as Parquet. Nothing here is a result of the study.
"""

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from polarvrp.decoding.greedy import Decoding, GreedySolver
from polarvrp.evaluation.evaluate import evaluate_set
from polarvrp.evaluation.models import load_trained
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy
from polarvrp.problem.datasets import read_instances
from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.nearest_neighbour import nearest_neighbour
from polarvrp.problem.sets import write_set
from polarvrp.problem.tours import check_tour
from polarvrp.problem.variants import TRAINING_VARIANTS
from polarvrp.training.trainer import TrainJob, train

RUN = "polarnet-ple-polar-n20-s0"
SPEC: dict[str, Any] = {
    "code": 0,
    "model": {"backbone": "polarnet", "encoder": "ple", "num_customers": 20},
    "training": {
        "paradigm": "polar",
        "num_customers": 20,
        "epochs": 4,
        "instances_per_epoch": 1200,
        "batch_size": 32,
        "refinement_start_epoch": 2,
        "milestones": [3],
        "precision": "float32",
        "validation_instances": 4,
    },
}


def main() -> None:
    """Train, solve, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks/learning.parquet"))
    parser.add_argument("--instances", type=int, default=32, help="test instances of each variant")
    options = parser.parse_args()
    os.environ.setdefault("WANDB_MODE", "disabled")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        validation = [folder / f"validation-{variant}.npz" for variant in TRAINING_VARIANTS]
        for path, variant in zip(validation, TRAINING_VARIANTS, strict=True):
            write_set(path, variant, 20, 4, seed=4321)
        weights = folder / "weights.safetensors"
        start_s = time.perf_counter()
        train(TrainJob(RUN, SPEC, folder / "state", validation, weights, tracking=folder))
        seconds = time.perf_counter() - start_s
        trained = load_trained(str(weights)).policy
        untrained = build_policy(trained.config, seed=0).eval()
        rows = [compare(variant, folder, options.instances, untrained, trained) for variant in TRAINING_VARIANTS]
    table = pd.DataFrame(rows)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(options.output, index=False)
    print(table.round(2).to_string(index=False))
    means = table[["below_untrained_percent", "below_nearest_percent"]]
    print(f"mean: {means.mean().round(2).to_dict()}, least: {means.min().round(2).to_dict()}")
    print(f"{seconds:.0f} s of training, {torch.get_num_threads()} threads of {platform.machine()}")


def compare(variant: str, folder: Path, count: int, untrained: Policy, trained: Policy) -> dict[str, Any]:
    """Mean costs of one variant's test set."""
    path = folder / f"test-{variant}.npz"
    write_set(path, variant, 20, count, seed=1234)
    instances = read_instances(path)
    nearest = [check_tour(instances, i, nearest_neighbour(instances, i)).cost for i in range(count)]
    costs = {"nearest_neighbour": float(np.mean(nearest))}
    costs |= {"untrained": mean_cost(untrained, instances), "trained": mean_cost(trained, instances)}
    return {
        "variant": variant,
        **costs,
        "below_untrained_percent": 100 * (1 - costs["trained"] / costs["untrained"]),
        "below_nearest_percent": 100 * (1 - costs["trained"] / costs["nearest_neighbour"]),
    }


def mean_cost(policy: Policy, instances: Instances[NodeArrays]) -> float:
    """Mean exact cost of greedy multi-start with eight symmetries."""
    rows = evaluate_set(GreedySolver(policy, Decoding(), bfloat16=False), RUN, instances)
    return float(np.mean([row.cost for row in rows]))


if __name__ == "__main__":
    main()
