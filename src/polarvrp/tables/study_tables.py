"""Long tables of the ablations: the two grids, the four sweeps, and what training costs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from polarvrp.catalog.backbones import grid_backbones
from polarvrp.catalog.encoders import ENCODERS
from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.study.experiments import own_encoder
from polarvrp.study.runs import RunSpec
from polarvrp.tables.gap_tables import Row, run_gaps, variant_rank
from polarvrp.tables.paper import IN_DISTRIBUTION_ORDER, TRAINING_COST_METHODS
from polarvrp.tables.sources import Results


@dataclass(frozen=True, slots=True)
class Sweep:
    """Trainings of ``polarnet`` that differ in one value.

    Attributes:
        column: Column of the swept value.
        suffix: Attribute of the run's name that holds it, None in runs at the default.
        section: Section of the training's specification that holds it in every run.
        encoder: Encoder of the trainings.
        paradigms: Their paradigms; a column where there is more than one.
    """

    column: str
    suffix: str
    section: str
    encoder: str
    paradigms: tuple[str, ...] = ("polar",)


SWEEPS = {
    "temperature": Sweep("alpha", "temperature", "training", "shared", ("po", "polar")),
    "refined_tours": Sweep("refined_tours_k", "refined_tours", "training", "shared"),
    "task_experts": Sweep("task_experts_kappa", "task_experts", "model", "ple"),
    "refinement_start": Sweep("refinement_start_epoch", "refinement_start_epoch", "training", "ple"),
}
_SUFFIXES = tuple(sweep.suffix for sweep in SWEEPS.values())


def training_paradigms(results: Results) -> list[Row]:
    """Gap on each training variant of the four backbones under the three paradigms."""

    def in_grid(run: RunSpec) -> bool:
        encoder = own_encoder(run.backbone)
        return _at_defaults(run) and run.backbone in grid_backbones() and run.encoder == encoder

    return _grid(results, "paradigm", in_grid, tuple(PARADIGMS))


def encoder_settings(results: Results) -> list[Row]:
    """Gap on each training variant of the four backbones with the three encoders, trained by POLAR."""

    def in_grid(run: RunSpec) -> bool:
        return _at_defaults(run) and run.backbone in grid_backbones() and run.paradigm == "polar"

    rows = _grid(results, "encoder", in_grid, tuple(ENCODERS))
    parameters = {
        (run.backbone, run.encoder): results.recorded(run, "parameters")
        for run in _smallest_size(run for run in results.evaluated_runs() if in_grid(run))
    }
    return [row | {"parameters": parameters[row["backbone"], row["encoder"]]} for row in rows]


def sweep(name: str) -> Callable[[Results], list[Row]]:
    """Builder of the table of a sweep: mean gap over the training variants and epoch times for each swept value.

    One value alone, which is the default run of another table, makes no sweep and no rows.

    Args:
        name: A key of ``SWEEPS``.
    """
    swept = SWEEPS[name]

    def build(results: Results) -> list[Row]:
        runs = _smallest_size(run for run in results.evaluated_runs() if _in_sweep(run, swept))
        gaps = run_gaps(results, runs, IN_DISTRIBUTION_ORDER)
        cells: dict[tuple[float, str], list[RunSpec]] = {}
        for run in runs:
            cells.setdefault((_swept_value(results, run, swept), run.paradigm), []).append(run)
        if len({value for value, _ in cells}) < 2:
            return []
        rows = []
        for (value, paradigm), members in sorted(cells.items()):
            by_variant = _over_seeds([gaps[run] for run in members])
            rows.append(
                {swept.column: value}
                | ({"paradigm": paradigm} if len(swept.paradigms) > 1 else {})
                | {"mean_gap_percent": mean_or_none(by_variant.values())}
                | _mean_costs([epoch_costs(results.history(run)) for run in members])
                | {"variants": len(by_variant), "num_customers": members[0].num_customers}
                | {"seeds": len(members), "scale": results.scale, "runs": tuple(run.name for run in members)}
            )
        return rows

    return build


def training_cost(results: Results) -> list[Row]:
    """Parameters, time and memory of the four trainings: POLAR or REINFORCE, with PLE or a shared encoder."""
    stems = list(TRAINING_COST_METHODS.values())
    rows: list[Row] = []
    for run in results.trained_runs():
        if not _at_defaults(run) or run.stem not in stems:
            continue
        history, metadata = results.history(run), results.metadata(run)
        memory = [row["peak_memory_gb"] for row in history if row.get("peak_memory_gb") is not None]
        costs = epoch_costs(history)
        rows.append(
            {
                "method": run.method,
                "num_customers": run.num_customers,
                "parameters": metadata.get("parameters"),
                "epoch_seconds": costs["epoch_seconds"],
                "total_hours": costs["total_hours"],
                "peak_memory_gb": max(memory) if memory else None,
                "epochs": len(history),
                "device": metadata.get("device"),
                "scale": results.scale,
                "runs": (run.name,),
            }
        )
    return sorted(rows, key=lambda row: (row["num_customers"], _stem_rank(stems, row["method"]), row["method"]))


def epoch_costs(history: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Mean seconds of an epoch, of one without and of one with refinement, and hours of all.

    Args:
        history: One row an epoch with ``seconds`` and, where local search ran, ``refined_tours`` above 0.
    """
    refined = [row["seconds"] for row in history if (row.get("refined_tours") or 0) > 0]
    plain = [row["seconds"] for row in history if not (row.get("refined_tours") or 0) > 0]
    return {
        "epoch_seconds": mean_or_none(refined + plain),
        "epoch_seconds_without_ls": mean_or_none(plain),
        "epoch_seconds_with_ls": mean_or_none(refined),
        "total_hours": sum(refined + plain) / 3600 if history else None,
    }


def mean_or_none(values: Iterable[float | None]) -> float | None:
    """Mean of the values; None when there are none, or one is missing."""
    kept = list(values)
    numbers = [value for value in kept if value is not None]
    return fmean(numbers) if numbers and len(numbers) == len(kept) else None


def _grid(results: Results, column: str, in_grid: Callable[[RunSpec], bool], order: Sequence[str]) -> list[Row]:
    """Gaps by backbone, the run's attribute ``column`` and variant."""
    runs = _smallest_size(run for run in results.evaluated_runs() if in_grid(run))
    gaps = run_gaps(results, runs, IN_DISTRIBUTION_ORDER)
    cells: dict[tuple[str, str], list[RunSpec]] = {}
    for run in runs:
        cells.setdefault((run.backbone, getattr(run, column)), []).append(run)
    rows = [
        {"backbone": backbone, column: value, "variant": variant, "gap_percent": gap}
        | {"num_customers": members[0].num_customers, "seeds": len(members), "scale": results.scale}
        | {"runs": tuple(run.name for run in members)}
        for (backbone, value), members in cells.items()
        for variant, gap in _over_seeds([gaps[run] for run in members]).items()
    ]
    return sorted(
        rows,
        key=lambda row: (
            grid_backbones().index(row["backbone"]),
            order.index(row[column]),
            variant_rank(row["variant"]),
        ),
    )


def _over_seeds(gaps: Sequence[dict[str, float | None]]) -> dict[str, float | None]:
    """Mean over seeds of each variant's gap; variants that a seed lacks are missing."""
    return {variant: mean_or_none(seed.get(variant) for seed in gaps) for seed in gaps for variant in seed}


def _mean_costs(costs: Sequence[dict[str, float | None]]) -> dict[str, float | None]:
    return {name: mean_or_none(seed[name] for seed in costs) for name in costs[0]}


def _at_defaults(run: RunSpec) -> bool:
    return all(getattr(run, suffix) is None for suffix in (*_SUFFIXES, "variants"))


def _in_sweep(run: RunSpec, swept: Sweep) -> bool:
    others = all(getattr(run, suffix) is None for suffix in (*_SUFFIXES, "variants") if suffix != swept.suffix)
    return others and run.backbone == "polarnet" and run.encoder == swept.encoder and run.paradigm in swept.paradigms


def _swept_value(results: Results, run: RunSpec, swept: Sweep) -> float:
    """Value in the run's name, else the study's default, which the training recorded."""
    named: float | None = getattr(run, swept.suffix)
    return float(results.specified(run, swept.section, swept.suffix)) if named is None else named


def _smallest_size(runs: Iterable[RunSpec]) -> list[RunSpec]:
    """Runs of the smaller size, the one the ablations are made at."""
    kept = list(runs)
    smallest = min((run.num_customers for run in kept), default=0)
    return [run for run in kept if run.num_customers == smallest]


def _stem_rank(stems: Sequence[str], method: str) -> int:
    return next(rank for rank, stem in enumerate(stems) if method.startswith(stem))
