"""Results of a shipped model beside the paper's, from its files of solutions alone."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polarvrp.catalog.methods import PUBLISHED_SIZES
from polarvrp.errors import DataError
from polarvrp.evaluation.gaps import summarise_gaps
from polarvrp.files import PROVENANCE
from polarvrp.references.published import published_costs
from polarvrp.solutions.checking import read_set_x
from polarvrp.solutions.solutions import provenance, read_solutions
from polarvrp.study.runs import RunSpec, parse_run
from polarvrp.tables.comparison import AVERAGE, average_over
from polarvrp.tables.formats import count, duration, minus, span
from polarvrp.tables.paper import IN_DISTRIBUTION_ORDER, SET_X_GROUPS, ZERO_SHOT_ORDER, read_paper, set_x_group
from polarvrp.tables.sheets import MISSING, Cell, Column, Sheet

OURS = "Ours"
"""The paper's label of its own method."""

Gaps = Mapping[str, float | None]


def shipped_sheets(folder: Path) -> list[Sheet]:
    """Tables of a shipped model: training variants, the others, Set-X; those that it has.

    Args:
        folder: Layout of ``evaluation.shipped``.

    Raises:
        DataError: If a file is missing or unusable, or there are no published costs of the model's size.
    """
    metadata = _metadata(folder)
    run = parse_run(str(metadata["run"]))
    if run.num_customers not in PUBLISHED_SIZES:
        raise DataError(f"{folder}: there are published costs for {PUBLISHED_SIZES} customers, not {run.num_customers}")
    tables = (
        ("in_distribution", "Training variants", IN_DISTRIBUTION_ORDER),
        ("zero_shot", "Variants that the paper's models never saw", ZERO_SHOT_ORDER),
    )
    sheets = []
    for paper, title, order in tables:
        found = [variant for variant in order if _solutions(folder, variant, run).is_file()]
        if found:
            sheets.append(_variants_sheet(folder, metadata, run, paper, title, found))
    if (folder / "evaluations" / "set_x.parquet").is_file():
        sheets.append(_set_x_sheet(folder, metadata, run))
    if not sheets:
        raise DataError(f"{folder} holds no evaluations; pack the model again")
    return sheets


def _metadata(folder: Path) -> dict[str, Any]:
    path = folder / "metadata.json"
    try:
        metadata: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for key in ("run", "spec", "epochs", "device", "total_seconds"):
            metadata[key]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is missing or no metadata of a training; name a shipped model") from error
    return metadata


def _solutions(folder: Path, variant: str, run: RunSpec) -> Path:
    return folder / "evaluations" / f"{variant}-n{run.num_customers}.parquet"


def _variants_sheet(
    folder: Path, metadata: Mapping[str, Any], run: RunSpec, paper: str, title: str, variants: Sequence[str]
) -> Sheet:
    """A row a variant, averages last; the paper's cells are empty where it prints no number of this size."""
    printed = _printed(paper, run.num_customers)
    gaps: dict[str, float | None] = {}
    block, counts, made = [], [], ""
    for variant in variants:
        table = read_solutions(_solutions(folder, variant, run))
        reference = published_costs(variant, run.num_customers)
        costs = dict(zip(table["instance"].to_pylist(), table["cost"].to_pylist(), strict=True))
        numbers = sorted(costs)
        summary = summarise_gaps([costs[number] for number in numbers], reference[numbers])
        gaps[variant] = summary.gap_percent
        counts.append(summary.instances)
        seconds = sum(table["seconds"].to_pylist())
        made = _made_on(provenance(table))
        cells = _beside(summary.gap_percent, printed.get(variant))
        block.append([Cell(variant), Cell(_number(summary.objective)), *cells, Cell(duration(seconds))])
    average = _beside(average_over(gaps, variants), average_over(printed, variants))
    caption = (
        f"{title}, n={run.num_customers}: {span(counts)} instances each, {made}. {_trained(metadata)} Gap is the mean "
        f"over instances of 100·(cost − reference)/reference against the published PyVRP costs; time is that of all "
        f"instances."
    )
    heads = [Column("Variant", numeric=False), Column("Obj."), *_HEADS, Column("Time")]
    return Sheet(caption, heads, [block, [[Cell("Average"), Cell(), *average, Cell()]]])


def _set_x_sheet(folder: Path, metadata: Mapping[str, Any], run: RunSpec) -> Sheet:
    """A row a group of sizes; only instances solved here count on either side."""
    path = folder / "evaluations" / "set_x.parquet"
    rows = {row["instance"]: row for row in read_set_x(path)}
    ours = {name: row["published_gap_percent"] for name, row in rows.items()}
    rounded = {name: row["gap_percent"] for name, row in rows.items()}
    printed = {str(row["instance"]): _float(row["gap_percent"]) for row in read_paper("set_x") if row["method"] == OURS}
    block = []
    for group in (*SET_X_GROUPS, AVERAGE):
        members = [name for name in rows if group in {AVERAGE, set_x_group(name)}]
        if members:
            cells = _beside(average_over(ours, members), average_over(printed, members))
            label = f"{group.capitalize()} ({len(members)})"
            block.append([Cell(label), *cells, Cell(_percent(average_over(rounded, members)))])
    caption = (
        f"CVRPLIB Set-X by the model of n={run.num_customers}, {_made_on(_set_x_provenance(path))}. "
        f"{_trained(metadata)} Gap is 100·(cost − best known)/best known with the cost as the paper takes it, the "
        f"length without rounding; the last column counts rounded distances, as the library does."
    )
    heads = [Column("Instances", numeric=False), *_HEADS, Column("Gap, rounded distances")]
    return Sheet(caption, heads, [block])


_HEADS = (Column("Gap"), Column("Paper's gap"), Column("Difference"))


def _beside(ours: float | None, paper: float | None) -> list[Cell]:
    """Ours, the paper's, and ours minus the paper's in percentage points; ours in bold where it is not above."""
    both = None if ours is None or paper is None else ours - paper
    difference = MISSING if both is None else minus(f"{both:+.3f}")
    return [Cell(_percent(ours), bold=both is not None and both <= 0), Cell(_percent(paper)), Cell(difference)]


def _printed(table: str, num_customers: int) -> dict[str, float | None]:
    """The paper's gaps of its own method."""
    return {
        str(row["variant"]): _float(row["gap_percent"])
        for row in read_paper(table)
        if row["method"] == OURS and row["num_customers"] == num_customers
    }


def _trained(metadata: Mapping[str, Any]) -> str:
    instances = metadata["spec"]["training"]["instances_per_epoch"]
    return (
        f"{metadata['run']}: {count(metadata['epochs'])} epochs of {count(instances)} instances in "
        f"{duration(metadata['total_seconds'])} on {metadata['device']}."
    )


def _made_on(said: Mapping[str, Any]) -> str:
    """Effort and machine of an evaluation, as its file says."""
    packages = said.get("versions", {})
    torch = f" with torch {packages['torch']}" if "torch" in packages else ""
    return f"greedy multi-start ×{said.get('augmentations', '?')} on {said.get('device', 'an unknown device')}{torch}"


def _set_x_provenance(path: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    try:
        said = json.loads((pq.read_schema(path).metadata or {}).get(PROVENANCE, b"{}"))
    except ValueError as error:
        raise DataError(f"{path} says in no readable way where it comes from; pack the model again") from error
    return dict(said)


def _percent(value: float | None) -> str:
    return MISSING if value is None else minus(f"{value:.3f}%")


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3f}"


def _float(value: str | float | None) -> float | None:
    return value if isinstance(value, float) else None
