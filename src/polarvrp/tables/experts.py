"""Long tables of what PLE's experts do: their contributions by layer, and gate weights by variant."""

import pandas as pd

from polarvrp.catalog.backbones import BACKBONES, grid_backbones
from polarvrp.catalog.experiments import Experiment
from polarvrp.study.runs import RunSpec
from polarvrp.tables.ablations import small_runs
from polarvrp.tables.comparison import compare_columns
from polarvrp.tables.formats import number
from polarvrp.tables.labels import variant_rank
from polarvrp.tables.means import complete_mean, over_seeds
from polarvrp.tables.paper import PAPER_SIZES, read_paper
from polarvrp.tables.printing import Axis, PrintedTable, captioned, print_table, seeds_said, written
from polarvrp.tables.sources import Results

EXPERTS = "expert_contributions"
"""Name of the analysis."""

COLUMNS = ("layer", "variant", "expert", "gate", "weight", "norm", "percent", "instances")


def expert_contributions(results: Results, experiment: Experiment) -> pd.DataFrame:
    """Share of each expert in the norms of the gated terms, mean over the variants, a row a layer and seed."""
    parts = []
    for run in small_runs(results.analysed_runs(EXPERTS), experiment):
        frame = experts_of(results, run)
        means = frame.groupby(["layer", "expert"], sort=False)["percent"].agg(complete_mean).unstack()
        means = means.add_suffix("_percent").reindex(columns=list(experiment.values))
        variants = frame.groupby("layer").agg(variants=("variant", "nunique"))
        counts = frame.drop_duplicates(["layer", "variant"]).groupby("layer")["instances"].sum()
        means = means.assign(variants=variants["variants"], instances=counts, num_customers=run.num_customers)
        parts.append(means.reset_index().assign(seed=run.seed, runs=run.name))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def gate_weights(results: Results, experiment: Experiment) -> pd.DataFrame:
    """Gates, weights and norms of every backbone of the grid, a row a variant, layer, expert and seed."""
    parts = []
    for run in small_runs(results.analysed_runs(EXPERTS), experiment):
        frame = experts_of(results, run).rename(columns={"percent": "contribution_percent"})
        parts.append(frame.assign(backbone=run.backbone, seed=run.seed, num_customers=run.num_customers, runs=run.name))
    if not parts:
        return pd.DataFrame()
    ranks = {name: rank for rank, name in enumerate(grid_backbones())}
    order = {"backbone": ranks.__getitem__, "variant": variant_rank}
    frame = pd.concat(parts, ignore_index=True)
    return frame.sort_values(list(order), key=lambda keys: keys.map(order[str(keys.name)]), kind="stable")


def experts_of(results: Results, run: RunSpec) -> pd.DataFrame:
    """Gates and norms by layer, variant and expert, as ``analysis.experts`` found them."""
    return results.of_model(run, results.layout.analysis(run.name, EXPERTS), COLUMNS)


def render_contributions(frame: pd.DataFrame, experiment: Experiment) -> list[PrintedTable]:
    """A row a layer, a column an expert."""
    shares = {name: expert_label(name.removesuffix("_percent")) for name in experiment.values if "_percent" in name}
    long = frame.melt(["layer", "seed"], list(shares), "expert", "percent").dropna(subset="percent")
    cells = over_seeds(long, ["layer", "expert"], ["percent"])
    counts = f" ({frame['variants'].iloc[0]} variants, {frame['instances'].iloc[0]:,} instances)"
    return [
        print_table(
            captioned(frame, experiment, f", n={frame['num_customers'].iloc[0]}{counts}", seeds_said(frame["seed"])),
            [written(cells, "Share", "percent", number("{:.2f}%"))],
            ("Layer",),
            Axis(("layer",), {layer: (str(layer),) for layer in sorted(frame["layer"].unique())}),
            Axis(("expert",), {name: ("", label) for name, label in shares.items() if name in set(cells["expert"])}),
        )
    ]


def render_gates(frame: pd.DataFrame, experiment: Experiment) -> list[PrintedTable]:
    """One table a backbone: a row a variant, the gate of each expert in each layer."""
    tables = []
    for backbone, here in frame.groupby("backbone", sort=False):
        cells = over_seeds(here, ["variant", "layer", "expert"], ["gate"])
        columns = here[["layer", "expert"]].drop_duplicates().itertuples(index=False, name=None)
        heads = {key: (f"Layer {key[0]}", expert_label(key[1])) for key in columns}
        details = f", {BACKBONES[str(backbone)].label}, n={here['num_customers'].iloc[0]}"
        tables.append(
            print_table(
                captioned(here, experiment, details, seeds_said(here["seed"])),
                [written(cells, "Gate", "gate", number("{:.3f}"))],
                ("Variant",),
                Axis.of("variant", here["variant"].unique()),
                Axis(("layer", "expert"), heads),
            )
        )
    return tables


def expert_label(name: str) -> str:
    """An expert as tables and figures print it: ``task_1`` is Task 1."""
    return name.replace("_", " ").capitalize()


def compare_contributions(ours: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Every number of the paper's table beside ours at its size, mean over the seeds."""
    paper = read_paper(experiment.name)
    shares = [str(column) for column in paper if column != "layer"]
    here = over_seeds(ours[ours["num_customers"] == min(PAPER_SIZES)], ["layer"], shares)
    return compare_columns(paper, here, ["layer"])
