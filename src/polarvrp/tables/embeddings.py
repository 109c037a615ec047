"""Long table of the separation of variants in encoder embeddings, beside the pictures of their t-SNE maps."""

import numpy as np
import pandas as pd

from polarvrp.analysis.separation import cosine_separation
from polarvrp.catalog.backbones import BACKBONES, grid_backbones
from polarvrp.catalog.encoders import ENCODERS
from polarvrp.catalog.experiments import Experiment
from polarvrp.study.runs import RunSpec
from polarvrp.tables.ablations import small_runs
from polarvrp.tables.formats import number
from polarvrp.tables.means import over_seeds
from polarvrp.tables.printing import Axis, PrintedTable, captioned, print_table, seeds_said, written
from polarvrp.tables.sources import Results

EMBEDDINGS = "embeddings"
"""Name of the analysis, and of the table."""

MEASURES = {"cosine_within": "Within", "cosine_between": "Between", "cosine_separation": "Separation"}
"""Columns of cosines as tables print them."""


def embeddings(results: Results, experiment: Experiment) -> pd.DataFrame:
    """Mean cosines within and between variants for every backbone and encoder of the grid, a row a seed."""
    rows = []
    for run in embedding_runs(results, experiment):
        points = embeddings_of(results, run)
        separation = cosine_separation(np.stack(points["embedding"].to_list()), points["variant"].to_list())
        cosines = (separation.within, separation.between, separation.difference)
        row = {"backbone": run.backbone, "encoder": run.encoder, "seed": run.seed, "points": len(points)}
        row |= dict(zip(MEASURES, cosines, strict=True))
        rows.append(row | {"num_customers": run.num_customers, "runs": run.name})
    return pd.DataFrame(rows)


def embedding_runs(results: Results, experiment: Experiment) -> list[RunSpec]:
    """Analysed runs of the grid, backbones and encoders in the catalog's order."""
    runs = small_runs(results.analysed_runs(EMBEDDINGS), experiment)
    backbones, encoders = list(grid_backbones()), list(ENCODERS)
    return sorted(runs, key=lambda run: (backbones.index(run.backbone), encoders.index(run.encoder), run.seed))


def embeddings_of(results: Results, run: RunSpec) -> pd.DataFrame:
    """Points of a run, as ``analysis.embeddings`` mapped them."""
    path = results.layout.analysis(run.name, EMBEDDINGS)
    return results.of_model(run, path, ("variant", "x", "y", "embedding"))


def render_embeddings(frame: pd.DataFrame, experiment: Experiment) -> list[PrintedTable]:
    """A row a backbone, the cosines of each encoder; the widest separation of a backbone is emphasised."""
    means, three = over_seeds(frame, ["backbone", "encoder"], list(MEASURES)), number("{:.3f}")
    cells = [written(means, label, column, three) for column, label in MEASURES.items()]
    widest = means.groupby("backbone")["cosine_separation"].transform("max").map(three)
    cells[-1]["best"] = means["cosine_separation"].map(three) == widest
    encoders = [name for name in ENCODERS if name in set(frame["encoder"])]
    details = f", n={frame['num_customers'].iloc[0]} ({frame['points'].iloc[0]:,} points each)"
    return [
        print_table(
            captioned(frame, experiment, details, seeds_said(frame["seed"])),
            cells,
            ("Backbone",),
            Axis(("backbone",), {name: (BACKBONES[name].label,) for name in frame["backbone"].unique()}),
            Axis(
                ("encoder", "measure"),
                {(name, label): (ENCODERS[name].label, label) for name in encoders for label in MEASURES.values()},
            ),
        )
    ]
