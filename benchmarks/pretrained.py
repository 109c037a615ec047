"""How the models that ship got there: validation gaps against instances seen, one training after the other.

    python benchmarks/pretrained.py --output docs/pretrained.png

Each training goes on from the weights of the one before it. The histories of the two that ship lie beside their
weights, that of the first one at n = 50 in ``benchmarks/pretrained.parquet``; that of the very first, 110,000 instances
at n = 20, was not kept. Prints a row for each training.
"""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from polarvrp.study.shipped import SHIPPED

BEFORE = 110_000
"""Instances of the very first training."""

TRAININGS = {
    "polarnet-ple-polar-n20-s1, ships": SHIPPED / "pretrained-n20" / "history.parquet",
    "polarnet-ple-polar-n50-s0": Path(__file__).with_name("pretrained.parquet"),
    "polarnet-ple-polar-n50-s1, ships": SHIPPED / "pretrained-n50" / "history.parquet",
}
"""Histories, in their order."""


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
    """Epochs of all trainings, with ``instances`` since the very first one and ``trained_s`` of their own steps."""
    tables, seen = [], float(BEFORE)
    for training, path in TRAININGS.items():
        rows = pd.read_parquet(path).sort_values("epoch")
        instances = seen + (rows["seconds"] * rows["instances_per_second"]).cumsum()
        tables.append(rows.assign(training=training, instances=instances, trained_s=rows["seconds"].cumsum()))
        seen = float(instances.iloc[-1])
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
