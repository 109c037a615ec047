"""Long table of costs on CVRPLIB's Set-X, and how it is printed."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from polarvrp.catalog.experiments import Experiment
from polarvrp.errors import DataError
from polarvrp.evaluation.gaps import instance_gaps_percent
from polarvrp.tables.external import external_set_x
from polarvrp.tables.formats import number
from polarvrp.tables.labels import instance_rank, labels_of, method_label, method_rank, seeds_of, stem_of
from polarvrp.tables.means import SPREAD, average_over, over_seeds
from polarvrp.tables.paper import SET_X_GROUPS, set_x_group
from polarvrp.tables.printing import Axis, PrintedTable, captioned, print_table, seeds_said, written
from polarvrp.tables.shipped_rows import shipped_set_x
from polarvrp.tables.sources import Results

ALL = "average"
"""Name of the average over all instances, beside those of ``SET_X_GROUPS``."""


def set_x(results: Results, experiment: Experiment) -> pd.DataFrame:
    """Cost and gap of every run and every external method on each Set-X instance, and of shipped models on the same.

    Raises:
        DataError: If runs that differ only in size would share a row.
    """
    frames: list[pd.DataFrame] = []
    sizes: dict[str, int] = {}
    for run in results.set_x_runs():
        size = sizes.setdefault(run.method, run.num_customers)
        if size != run.num_customers:
            raise DataError(
                f"{run.method} has Set-X costs of its sizes {size} and {run.num_customers}; choose one with --runs"
            )
        costs = results.of_model(run, results.layout.set_x(run.name), ("instance", "best_known", "cost"))
        costs = costs.reindex(columns=["instance", "best_known", "cost", "published_cost", "seconds"])
        frames.append(costs.assign(method=run.method, trained_on=size, runs=run.name))
    frames += external_set_x(results)
    if not frames:
        return pd.DataFrame()
    frames += shipped_set_x({name for frame in frames for name in frame["instance"]})
    frame = pd.concat(frames, ignore_index=True)
    for column, cost in (("gap_percent", "cost"), ("published_gap_percent", "published_cost")):
        frame[column] = instance_gaps_percent(frame[cost].to_numpy(), frame["best_known"].to_numpy())
    labels = results.method_labels
    ranks = frame["instance"].map(instance_rank), frame["method"].map(lambda name: method_rank(name, labels))
    order = sorted(frame.index, key=lambda row: (ranks[0][row], ranks[1][row]))
    return frame.loc[order].reset_index(drop=True)


def instance_groups(instances: list[str]) -> dict[str, list[str]]:
    """Members of each size group of the paper, then of all; groups without any are left out."""
    groups = {name: [member for member in instances if set_x_group(member) == name] for name in SET_X_GROUPS}
    return {name: members for name, members in (groups | {ALL: instances}).items() if members}


def mean_gaps(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Mean gaps of each size group of the paper and of all instances.

    Args:
        rows: As ``evaluation.set_x.evaluate_set_x`` makes them.

    Returns:
        Columns ``gap_percent`` and ``published_gap_percent``, float64, by the group's name and number of instances.
    """
    frame = pd.DataFrame(rows).set_index("instance")[["gap_percent", "published_gap_percent"]]
    groups = instance_groups(list(frame.index))
    means = {f"{group} ({len(members)})": frame.loc[members].mean() for group, members in groups.items()}
    return pd.DataFrame(means).T


def render_set_x(frame: pd.DataFrame, experiment: Experiment) -> list[PrintedTable]:
    """A row an instance, cost and gap of each method; averages of the paper's size groups and of all last."""
    labels = labels_of(frame)
    methods = sorted(set(frame["method"].map(stem_of)), key=lambda method: method_rank(method, labels))
    instances = sorted(frame["instance"].unique(), key=instance_rank)
    averages = {f"{name.capitalize()} ({len(names)})": names for name, names in instance_groups(instances).items()}
    means = [
        average_over(frame, "instance", names, ["method"], "gap_percent").reset_index().assign(instance=row)
        for row, names in averages.items()
    ]
    long = pd.concat([frame, *means])
    long = over_seeds(long.assign(method=long["method"].map(stem_of)), ["instance", "method"], ["cost", "gap_percent"])
    costs = long[long["instance"].isin(instances)].drop(columns=f"cost{SPREAD}")
    known = frame.drop_duplicates("instance").assign(method="")
    columns = {(m, measure): (method_label(m, labels), measure) for m in methods for measure in ("Cost", "Gap")}
    facts = (
        "Gap is 100·(cost − best known)/best known; averages are plain means, their numbers of instances in brackets."
        + seeds_said(seeds_of(frame["method"]))
    )
    return [
        print_table(
            captioned(frame, experiment, f" ({len(instances)} instances)", facts),
            [
                written(known, "Best known", "best_known", number("{:.0f}")),
                written(costs, "Cost", "cost", number("{:.0f}"), ("instance",)),
                written(long, "Gap", "gap_percent", number("{:.3f}%"), ("instance",)),
            ],
            ("Instance",),
            Axis.of("instance", (*instances, *averages)),
            Axis(("method", "measure"), {("", "Best known"): ("", "Best known"), **columns}),
            summary=len(averages),
        )
    ]
