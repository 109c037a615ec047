"""Which way of training gets furthest in a given time? Validation gaps against seconds and against instances.

    python benchmarks/training.py --seconds 600 --seeds 0 1 2 --output results/benchmarks/training

Trains a network, polarnet-ple unless another is named, from scratch by each form for the same seconds of training,
validation apart: preference optimisation (``po``), POLAR that refines from the first epoch (``polar``) or from the
middle on (``polar-after-po``), POLAR whose refined tours take over by degrees (``polar-ramp``, and sooner
``polar-ramp-0.15``), preference optimisation whose decoder is turned on within the first epoch
(``po-short-decoder-ramp``), and from few or all starts (``po-starts-4`` and so on). An epoch is a point of the
curves. Adds them to ``--rows``, draws all that stand there into a picture beside it and prints the table. What was
trained already is not trained again; run it on a quiet machine.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from minutes import make_sets

from polarvrp.config.architectures import ramps_decoder
from polarvrp.config.model import ModelConfig
from polarvrp.machine import device_name
from polarvrp.study.specs import fingerprint
from polarvrp.training.trainer import TrainJob, train

FORMS: dict[str, dict[str, Any]] = {
    "po": {"paradigm": "po"},
    "po-short-decoder-ramp": {"paradigm": "po", "decoder_ramp_epochs": 1},
    "polar": {"paradigm": "polar", "refinement_start_epoch": 0},
    "polar-after-po": {"paradigm": "polar"},
    "polar-ramp": {"paradigm": "polar", "refinement_start_epoch": 0, "refinement_ramp": 0.05},
    "polar-ramp-0.15": {"paradigm": "polar", "refinement_start_epoch": 0, "refinement_ramp": 0.15},
    "po-starts-4": {"paradigm": "po", "starts": 4},
    "po-starts-16": {"paradigm": "po", "starts": 16},
    "po-starts-all": {"paradigm": "po", "starts": "all"},
}
"""What each form changes of the common recipe."""

LEAST_SECONDS = 60.0
"""Of a call: the references of the validation take a few of them before the first step."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Train by every form and seed, add their histories to the rows, print and draw all of them."""
    options = parse(arguments)
    rows = options.rows or options.output / "history.parquet"
    if not options.print:
        os.environ.setdefault("WANDB_MODE", "disabled")
        torch.set_num_threads(options.threads)
        validation = make_sets(options.output, "validation", options.num_customers, options.instances, 4321)
        for seed in options.seeds:
            for form in options.forms:
                keep(rows, history(form, seed, validation, options))
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        print(device_name(device), torch.__version__, f"{options.threads} threads")
    table = pd.read_parquet(rows)
    print(standings(table, options.seconds).to_string(index=False))
    draw(table, rows.with_suffix(".png"))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=600.0, help="seconds of training, validation apart")
    parser.add_argument("--backbone", default="polarnet")
    parser.add_argument("--encoder", default="ple")
    parser.add_argument("--num-customers", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--starts", type=int, default=8, help="of the forms that name none")
    parser.add_argument("--instances-per-epoch", type=int, default=1024)
    parser.add_argument("--decoder-ramp", type=int, default=6, help="epochs, of the forms that name none")
    parser.add_argument("--middle", type=int, default=7, help="epochs before polar-after-po refines")
    parser.add_argument("--instances", type=int, default=16, help="validation instances of each variant")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks/training"), help="states of trainings")
    parser.add_argument("--rows", type=Path, help="all epochs, beside a picture; default: history.parquet of --output")
    parser.add_argument("--print", action="store_true", help="train nothing")
    return parser.parse_args(arguments)


def specification(form: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """A training that ends by its time, not by its epochs, at a constant learning rate."""
    common = {
        "num_customers": options.num_customers,
        "batch_size": options.batch_size,
        "starts": options.starts,
        "epochs": 10_000,
        "instances_per_epoch": options.instances_per_epoch,
        "milestones": [],
        "refinement_start_epoch": options.middle,
        "validation_instances": options.instances,
        "seed": seed,
    }
    model = {"backbone": options.backbone, "encoder": options.encoder, "num_customers": options.num_customers}
    if ramps_decoder(ModelConfig.from_mapping(model, "model")):
        common["decoder_ramp_epochs"] = options.decoder_ramp
    return {"code": 0, "model": model, "training": common | FORMS[form]}


def history(form: str, seed: int, validation: list[Path], options: argparse.Namespace) -> pd.DataFrame:
    """Rows of one training's epochs within its seconds."""
    folder, spec = options.output / f"{form}-s{seed}", specification(form, seed, options)
    while (rows := _rows(folder / fingerprint(spec))) is None or rows["seconds"].sum() < options.seconds:
        left = options.seconds - (0.0 if rows is None else float(rows["seconds"].sum()))
        job = TrainJob(
            f"{options.backbone}-{options.encoder}-{spec['training']['paradigm']}-n{options.num_customers}-s{seed}",
            spec,
            folder,
            validation,
            folder / "weights.safetensors",
            tracking=folder,
            workers=options.threads,
            max_seconds=max(1.05 * left, LEAST_SECONDS),
        )
        train(job)
    rows = rows.assign(form=form, seed=seed, trained_s=rows["seconds"].cumsum())
    rows["instances"] = (rows["seconds"] * rows["instances_per_second"]).cumsum()
    return rows


def keep(path: Path, rows: pd.DataFrame) -> None:
    """Add a training's epochs to those of others, in the order of forms; what there was of its own goes."""
    table = rows
    if path.exists():
        others = pd.read_parquet(path)
        own = (others["form"] == rows["form"].iloc[0]) & (others["seed"] == rows["seed"].iloc[0])
        table = pd.concat([others[~own], rows], ignore_index=True)
    places = table["form"].map(list(FORMS).index)
    table = table.assign(place=places).sort_values(["place", "seed", "epoch"]).drop(columns="place")
    table.to_parquet(path, index=False)


def _rows(state: Path) -> pd.DataFrame | None:
    """History of a training with that state, None before its first epoch."""
    path = state / "history.jsonl"
    return pd.read_json(path, lines=True) if path.exists() else None


def standings(table: pd.DataFrame, seconds: float) -> pd.DataFrame:
    """Validation gap in percent at a third, two thirds and the end of the time, between means of two epochs each.

    Means over seeds, and the values of the seeds at the end.
    """
    moments = {f"{share * seconds:.0f} s": share * seconds for share in (1 / 3, 2 / 3, 1.0)}
    rows = []
    for (form, _), own in table.groupby(["form", "seed"], sort=False):
        gaps = own["validation_gap_percent"].rolling(2, min_periods=1).mean()
        at = {name: np.interp(moment, own["trained_s"], gaps) for name, moment in moments.items()}
        rows.append({"form": form, **at, "instances": np.interp(seconds, own["trained_s"], own["instances"])})
    every = pd.DataFrame(rows)
    means = every.groupby("form", sort=False).mean().round(dict.fromkeys(moments, 1) | {"instances": -2})
    seeds = every.groupby("form", sort=False)[list(moments)[-1]].agg(
        lambda gaps: ", ".join(f"{gap:.1f}" for gap in gaps)
    )
    return means.assign(seeds=seeds).reset_index()


def draw(table: pd.DataFrame, path: Path) -> None:
    """Curves of all forms: as a line the mean over seeds, as far as all of them came, each seed as a faint one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    columns = {"trained_s": "seconds of training", "instances": "instances"}
    for axes, column in zip(figure.subplots(1, 2, sharey=True), columns, strict=True):
        for number, (form, own) in enumerate(table.groupby("form", sort=False)):
            for _, one in own.groupby("seed"):
                axes.plot(one[column], one["validation_gap_percent"], color=f"C{number}", alpha=0.25, linewidth=0.8)
            epochs = own[own["epoch"] <= own.groupby("seed")["epoch"].max().min()].groupby("epoch")
            mean = epochs[[column, "validation_gap_percent"]].mean().rolling(3, min_periods=1).mean()
            axes.plot(mean[column], mean["validation_gap_percent"], color=f"C{number}", label=form)
        axes.set_xlabel(columns[column])
        axes.set_ylim(0, 40)
        axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.supylabel("gap to nearest neighbour and local search, %")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
