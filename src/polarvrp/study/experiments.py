"""Which runs each experiment of the paper compares; imports nothing heavy, the workflow reads it at parse time."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from polarvrp.catalog.backbones import BACKBONES, GRID_BACKBONES
from polarvrp.catalog.methods import MAIN_METHODS
from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.config.study import GRIDS, SWEEPS, StudyConfig
from polarvrp.study.runs import RunSpec
from polarvrp.study.specs import ablation_defaults


def main_runs(study: StudyConfig) -> tuple[RunSpec, ...]:
    """Runs of the main tables: every backbone as published, both sizes."""
    return tuple(
        RunSpec(
            backbone=backbone,
            encoder=MAIN_METHODS[backbone][0],
            paradigm=MAIN_METHODS[backbone][1],
            num_customers=size.num_customers,
            variants="all" if study.training.variants == "all" else None,
            seed=seed,
        )
        for backbone in study.backbones
        for size in study.sizes
        for seed in study.seeds
    )


def experiment_runs(study: StudyConfig, experiment: str, grid_backbones: Iterable[str] | None = None) -> list[RunSpec]:
    """Runs that one experiment compares.

    Args:
        study: The study.
        experiment: One of ``config.EXPERIMENTS``; ``in_distribution`` and ``paper_comparison`` name the main runs here,
            though their tables list every other run of the study too.
        grid_backbones: Backbones of the two grids, None for the study's own.
    """
    small = study.sizes[0].num_customers
    backbones = study.grid_backbones if grid_backbones is None else grid_backbones
    cells: list[dict[str, Any]]
    if experiment == "training_paradigms":
        cells = [
            {"backbone": name, "encoder": MAIN_METHODS.get(name, ("shared",))[0], "paradigm": paradigm}
            for name in backbones
            for paradigm in PARADIGMS
        ]
    elif experiment == "encoder_settings":
        cells = [
            {"backbone": name, "encoder": encoder, "paradigm": "polar"}
            for name in backbones
            for encoder in BACKBONES[name]
        ]
    elif experiment in SWEEPS:
        cells = _sweep_cells(study, experiment)
    elif experiment == "training_cost":
        cells = [
            {"backbone": "polarnet", "encoder": encoder, "paradigm": paradigm, "num_customers": size.num_customers}
            for size in study.sizes
            for encoder in ("ple", "shared")
            for paradigm in ("polar", "rl")
        ]
    else:
        runs = main_runs(study)
        one_size = experiment in {"zero_shot", "set_x"}
        return [run for run in runs if not one_size or run.num_customers == study.transfer_size]
    return [RunSpec(**{"num_customers": small, "seed": seed, **cell}) for cell in cells for seed in study.seeds]


def _sweep_cells(study: StudyConfig, sweep: str) -> list[dict[str, Any]]:
    """Cells of one sweep: its values, and the default, which has no suffix in a run's name."""
    field = {"refinement_start": "refinement_start_epoch"}.get(sweep, sweep)
    default = ablation_defaults(study)[field]
    values = dict.fromkeys((*getattr(study.sweeps, sweep), default))
    encoder = "shared" if sweep in {"temperature", "refined_tours"} else "ple"
    return [
        {
            "backbone": "polarnet",
            "encoder": encoder,
            "paradigm": paradigm,
            field: None if value == default else value,
        }
        for value in values
        for paradigm in (("po", "polar") if sweep == "temperature" else ("polar",))
    ]


def study_runs(study: StudyConfig) -> list[RunSpec]:
    """Every run of the experiments that the study names, each once."""
    return _distinct(run for experiment in study.experiments for run in experiment_runs(study, experiment))


def ablation_runs(study: StudyConfig) -> list[RunSpec]:
    """Every run of the paper's two grids and four sweeps, each once."""
    return _distinct(
        run for experiment in (*GRIDS, *SWEEPS) for run in experiment_runs(study, experiment, GRID_BACKBONES)
    )


def table_runs(study: StudyConfig, table: str, at_hand: Collection[RunSpec] = ()) -> list[RunSpec]:
    """Runs that a table lists.

    Args:
        study: The study.
        table: One of ``config.EXPERIMENTS``.
        at_hand: Ablation runs that were trained, or are about to be, although the study does not name them.
    """
    if table == "in_distribution":
        return _distinct((*study_runs(study), *at_hand))
    if table in GRIDS:
        own = set(experiment_runs(study, table))
        return [run for run in experiment_runs(study, table, GRID_BACKBONES) if run in own or run in at_hand]
    return experiment_runs(study, table)


def _distinct(runs: Iterable[RunSpec]) -> list[RunSpec]:
    return list(dict.fromkeys(runs))
