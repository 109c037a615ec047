"""The paper's grids of training paradigms and encoders, trained at scale ``laptop``, beside what the paper claims.

    snakemake --cores 2 --config scale=laptop results/laptop/figures/{training_paradigms,encoder_settings}.png
    python benchmarks/grids.py --results results/laptop

keeps the tables and figures that are there and the histories of their trainings in ``benchmarks/grids/``; without
``--results`` what is kept there is printed: mean gaps, and on how many variants each column of a backbone is the best.
"""

import argparse
import shutil
from pathlib import Path

import pandas as pd

from polarvrp.catalog.experiments import EXPERIMENTS, grid_of
from polarvrp.study.layout import Layout
from polarvrp.tables.claims import POLAR_WINS, wins
from polarvrp.tables.grids import axis_labels
from polarvrp.tables.paper import IN_DISTRIBUTION_ORDER

KEPT = Path(__file__).with_name("grids")
GRIDS = ("training_paradigms", "encoder_settings")


def main() -> None:
    """Keep what a study made and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--results", type=Path, help="folder of results to keep tables, figures and histories of")
    options = parser.parse_args()
    if options.results:
        keep(Layout(options.results))
    for name in GRIDS:
        if (path := KEPT / f"{name}.parquet").exists():
            table = pd.read_parquet(path)
            print(f"\n{EXPERIMENTS[name].title}, n = {table['num_customers'].iloc[0]}")
            print(standings(table, name).to_string())
    print("\nTrainings")
    print(trainings(pd.read_parquet(KEPT / "histories.parquet")).to_string())


def keep(layout: Layout) -> None:
    """Copy tables and figures, gather the histories of all trainings of the folder."""
    KEPT.mkdir(exist_ok=True)
    for name in GRIDS:
        if layout.table(name, "parquet").exists():
            shutil.copyfile(layout.table(name, "parquet"), KEPT / f"{name}.parquet")
            shutil.copyfile(layout.figure(name, "png"), KEPT / f"{name}.png")
    paths = sorted(layout.model("*").parent.glob("*/history.parquet"))
    histories = [pd.read_parquet(path).assign(run=path.parent.name) for path in paths]
    pd.concat(histories, ignore_index=True).to_parquet(KEPT / "histories.parquet", index=False)


def standings(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Mean gap in percent and wins of 16 variants, a row a backbone with all columns, a column a value of the axis."""
    grid = grid_of(EXPERIMENTS[name])
    columns = [value for value in axis_labels(grid) if value in set(table[grid.axis])]
    rows = {}
    for backbone in POLAR_WINS:
        own = table[table["backbone"] == backbone]
        if set(own[grid.axis]) == set(columns):
            gaps = own.pivot_table(index="variant", columns=grid.axis, values="gap_percent").reindex(columns=columns)
            won = {f"{value} best": int(wins(value, len(IN_DISTRIBUTION_ORDER), gaps)) for value in columns}
            paper = {"polar best in the paper": POLAR_WINS[backbone]} if grid.axis == "paradigm" else {}
            rows[backbone] = gaps.mean().round(2).to_dict() | won | paper
    return pd.DataFrame(rows).T


def trainings(histories: pd.DataFrame) -> pd.DataFrame:
    """Validation gap after the last epoch, seconds of steps, and those of an epoch with refinement over one without."""
    rows = histories.sort_values("epoch")
    runs, refined = rows.groupby("run"), rows["refined_tours"] > 0
    means = [rows[kept].groupby("run")["seconds"].mean() for kept in (refined, ~refined)]
    return pd.DataFrame(
        {
            "validation_gap_percent": runs["validation_gap_percent"].last().round(2),
            "seconds": runs["seconds"].sum().round(),
            "refined_over_plain": (means[0] / means[1]).round(2),
        }
    )


if __name__ == "__main__":
    main()
