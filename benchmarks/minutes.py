"""How good is a policy after a few minutes? Gaps to the published references against seconds of training.

    python benchmarks/minutes.py --seconds 300 --epochs 36 --output results/benchmarks/minutes.parquet

Trains polarnet-ple from scratch or from ``--weights``, preference optimisation first and refinement from the last
quarter of the epochs on, and stops every ``--slice`` seconds to solve the first test instances of the sixteen training
variants greedily from all starts under the eight symmetries. Prints and writes mean gaps to the published PyVRP costs;
every tour is priced by the exact checker. The epochs should be chosen so that the schedule ends with the time.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from polarvrp.decoding.greedy import Decoding, GreedySolver
from polarvrp.evaluation.evaluate import evaluate_set
from polarvrp.machine import device_name, usable_cores
from polarvrp.model.precision import compile_parts, has_bfloat16
from polarvrp.model.registry import build_policy
from polarvrp.problem.datasets import read_instances
from polarvrp.problem.sets import write_set
from polarvrp.problem.variants import TRAINING_VARIANTS
from polarvrp.references.published import published_costs
from polarvrp.study.specs import fingerprint, parse_train_spec
from polarvrp.study.weights import weights_digest
from polarvrp.training.checkpoints import read_newest, weights_of
from polarvrp.training.trainer import TrainJob, train

VALIDATION_INSTANCES = 16


def main(arguments: Sequence[str] | None = None, told: Callable[[dict[str, Any]], None] | None = None) -> None:
    """Train in slices, solve after each.

    Args:
        arguments: Of the command line.
        told: Called with the row of each slice.
    """
    options = parse(arguments)
    os.environ.setdefault("WANDB_MODE", "disabled")
    spec = specification(options)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        validation = make_sets(folder, "validation", options.num_customers, VALIDATION_INSTANCES, 4321)
        tests = make_sets(folder, "test", options.num_customers, options.instances, 1234)
        limit_s = 4 * options.seconds if options.limit is None else options.limit
        finished, begun_s = False, time.perf_counter()
        while not rows or (not finished and time.perf_counter() - begun_s + options.slice <= limit_s):
            job = TrainJob(
                f"polarnet-ple-polar-n{options.num_customers}-s0",
                spec,
                folder / "state",
                validation,
                folder / "model" / "weights.safetensors",
                tracking=folder,
                workers=options.workers,
                max_seconds=options.slice,
            )
            finished = train(job)
            rows.append(standing(folder / "state", spec, tests, options, device))
            print({key: round(value, 3) for key, value in rows[-1].items() if not key.startswith("gap_")}, flush=True)
            if told is not None:
                told(rows[-1])
            if rows[-1]["training_seconds"] >= options.seconds:
                break
    table = pd.DataFrame(rows)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(options.output, index=False)
    print(table[["training_seconds", "epoch", "mean_gap_percent"]].round(3).to_string(index=False))
    print(device_name(device), torch.__version__)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--num-customers", type=int, default=50, choices=(50, 100))
    parser.add_argument("--seconds", type=float, default=300.0, help="seconds of training, evaluation apart")
    parser.add_argument("--slice", type=float, default=60.0, help="seconds between two evaluations, start-up included")
    parser.add_argument(
        "--limit", type=float, metavar="SECONDS", help="by when the last slice ends (default: four times --seconds)"
    )
    parser.add_argument("--epochs", type=int, default=36)
    parser.add_argument("--weights", type=Path, metavar="FILE", help="weights.safetensors to go on from")
    parser.add_argument("--instances-per-epoch", type=int, default=100_000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--instances", type=int, default=200, help="test instances of each variant")
    parser.add_argument("--workers", type=int, default=usable_cores())
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks/minutes.parquet"))
    return parser.parse_args(arguments)


def specification(options: argparse.Namespace) -> dict[str, Any]:
    """The paper's recipe with its schedule scaled to fewer epochs, refinement over their last quarter."""
    epochs, weights = options.epochs, options.weights
    start = {}
    if weights is not None:
        start["initial_weights"] = {"model": str(weights), "sha256": weights_digest(weights)}
    return {
        "code": 0,
        "model": {"backbone": "polarnet", "encoder": "ple", "num_customers": options.num_customers},
        "training": {
            "paradigm": "polar",
            "num_customers": options.num_customers,
            "epochs": epochs,
            "instances_per_epoch": options.instances_per_epoch,
            "batch_size": options.batch_size,
            "milestones": sorted({round(epochs * 0.9), round(epochs * 0.983)}),
            "refinement_start_epoch": round(epochs * 0.75),
            "validation_instances": VALIDATION_INSTANCES,
            **start,
        },
    }


def make_sets(folder: Path, split: str, size: int, count: int, seed: int) -> list[Path]:
    """One file a training variant."""
    paths = [folder / f"{split}-{variant}.npz" for variant in TRAINING_VARIANTS]
    for path, variant in zip(paths, TRAINING_VARIANTS, strict=True):
        write_set(path, variant, size, count, seed=seed)
    return paths


def standing(
    state: Path, spec: dict[str, Any], tests: list[Path], options: argparse.Namespace, device: torch.device
) -> dict[str, Any]:
    """Where the training stands and how far its tours are from the references."""
    position, tensors = read_newest(state / fingerprint(spec))
    policy = build_policy(parse_train_spec(spec)[0])
    policy.load_state_dict(weights_of(tensors))
    policy = policy.to(device).eval()
    if device.type == "cuda":
        compile_parts(policy)
    solver = GreedySolver(policy, Decoding(), has_bfloat16(device))
    gaps = {f"gap_{path.stem.removeprefix('test-')}": gap(solver, path, options) for path in tests}
    return {
        "training_seconds": position.elapsed_s,
        "epoch": position.epoch - 1 + position.step * options.batch_size / options.instances_per_epoch,
        "mean_gap_percent": float(np.mean(list(gaps.values()))),
        **gaps,
    }


def gap(solver: GreedySolver, path: Path, options: argparse.Namespace) -> float:
    """Mean gap of one variant in percent."""
    variant = path.stem.removeprefix("test-")
    rows = evaluate_set(solver, "run", read_instances(path))
    published = published_costs(variant, options.num_customers, "pyvrp")[: len(rows)]
    costs = np.array([row.cost for row in rows])
    return float(np.mean(100 * (costs - published) / published))


if __name__ == "__main__":
    main()
