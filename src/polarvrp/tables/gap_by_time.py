"""Gap against time of every method: networks without and with symmetries, solvers at several limits."""

from collections.abc import Iterator
from math import fsum
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from polarvrp.catalog.experiments import Experiment
from polarvrp.catalog.limits import LIMITS, PLAIN
from polarvrp.catalog.methods import SOLVERS
from polarvrp.files import provenance
from polarvrp.problem.symmetries import NUM_SYMMETRIES
from polarvrp.solutions.origin import Origin
from polarvrp.solutions.solutions import read_solutions
from polarvrp.study.runs import RunSpec
from polarvrp.tables.drawing import dot_size, head, legend, looks_of, tidy
from polarvrp.tables.figures import figure_of
from polarvrp.tables.formats import duration, number
from polarvrp.tables.gap_tables import gap_row
from polarvrp.tables.labels import (
    labels_of,
    method_label,
    method_rank,
    references_said,
    seeds_of,
    stem_of,
)
from polarvrp.tables.means import complete_mean, over_seeds
from polarvrp.tables.paper import IN_DISTRIBUTION_ORDER, SOLVER_CORES
from polarvrp.tables.printing import Axis, PrintedTable, captioned, print_table, seeds_said, written
from polarvrp.tables.sources import InstanceSet, Results, read_costs

_KEYS = ["num_customers", "method", "effort"]


def gap_by_time(results: Results, experiment: Experiment) -> pd.DataFrame:
    """Mean gap over the training variants and seconds of 1,000 instances, a row a method and effort.

    All runs are listed where none of the compared methods is at hand. A gap is missing where fewer variants were solved
    than by another method or effort of the size. Seconds of solvers are wall time on as many cores as the paper spreads
    them over.
    """
    evaluated = results.evaluated_runs()
    runs = [run for run in evaluated if stem_of(run.method) in results.method_labels] or evaluated
    rows = [row for run in runs for row in _run_rows(results, run)]
    sizes = sorted({row["num_customers"] for row in rows})
    rows += [row for solver in SOLVERS for size in sizes for row in _solver_rows(results, solver, size)]
    frame = pd.DataFrame(rows)
    if frame.empty:
        return frame
    most = frame.groupby("num_customers")["variants"].transform("max")
    frame["gap_percent"] = frame["gap_percent"].where(frame["variants"] == most)
    order = frame["method"].map(lambda method: method_rank(method, results.method_labels))
    ranked = sorted(frame.index, key=lambda at: (frame["num_customers"][at], order[at], frame["seconds_per_1000"][at]))
    return frame.loc[ranked].reset_index(drop=True)


def render_gap_by_time(frame: pd.DataFrame, experiment: Experiment) -> list[PrintedTable]:
    """A block a method, a row an effort, gap and time of each size."""
    labels = labels_of(frame)
    long = over_seeds(_stems(frame), _KEYS, ["gap_percent"])
    times = over_seeds(_stems(frame), _KEYS, ["seconds_per_1000"])[[*_KEYS, "seconds_per_1000"]]
    without = _stems(frame).groupby(["method", "effort"])["left_out"].sum()
    rows = {
        (method, effort): (method_label(method, labels), _effort(effort, without[method, effort]))
        for method, effort in long[["method", "effort"]].itertuples(index=False, name=None)
    }
    sizes = sorted(long["num_customers"].unique())
    facts = f"Gaps are against {references_said(frame['reference'])}.{seeds_said(seeds_of(frame['method']))}"
    return [
        print_table(
            captioned(frame, experiment, "", facts),
            [
                written(long, "Gap", "gap_percent", number("{:.3f}%")),
                written(times, "Time", "seconds_per_1000", duration),
            ],
            ("Method", "Effort"),
            Axis(("method", "effort"), rows),
            Axis(
                ("num_customers", "measure"), {(n, name): (f"n={n}", name) for n in sizes for name in ("Gap", "Time")}
            ),
        )
    ]


def draw_gap_by_time(results: Results, experiment: Experiment) -> Figure:
    """A panel a size: gap against time on a logarithmic axis, a line a method through its efforts."""
    frame = results.table(experiment.name)
    labels = labels_of(frame)
    points = over_seeds(_stems(frame), _KEYS, ["gap_percent", "seconds_per_1000"])
    look = looks_of(sorted(points["method"].unique(), key=lambda name: method_rank(name, labels)), labels)
    sizes = sorted(points["num_customers"].unique())
    figure = Figure(figsize=(1.0 + 5.2 * len(sizes), 4.6), layout="constrained")
    for axes, size in zip(figure.subplots(1, len(sizes), squeeze=False)[0], sizes, strict=True):
        for name, style in look.items():
            line = points[(points["num_customers"] == size) & (points["method"] == name)]
            line = line.sort_values("seconds_per_1000")
            marks = {"marker": style["marker"], "ms": dot_size(style) ** 0.5}
            axes.plot(line["seconds_per_1000"], line["gap_percent"], color=style["color"], lw=1.2, **marks)
        reference = references_said(frame["reference"][frame["num_customers"] == size])
        axes.set(title=f"n={size}", xscale="log", xlabel="seconds of 1,000 instances", ylabel=f"gap to {reference} (%)")
        tidy(axes, "both")
    head(figure, figure_of(experiment).title, results.scale)
    legend(figure, {method_label(name, labels): style for name, style in look.items()}, line=True)
    return figure


def _effort(effort: str, left_out: int) -> str:
    """What stands in a row: instances without a solution are no part of its mean."""
    return f"{effort}, {left_out} left out" if left_out else effort


def _stems(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(method=frame["method"].map(stem_of))


def _run_rows(results: Results, run: RunSpec) -> Iterator[dict[str, Any]]:
    """Of a network: one image of each instance, and as many symmetric ones as the study solves."""
    layout = results.layout
    for split, default in ((PLAIN, 1), ("test", NUM_SYMMETRIES)):

        def file_of(variant: str, split: str = split) -> Path:
            return layout.evaluation(run.name, variant, run.num_customers, split)

        variants = filter(results.has_variant, IN_DISTRIBUTION_ORDER)
        sets = [InstanceSet(name, run.num_customers) for name in variants if file_of(name).is_file()]
        solved = []
        for test_set in sets:
            origin = Origin(test_set.variant, run.num_customers, "run", run.name)
            model = results.recorded(run, "fingerprint")
            costs = read_costs(file_of(test_set.variant), origin, results.dataset(test_set), model)
            solved.append((costs, gap_row(results, test_set, run.method, costs)))
        if solved:
            images = provenance(read_solutions(file_of(sets[0].variant))).get("augmentations", default)
            yield _row(run.method, run.num_customers, f"×{images}", solved, 1) | {"runs": run.name}


def _solver_rows(results: Results, solver: str, size: int) -> Iterator[dict[str, Any]]:
    """Of a solver: its limit and the parts of it, of which the first instances of each set were solved."""
    for part in LIMITS:
        solved = []
        for name in filter(results.has_variant, IN_DISTRIBUTION_ORDER):
            test_set, path = InstanceSet(name, size), results.layout.limited(solver, part, name, size)
            if path.is_file():
                origin = Origin(name, size, "solver", solver)
                costs = read_costs(path, origin, path.with_suffix(".npz"))  # none is there: the set has more instances
                solved.append((costs, gap_row(results, test_set, solver, costs)))
        if solved:
            yield _row(solver, size, f"{part:g} of its limit", solved, SOLVER_CORES)
    whole = [at for at in results.solved_sets(solver, IN_DISTRIBUTION_ORDER) if at.num_customers == size]
    solved = [(costs := results.solved(solver, at), gap_row(results, at, solver, costs)) for at in whole]
    if solved:
        yield _row(solver, size, "its limit", solved, SOLVER_CORES)


def _row(
    method: str, size: int, effort: str, solved: list[tuple[pd.DataFrame, dict[str, Any]]], cores: int
) -> dict[str, Any]:
    """One row from costs and gap of each set."""
    seconds = fsum(fsum(costs["seconds"].fillna(0)) for costs, _ in solved)
    instances = sum(len(costs) for costs, _ in solved)
    gaps = [float("nan") if row["gap_percent"] is None else row["gap_percent"] for _, row in solved]
    return {
        "method": method,
        "num_customers": size,
        "effort": effort,
        "gap_percent": complete_mean(gaps),
        "seconds_per_1000": 1000 * seconds / instances / cores,
        "instances": instances,
        "left_out": sum(int(costs["cost"].isna().sum()) for costs, _ in solved),
        "variants": len(solved),
        "reference": solved[0][1]["reference"],
    }
