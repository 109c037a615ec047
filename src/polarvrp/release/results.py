"""Results of a shipped model beside the paper's, from its files of solutions alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import fsum
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from polarvrp.catalog.experiments import EXPERIMENTS, Experiment
from polarvrp.errors import DataError
from polarvrp.evaluation.gaps import summarise_gaps
from polarvrp.files import provenance, read_parquet
from polarvrp.solutions.checking import read_set_x
from polarvrp.solutions.solutions import read_solutions
from polarvrp.study.layout import Layout
from polarvrp.study.metadata import require_recorded
from polarvrp.study.runs import RunSpec, parse_run
from polarvrp.study.shipped import metadata_path, searched_solutions_path, set_x_path, solutions_path
from polarvrp.study.specs import parse_train_spec
from polarvrp.tables.formats import count, duration, number, span
from polarvrp.tables.labels import AVERAGE, OURS
from polarvrp.tables.means import complete_mean
from polarvrp.tables.paper import IN_DISTRIBUTION_ORDER, ZERO_SHOT_ORDER, read_paper
from polarvrp.tables.printing import Axis, PrintedTable, measures, print_table, written
from polarvrp.tables.set_x import instance_groups
from polarvrp.tables.sources import InstanceSet, reference_of

PRINTED = " in the paper"
"""Ending of a column of the paper's numbers."""

SEARCHED = "Gap, local search"

_REFERENCES = {"published-pyvrp": "the published PyVRP costs", "pyvrp": "our PyVRP's, which ship beside the model"}


def shipped_tables(folder: Path) -> list[PrintedTable]:
    """Tables of a shipped model: training variants, the others, Set-X; those that it has.

    Args:
        folder: Layout of ``study.shipped``.

    Raises:
        DataError: If a file is missing or unusable.
    """
    needed = ("run", "spec", "epochs", "device", "total_seconds")
    metadata = require_recorded(metadata_path(folder), needed, "name a shipped model")
    run = parse_run(str(metadata["run"]))
    tables = []
    for name, order in (("in_distribution", IN_DISTRIBUTION_ORDER), ("zero_shot", ZERO_SHOT_ORDER)):
        found = [variant for variant in order if solutions_path(folder, variant, run.num_customers).is_file()]
        if found:
            tables.append(_variants_table(folder, metadata, run, EXPERIMENTS[name], found))
    if set_x_path(folder).is_file():
        tables.append(_set_x_table(folder, metadata, run))
    if not tables:
        raise DataError(f"{folder} holds no evaluations; pack the model again")
    return tables


def _variants_table(
    folder: Path, metadata: Mapping[str, Any], run: RunSpec, experiment: Experiment, variants: Sequence[str]
) -> PrintedTable:
    """A row a variant, averages last; the paper's columns only where it prints numbers of this size."""
    tables = {variant: read_solutions(solutions_path(folder, variant, run.num_customers)) for variant in variants}
    references = {variant: _reference(folder, variant, run) for variant in variants}
    ours = pd.DataFrame({"variant": name, **_summary(tables[name], references[name])} for name in variants)
    ours["searched"] = [_gap_after_search(folder, name, run, references[name]) for name in variants]
    paper = read_paper(experiment.name)
    printed = paper[(paper["method"] == OURS) & (paper["num_customers"] == run.num_customers)]
    long = ours.merge(printed[["variant", "gap_percent"]], "left", "variant", suffixes=("", PRINTED))
    long = pd.concat([long, _average(long).assign(variant=AVERAGE)], ignore_index=True)
    made = _made_on(provenance(tables[variants[-1]]))
    searched = "" if long["searched"].isna().all() else f" {SEARCHED}: after one local search from each of these tours."
    caption = (
        f"{experiment.title}, n={run.num_customers}: {span(ours['instances'])} instances each, {made}. "
        f"{_trained(metadata)} Gap is the mean over instances of 100·(cost − reference)/reference against "
        f"{_REFERENCES[str(references[variants[0]].name)]}; time is that of all instances.{searched}"
    )
    cells = [
        written(long, "Obj.", "objective", number("{:.3f}")),
        *_beside(long),
        *([written(long, SEARCHED, "searched", number("{:.3f}%"))] if searched else []),
        written(long, "Time", "seconds", duration),
    ]
    rows, columns = Axis.of("variant", long["variant"]), Axis.of("measure", measures(cells), "")
    return print_table(caption, cells, ("Variant",), rows, columns, summary=1)


def _reference(folder: Path, variant: str, run: RunSpec) -> pd.Series:
    """Cost of each instance that gaps are taken to, and whose it is as its name."""
    test_set = InstanceSet(variant, run.num_customers)
    costs = reference_of(Layout(folder), test_set)
    if costs is None:
        raise DataError(f"{folder} holds no reference of {variant}; pack the model again")
    return costs


def _summary(table: pa.Table, reference: pd.Series) -> dict[str, Any]:
    """Objective, gap to the reference, counted instances and seconds of one set."""
    costs = table.select(["instance", "cost", "seconds"]).to_pandas().sort_values("instance")
    wanted = reference.reindex(costs["instance"])
    return asdict(summarise_gaps(costs["cost"].to_numpy(), wanted.to_numpy())) | {"seconds": fsum(costs["seconds"])}


def _gap_after_search(folder: Path, variant: str, run: RunSpec, reference: pd.Series) -> float:
    """Mean gap after one local search from each tour; NaN where none was made."""
    path = searched_solutions_path(folder, variant, run.num_customers)
    return _summary(read_solutions(path), reference)["gap_percent"] if path.is_file() else math.nan


def _set_x_table(folder: Path, metadata: Mapping[str, Any], run: RunSpec) -> PrintedTable:
    """A row a group of sizes; only instances solved here count on either side."""
    path = set_x_path(folder)
    solved = pd.DataFrame(read_set_x(path))[["instance", "gap_percent", "published_gap_percent"]]
    solved = solved.rename(columns={"gap_percent": "rounded", "published_gap_percent": "gap_percent"})
    paper = read_paper("set_x")
    printed = paper.loc[paper["method"] == OURS, ["instance", "gap_percent"]]
    both = solved.merge(printed, "left", "instance", suffixes=("", PRINTED))
    long = pd.concat(
        _average(both[both["instance"].isin(members)]).assign(group=f"{group.capitalize()} ({len(members)})")
        for group, members in instance_groups(list(both["instance"])).items()
    )
    caption = (
        f"CVRPLIB Set-X by the model of n={run.num_customers}, {_made_on(provenance(read_parquet(path)))}. "
        f"{_trained(metadata)} Gap is 100·(cost − best known)/best known with the cost as the paper takes it, the "
        f"length without rounding; the last column counts rounded distances, as the library does."
    )
    cells = [*_beside(long), written(long, "Gap, rounded distances", "rounded", number("{:.3f}%"))]
    rows, columns = Axis.of("group", long["group"]), Axis.of("measure", measures(cells), "")
    return print_table(caption, cells, ("Instances",), rows, columns)


def _average(frame: pd.DataFrame) -> pd.DataFrame:
    """One row of the means of all gaps, missing where a member's is."""
    gaps = [name for name in ("gap_percent", f"gap_percent{PRINTED}", "searched", "rounded") if name in frame]
    return pd.DataFrame([frame[gaps].agg(complete_mean)])


def _beside(long: pd.DataFrame) -> list[pd.DataFrame]:
    """Ours, the paper's, and ours minus the paper's in percentage points; ours emphasised where it is not above.

    Ours alone at a size that the paper has no numbers of.
    """
    if long[f"gap_percent{PRINTED}"].isna().all():
        return [written(long, "Gap", "gap_percent", number("{:.3f}%"))]
    long = long.assign(difference=long["gap_percent"] - long[f"gap_percent{PRINTED}"])
    percent = number("{:.3f}%")
    ours = written(long, "Gap", "gap_percent", percent).assign(best=long["difference"] <= 0)
    paper = written(long, "Paper's gap", f"gap_percent{PRINTED}", percent)
    return [ours, paper, written(long, "Difference", "difference", number("{:+.3f}"))]


def _trained(metadata: Mapping[str, Any]) -> str:
    """What the last training saw and took, and what it went on from."""
    _, training = parse_train_spec(metadata["spec"])
    stages = [training.for_stage(number) for number in range(len(training.stages))]
    instances = sum(stage.epochs * stage.instances_per_epoch for stage in stages)
    earlier = "" if training.initial_weights is None else f", from weights of {training.initial_weights.model},"
    return (
        f"{metadata['run']}: {count(instances)} instances in {count(metadata['epochs'])} epochs{earlier} in "
        f"{duration(metadata['total_seconds'])} on {metadata['device']}."
    )


def _made_on(said: Mapping[str, Any]) -> str:
    """Effort and machine of an evaluation, as its file says."""
    packages = said.get("versions", {})
    torch = f" with torch {packages['torch']}" if "torch" in packages else ""
    return f"greedy multi-start ×{said.get('augmentations', '?')} on {said.get('device', 'an unknown device')}{torch}"
