"""How fast does a policy leave the uniform one? Preference optimisation, POLAR from the first step, and ramps between.

    python benchmarks/refinement_ramp.py --ramps 0 0.05 0.1 --seeds 0 1 2

Trains a small ``polarnet`` on the 16 variants from scratch for a few hundred steps by each. Row ``po`` refines nothing,
row ``greedy`` neither but compares POLAR's greedy tour as well; a ramp of 0 is POLAR's own form. Prints mean costs of
sampled tours by windows of steps, over seeds, and writes every step as Parquet.
"""

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from polarvrp.config.model import ModelConfig
from polarvrp.config.training import TrainConfig
from polarvrp.local_search.refinement import Refiner
from polarvrp.model.registry import build_policy
from polarvrp.training.optimizer import make_optimizer
from polarvrp.training.schedule import decoder_ramp
from polarvrp.training.step import TrainingStep

STEPS_PER_EPOCH = 100
"""Over the first of them the decoder's residual block is turned on."""


def main() -> None:
    """Train by each form and seed, print windows."""
    options = parse()
    forms: dict[str, dict[str, Any]] = {
        "po": {"paradigm": "po"},
        "greedy": {"paradigm": "polar", "refinement_start_epoch": options.steps},
    }
    forms |= {
        f"ramp {ramp:g}": {"paradigm": "polar", "refinement_start_epoch": 0, "refinement_ramp": ramp}
        for ramp in options.ramps
    }
    rows = [row for seed in options.seeds for form in forms for row in train(form, forms[form], seed, options)]
    table = pd.DataFrame(rows)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(options.output, index=False)
    windows = table.assign(window=table["step"] // options.window * options.window)
    for column in ("sampled_cost", "gap_percent", "weight"):
        print(column)
        print(windows.pivot_table(index="form", columns="window", values=column, sort=False).round(2).to_string())


def parse() -> argparse.Namespace:
    """Options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--num-customers", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--window", type=int, default=25, help="steps of a printed mean")
    parser.add_argument("--ramps", type=float, nargs="+", default=[0.0, 0.05, 0.1])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks/refinement_ramp.parquet"))
    return parser.parse_args()


def train(form: str, values: dict[str, Any], seed: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the steps of one training."""
    network = ModelConfig(
        backbone="polarnet",
        encoder="shared",
        layers=options.layers,
        width=options.width,
        feedforward_width=2 * options.width,
    )
    config = TrainConfig(
        num_customers=options.num_customers,
        batch_size=options.batch_size,
        seed=seed,
        precision="float32",
        **values,
    )
    policy = build_policy(network, seed).train()
    optimizer = make_optimizer(config, policy, torch.device("cpu"))
    rows = []
    with Refiner(0) as refiner:
        step = TrainingStep(policy, optimizer, config, False, refiner)
        for number in range(options.steps):
            epoch, place = number // STEPS_PER_EPOCH + 1, number % STEPS_PER_EPOCH
            ramp = decoder_ramp(config, epoch, place, STEPS_PER_EPOCH)
            sums = step.run(0, epoch, place, options.batch_size, ramp)
            instances, refined = sums["instances"], sums["refined_tours"]
            gap = 100 * sums["refinement_improvement"] / refined if refined else None
            rows.append(
                {
                    "form": form,
                    "seed": seed,
                    "step": number,
                    "sampled_cost": sums["sampled_cost"] / instances,
                    "best_cost": sums["best_cost"] / instances,
                    "gap_percent": gap,
                    "weight": sums.get("refinement_weight", 0.0) / instances,
                }
            )
    return rows


if __name__ == "__main__":
    main()
