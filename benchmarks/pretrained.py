"""How the models that ship got there: validation gaps against instances seen, one training after the other.

    python benchmarks/pretrained.py --output docs/pretrained.png

The histories of the two trainings that ship lie beside their weights, those of two that shipped before in
``benchmarks/pretrained.parquet``; that of the very first, 110,000 instances at n = 20, was not kept. Prints a row for
each training.
"""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from polarvrp.study.shipped import SHIPPED

GOES_ON_FROM = {
    "polarnet-ple-polar-n20-s1": "polarnet-ple-polar-n20-s0",
    "polarnet-ple-polar-n20-s2": "polarnet-ple-polar-n20-s1",
    "polarnet-ple-polar-n50-s0": "polarnet-ple-polar-n20-s1",
    "polarnet-ple-polar-n50-s1": "polarnet-ple-polar-n50-s0",
}
"""Whose weights each training began with."""

INSTANCES_OF_THE_FIRST = {"polarnet-ple-polar-n20-s0": 110_000.0}
EARLIER = Path(__file__).with_name("pretrained.parquet")
SHIP = {"polarnet-ple-polar-n20-s2": "pretrained-n20", "polarnet-ple-polar-n50-s1": "pretrained-n50"}
"""Models that ship, by the training that they come from."""


def main() -> None:
    """Print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks/pretrained.png"))
    options = parser.parse_args()
    table = histories()
    kept = ["instances", "trained_s", "validation_gap_percent"]
    print(table.groupby("training", sort=False)[kept].last().round(2).to_string())
    options.output.parent.mkdir(parents=True, exist_ok=True)
    draw(table).savefig(options.output, dpi=150)


def histories() -> pd.DataFrame:
    """Epochs of all trainings, with ``instances`` that the weights have seen and ``trained_s`` of their own steps."""
    known = dict(tuple(pd.read_parquet(EARLIER).groupby("training")))
    known |= {training: pd.read_parquet(SHIPPED / model / "history.parquet") for training, model in SHIP.items()}
    tables, seen = [], dict(INSTANCES_OF_THE_FIRST)
    for training, before in GOES_ON_FROM.items():
        rows = known[training]
        instances = seen[before] + (rows["seconds"] * rows["instances_per_second"]).cumsum()
        label = f"{training}, ships" if training in SHIP else training
        tables.append(rows.assign(training=label, instances=instances, trained_s=rows["seconds"].cumsum()))
        seen[training] = float(instances.iloc[-1])
    return pd.concat(tables, ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    """One line for each training, one panel for each size."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    panels = dict(zip(("n20", "n50"), figure.subplots(1, 2), strict=True))
    for number, (training, rows) in enumerate(table.groupby("training", sort=False)):
        size = next(size for size in panels if size in str(training))
        thousands = rows["instances"] / 1000
        panels[size].plot(thousands, rows["validation_gap_percent"], "o-", color=f"C{number}", label=training)
    for size, axes in panels.items():
        axes.set_title(f"n = {size[1:]}", fontsize=9)
        axes.set_ylim(0, None)
        axes.set_xlabel("thousand instances seen")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    figure.supylabel("validation gap, %", fontsize=9)
    return figure


if __name__ == "__main__":
    main()
