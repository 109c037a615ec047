"""Long table of the size of every network: parameters and multiply-adds."""

import pandas as pd

from polarvrp.catalog.backbones import BACKBONES, grid_backbones
from polarvrp.catalog.encoders import ENCODERS
from polarvrp.catalog.experiments import Experiment
from polarvrp.catalog.methods import method_of
from polarvrp.tables.comparison import LINE
from polarvrp.tables.formats import count, number
from polarvrp.tables.paper import PAPER_SIZES, read_paper
from polarvrp.tables.printing import Axis, PrintedTable, captioned, measures, print_table, written
from polarvrp.tables.sources import Results, read_frame

NETWORK = ["backbone", "encoder"]
"""Key columns of a network."""

PAPER_RATIO = 3.79
"""Parameters of the paper's network with PLE by those with the shared encoder, as its text has it."""


def architectures(results: Results, experiment: Experiment) -> pd.DataFrame:
    """Parameters and multiply-adds of every backbone with each encoder at each size."""
    columns = [*experiment.keys, *(name for name in experiment.values if name != "multiply_adds")]
    frame = read_frame(results.layout.architectures, columns)
    return frame.assign(multiply_adds=frame["encoder_multiply_adds"] + frame["decoder_multiply_adds"])


def render_architectures(frame: pd.DataFrame, experiment: Experiment) -> list[PrintedTable]:
    """A row a network: its parameters, then millions of multiply-adds of encoder and decoder, both at each size.

    One backbone is another network beyond 50 customers.
    """
    networks = list(frame[NETWORK].drop_duplicates().itertuples(index=False, name=None))
    sizes = sorted(frame["num_customers"].unique())
    parts = {"Encoder": "encoder_multiply_adds", "Decoder": "decoder_multiply_adds", "Total": "multiply_adds"}
    millions = frame.assign(**{column: frame[column] / 1e6 for column in parts.values()})
    cells = [written(millions, label, column, number("{:,.1f}")) for label, column in parts.items()]
    columns = {(size, "Parameters"): ("Parameters", f"n={size}") for size in sizes} | {
        (size, label): (f"n={size}, million multiply-adds", label) for size in sizes for label in measures(cells)
    }
    return [
        print_table(
            captioned(frame, experiment, ""),
            [written(frame, "Parameters", "parameters", count), *cells],
            ("Backbone", "Encoder"),
            Axis(NETWORK, {network: network_label(*network) for network in networks}),
            Axis(("num_customers", "measure"), columns),
        )
    ]


def network_label(backbone: str, encoder: str) -> tuple[str, str]:
    """Backbone and encoder as tables and figures print them; the forms of the grids are told from the authors'."""
    grids = " (grids)" if backbone in grid_backbones() and method_of(backbone) is None else ""
    return f"{BACKBONES[backbone].label}{grids}", ENCODERS[encoder].label


def compare_architectures(ours: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Parameters of the paper's network with either encoder, and their ratio."""
    paper = read_paper("training_cost").drop_duplicates("parameters").set_index("method")["parameters"]
    mine = ours[(ours["backbone"] == "polarnet") & (ours["num_customers"] == min(PAPER_SIZES))]
    counts = mine.set_index("encoder")["parameters"].astype("float64").reindex(["ple", "shared"])
    sides = {
        "paper": (paper["POLAR+PLE"], paper["POLAR"], PAPER_RATIO),
        "ours": (*counts, counts["ple"] / counts["shared"]),
    }
    rows = {"row": ("polarnet ple", "polarnet shared", "polarnet ple / shared"), "column": "parameters"}
    return pd.DataFrame({**rows, **sides})[LINE]
