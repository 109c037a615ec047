"""How fast are training and inference, after a check that they are right? One table, one Parquet file.

    python benchmarks/engine.py --num-customers 50 100 --output results/benchmarks/engine.parquet

For every backbone and encoder: the engine's tours and gradients against level ``parallel`` in float32, then the time
of a training step by phase, seconds of an epoch of 100,000 instances, instances a second, memory, the share of the
measured peak arithmetic, and the seconds of greedy inference on 1,000 instances under the eight symmetries.
``--against DIR --command "..."`` runs a command of yours in DIR afterwards on the same machine and puts its wall time
beside ours.
"""

import argparse
import itertools
import platform
import shlex
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from timing import StepTimes, timed_steps
from torch import Tensor

from polarvrp.catalog.backbones import BACKBONES
from polarvrp.config.model import ModelConfig
from polarvrp.config.training import TrainConfig
from polarvrp.decoding.engine import LEVELS, make_engine
from polarvrp.decoding.greedy import Decoding, GreedySolver
from polarvrp.decoding.level_check import Probe, compare_with_parallel
from polarvrp.environment.environment import Environment
from polarvrp.local_search.refinement import Refiner
from polarvrp.machine import copy_rate, device_name, product_rate
from polarvrp.model.cost import multiply_adds
from polarvrp.model.policy import Policy
from polarvrp.model.precision import bfloat16_products, compile_parts, has_bfloat16, trains_in_bfloat16
from polarvrp.model.registry import build_policy
from polarvrp.problem.instances import Instances, to_arrays
from polarvrp.problem.torch_generator import generate_batch
from polarvrp.problem.tours import check_tour, flat_actions
from polarvrp.progress import progress
from polarvrp.tolerances import POLICY_TOLERANCE
from polarvrp.training.optimizer import make_optimizer
from polarvrp.training.step import TrainingStep

EPOCH_INSTANCES = 100_000
WARM_UP_STEPS = 4
PAIRS = [f"{backbone}-{encoder}" for backbone, record in BACKBONES.items() for encoder in record.encoders]
BATCH_SIZES = {"cpu": 64, "cuda": 256}
"""Up to 50 customers; half of it beyond."""


def main() -> int:
    """Check, time, print, write."""
    options = parse()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    peak = product_rate(device)
    jobs = list(itertools.product(options.models, options.paradigms, options.num_customers))
    rows = []
    with Refiner(options.workers) as refiner:
        for model, paradigm, size in progress(jobs, len(jobs), "engine", "training"):
            rows.append(measure(model, paradigm, size, device, peak, refiner, options))
            print(brief(rows[-1]), flush=True)
    table = pd.DataFrame(rows)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(options.output, index=False)
    print(table.drop(columns=["card", "torch", "python", "date"]).round(3).T.to_string(header=False))
    rates = f"peak {peak / 1e12:.3g} TFLOP/s, {copy_rate(device) / 1e12:.3g} TB/s"
    print(f"{rows[0]['card']}, torch {torch.__version__}; {rates}")
    if options.against is not None:
        print_rival(options.against, options.command)
    return 0 if table["correct"].all() else 1


def parse() -> argparse.Namespace:
    """Options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=PAIRS, choices=PAIRS, metavar="BACKBONE-ENCODER")
    parser.add_argument("--paradigms", nargs="+", default=["po"], choices=("rl", "po", "polar"))
    parser.add_argument("--num-customers", type=int, nargs="+", default=[50, 100])
    parser.add_argument("--batch-size", type=int, help="default: 256 on a GPU, 64 on a CPU, half of it beyond n = 50")
    parser.add_argument("--steps", type=int, default=20, help="timed steps")
    parser.add_argument("--instances", type=int, default=1000, help="instances of the timed inference")
    parser.add_argument("--engine", choices=LEVELS, default="auto")
    parser.add_argument("--workers", type=int, default=0, help="processes of local search (polar); 0: this one")
    parser.add_argument("--refiner", choices=("pyvrp", "gpu"), default="pyvrp")
    parser.add_argument("--against", type=Path, metavar="DIR", help="folder of a rival; needs --command")
    parser.add_argument("--command", help="what to run there, timed as a whole")
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks/engine.parquet"))
    options = parser.parse_args()
    if (options.against is None) != (options.command is None):
        parser.error("--against DIR and --command belong together")
    return options


def measure(
    model: str,
    paradigm: str,
    size: int,
    device: torch.device,
    peak: float,
    refiner: Refiner,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """One row of the table."""
    torch.compiler.reset()  # each row as in a process of its own, where the first shape gets code for itself
    backbone, _, encoder = model.partition("-")
    policy = build_policy(ModelConfig(backbone=backbone, encoder=encoder, num_customers=size), seed=0).to(device)
    batch = options.batch_size or BATCH_SIZES[device.type] // (1 if size <= 50 else 2)
    errors = check(policy, size, device, options.engine)
    if device.type == "cuda":
        compile_parts(policy)
    times, level = training(policy, paradigm, size, batch, refiner, options)
    seconds = times.median_s
    work = step_operations(model, size, batch)
    return {
        "model": model,
        "paradigm": paradigm,
        "num_customers": size,
        "batch_size": batch,
        "engine": level,
        **errors,
        "step_ms": 1e3 * seconds,
        **{f"{phase}_ms": 1e3 * value for phase, value in times.phases_s.items()},
        "instances_per_second": batch / seconds,
        "epoch_seconds": seconds * EPOCH_INSTANCES / batch,
        "memory_gb": times.memory_gb,
        "share_of_peak": work / seconds / peak,
        "inference_seconds": inference(policy, size, device, options),
        "card": device_name(device),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def brief(row: dict[str, Any]) -> str:
    """One line for the impatient."""
    verdict = "right" if row["correct"] else "WRONG"
    return (
        f"{row['model']} {row['paradigm']} n={row['num_customers']} {row['engine']}: {verdict}, "
        f"step {row['step_ms']:.1f} ms, epoch {row['epoch_seconds']:.1f} s, inference {row['inference_seconds']:.3f} s"
    )


def check(policy: Policy, size: int, device: torch.device, level: str) -> dict[str, Any]:
    """The engine's tours judged by the exact checker, its likelihoods and gradients by level parallel in float32."""
    policy.eval()  # without the routing noise of mixtures, which no two rollouts share
    instances = generate_batch(size, 16, torch.Generator(device).manual_seed(1), device)
    half = trains_in_bfloat16(device)
    with bfloat16_products(device, half):
        embeddings = policy.encode(instances).embeddings.detach()
    engine = make_engine(policy, instances.num_nodes, level)
    probe = Probe(engine, policy, Environment(instances), embeddings, bfloat16=half)
    result = probe.run()
    agreement = compare_with_parallel(probe, result)
    policy.zero_grad()
    problems = [problem for index in range(16) for problem in tour_problems(instances, result.tours.actions, index)]
    return {
        "correct": not problems and agreement.problem is None,
        "infeasible_tours": len(problems),
        "largest_cost_difference": agreement.cost_difference,
        **{f"{key}_error": value for key, value in asdict(agreement.errors).items()},
        **{f"{key}_error_of_parallel": value for key, value in asdict(agreement.unavoidable).items()},
    }


def tour_problems(instances: Instances[Tensor], actions: Tensor, index: int) -> list[str]:
    """What the exact checker has to say against the tours of one instance."""
    arrays = to_arrays(instances)
    reports = [check_tour(arrays, index, flat_actions(tour, 1), POLICY_TOLERANCE) for tour in actions[index].tolist()]
    return [report.first_problem for report in reports if report.first_problem is not None]


def training(
    policy: Policy, paradigm: str, size: int, batch: int, refiner: Refiner, options: argparse.Namespace
) -> tuple[StepTimes, str]:
    """Times of steps and the level of the engine."""
    device = next(policy.parameters()).device
    config = TrainConfig(
        paradigm=paradigm, num_customers=size, batch_size=batch, refinement_start_epoch=0, refiner=options.refiner
    )
    policy.train()
    optimizer = make_optimizer(config, policy, device)
    step = TrainingStep(policy, optimizer, config, trains_in_bfloat16(device), refiner, engine=options.engine)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for number in range(WARM_UP_STEPS):
        step.run(0, 1, number, batch)
    step.resize_buffers()
    for number in range(WARM_UP_STEPS):
        step.run(0, 2, number, batch)
    step.run(0, 2, WARM_UP_STEPS, EPOCH_INSTANCES % batch or batch)  # the odd batch that ends an epoch
    return timed_steps(step, 3, batch, options.steps), step.level


def inference(policy: Policy, size: int, device: torch.device, options: argparse.Namespace) -> float:
    """Seconds of greedy multi-start under the eight symmetries, the least of three runs after one untimed."""
    policy.eval()
    instances = generate_batch(size, options.instances, torch.Generator(device).manual_seed(4), device)
    solver = GreedySolver(policy, Decoding(engine=options.engine), has_bfloat16(device))
    seconds = []
    for _ in range(4 if device.type == "cuda" else 1):
        start_s = time.perf_counter()
        solver.solve(instances)
        seconds.append(time.perf_counter() - start_s)
    return min(seconds[1:] or seconds)


def step_operations(model: str, size: int, batch: int) -> float:
    """Floating-point operations of a step: encoder once with gradients, decoder for rollout and with gradients."""
    backbone, _, encoder = model.partition("-")
    counts = multiply_adds(build_policy(ModelConfig(backbone=backbone, encoder=encoder, num_customers=size)), size)
    return 2.0 * batch * (3 * counts["encoder"] + 4 * counts["decoder"])


def print_rival(folder: Path, command: str) -> None:
    """Run somebody else's command and print its wall time."""
    start_s = time.perf_counter()
    done = subprocess.run(shlex.split(command), cwd=folder, check=False)
    print(f"{folder}: {command!r} took {time.perf_counter() - start_s:.1f} s, exit status {done.returncode}")


if __name__ == "__main__":
    sys.exit(main())
