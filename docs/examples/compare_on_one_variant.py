"""A model against PyVRP on one variant: costs and gaps of a set, and the routes of one instance as a picture.

    python docs/examples/compare_on_one_variant.py --output comparison.png
    python docs/examples/compare_on_one_variant.py --variant VRPBLTW --model polarnet-ple-polar-n50-s0

Without ``--model`` a small network is trained first, for about half a minute on one core: enough to see it learn, not
enough to compete. Nothing printed here is a result.
"""

import argparse
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a picture in a file, no window

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

import polarvrp
from polarvrp.problem.sets import write_set
from polarvrp.training.trainer import TrainJob, train

RUN = "polarnet-shared-po-n20-s0"
SPEC: dict[str, Any] = {
    "code": 0,
    "model": {
        "backbone": "polarnet",
        "encoder": "shared",
        "num_customers": 20,
        "width": 64,
        "heads": 4,
        "layers": 3,
        "feedforward_width": 128,
    },
    "training": {
        "paradigm": "po",
        "num_customers": 20,
        "instances_per_epoch": 640,
        "batch_size": 16,
        "learning_rate": 0.001,
        "milestones": [4],
        "precision": "float32",
        "validation_instances": 8,
    },
}
COLORS = plt.get_cmap("tab10").colors  # type: ignore[attr-defined]


def main() -> None:
    """Generate, solve twice, compare, draw."""
    parser = argparse.ArgumentParser(description="A model against PyVRP on one variant.")
    parser.add_argument("--variant", default="OVRPTW")
    parser.add_argument("--num-customers", type=int, default=20)
    parser.add_argument("--instances", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=0.5, help="PyVRP's time for each instance")
    parser.add_argument("--model", help="a run, a path or a shipped model (default: train a small one)")
    parser.add_argument("--epochs", type=int, default=4, help="of that training")
    parser.add_argument("--output", type=Path, default=Path("comparison.png"))
    options = parser.parse_args()

    instances = polarvrp.generate(options.variant, options.num_customers, options.instances)
    model = polarvrp.load_model(options.model) if options.model else train_small(options.variant, options.epochs)
    ours = polarvrp.solve(instances, model)
    reference = polarvrp.solve(instances, seconds=options.seconds)

    checks = [polarvrp.check(instances, solutions) for solutions in (ours, reference)]
    for name, report, solutions in zip((model.run, "PyVRP"), checks, (ours, reference), strict=True):
        print(f"{name}: {report.summary}, {np.mean([s.seconds for s in solutions]):.3f} s an instance")
    gaps_percent = 100 * (checks[0].costs - checks[1].costs) / checks[1].costs
    print(
        f"gap to PyVRP: mean {gaps_percent.mean():.1f} %, from {gaps_percent.min():.1f} to {gaps_percent.max():.1f} %"
    )

    # The instance with the median gap is neither the kindest nor the worst choice.
    index = int(np.argsort(gaps_percent)[len(gaps_percent) // 2])
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 5.5), layout="constrained")
    figure.suptitle(f"{options.variant}, {options.num_customers} customers, instance {index}")
    draw_routes(left, instances, index, ours[index])
    draw_routes(middle, instances, index, reference[index])
    draw_gaps(right, gaps_percent, index)
    figure.savefig(options.output, dpi=100)
    print(f"routes of instance {index} are in {options.output}")


def train_small(variant: str, epochs: int) -> polarvrp.Model:
    """A small network after a short training on the 16 training variants."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # a line an epoch
    os.environ.setdefault("WANDB_MODE", "disabled")
    spec = SPEC | {"training": SPEC["training"] | {"epochs": epochs}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_set(folder / "validation.npz", variant, 20, 8, seed=4321)
        weights = folder / "weights.safetensors"
        train(TrainJob(RUN, spec, folder / "state", [folder / "validation.npz"], weights, tracking=folder))
        return polarvrp.load_model(weights)


def draw_routes(axes: Axes, instances: polarvrp.Instances[Any], index: int, solution: polarvrp.Solution) -> None:
    """One line a route; ways from and to the depot are dashed."""
    locs, is_open = instances.locs[index], bool(instances.open_route[index])
    for number, route in enumerate(solution.routes):
        color = COLORS[number % len(COLORS)]
        ends = [(route.depot, route.customers[0])] + ([] if is_open else [(route.customers[-1], route.depot)])
        for leg in ends:
            axes.plot(*locs[list(leg)].T, color=color, linewidth=1, linestyle="--")
        axes.plot(*locs[list(route.customers)].T, color=color, marker="o", markersize=5)
    axes.plot(*locs[: instances.num_depots].T, color="black", marker="s", markersize=9, linestyle="none")
    cost = "no solution" if solution.cost is None else f"cost {solution.cost:.3f}, {len(solution.routes)} routes"
    axes.set(title=f"{solution.method}: {cost}", aspect="equal", xticks=[], yticks=[])


def draw_gaps(axes: Axes, gaps_percent: np.ndarray, index: int) -> None:
    """Gap of each instance, that of the drawn one in another color."""
    colors = [COLORS[1] if number == index else COLORS[0] for number in range(len(gaps_percent))]
    axes.bar(range(len(gaps_percent)), gaps_percent, color=colors)
    axes.axhline(gaps_percent.mean(), color="black", linewidth=1, linestyle=":", label="mean")
    axes.set(title="gap to PyVRP by instance (the drawn one in orange)", xlabel="instance", ylabel="gap in %")
    axes.legend()


if __name__ == "__main__":
    main()
