"""Which runs each experiment compares; imports nothing heavy, the workflow reads it at parse time."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from polarvrp.catalog.backbones import BACKBONES, grid_backbones
from polarvrp.catalog.experiments import EXPERIMENTS, Experiment, ablations, grid_of, main_tables, sweep_of, tables
from polarvrp.catalog.methods import method_of
from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.catalog.records import resolve
from polarvrp.config.architectures import architecture_of
from polarvrp.config.model import ModelConfig
from polarvrp.config.study import StudyConfig
from polarvrp.problem.variants import UNSEEN_FLAGS
from polarvrp.study.runs import RunSpec
from polarvrp.study.specs import ablation_defaults

WHOLE_STUDY = frozenset({"all", "train", "policies", "evaluate", "tables", "figures", "report"})
"""Targets of the workflow that make every run of the study."""


class Network(NamedTuple):
    """What a run trains, and how."""

    backbone: str
    encoder: str
    paradigm: str


def main_runs(study: StudyConfig, experiment: Experiment | None = None) -> list[RunSpec]:
    """Runs of the main tables: every method at every size."""
    return [
        RunSpec(
            backbone=str(method.backbone),
            encoder=str(method.encoder),
            paradigm=str(method.paradigm),
            num_customers=size.num_customers,
            variants="all" if study.training.variants == "all" else None,
            seed=seed,
        )
        for method in study.methods
        for size in study.sizes
        for seed in study.seeds
    ]


def transfer_runs(study: StudyConfig, experiment: Experiment) -> list[RunSpec]:
    """Runs of the main tables of the one size that is transferred to unseen variants and Set-X."""
    return [run for run in main_runs(study) if run.num_customers == study.transfer_size]


def sample_run(study: StudyConfig, experiment: Experiment) -> list[RunSpec]:
    """One run that is evaluated on every variant: the last method of the main tables, which is ours by default."""
    return [run for run in transfer_runs(study, experiment) if run.seed == study.seeds[0]][-1:]


def grid_runs(study: StudyConfig, experiment: Experiment) -> list[RunSpec]:
    """Runs of a grid: the study's backbones along the grid's axis."""
    grid_of(experiment)  # which refuses a record that lacks one
    return _small_runs(study, (network._asdict() for network in compared_networks(experiment, study.grid_backbones)))


def sweep_runs(study: StudyConfig, experiment: Experiment) -> list[RunSpec]:
    """Runs of a sweep: its values, and the default, which has no suffix in a run's name."""
    sweep = sweep_of(experiment)
    default = ablation_defaults(study)[sweep.setting]
    values = dict.fromkeys((*getattr(study.sweeps, experiment.name), default))
    return _small_runs(
        study,
        (
            {**network._asdict(), sweep.setting: None if value == default else value}
            for value in values
            for network in compared_networks(experiment)
        ),
    )


def small_method_runs(study: StudyConfig, experiment: Experiment) -> list[RunSpec]:
    """Runs of an experiment's own methods at the smaller size."""
    return [run for run in cost_runs(study, experiment) if run.num_customers == study.sizes[0].num_customers]


def cost_runs(study: StudyConfig, experiment: Experiment) -> list[RunSpec]:
    """Runs of an experiment's own methods at every size."""
    return [
        RunSpec(**network._asdict(), num_customers=size.num_customers, seed=seed)
        for size in study.sizes
        for network in compared_networks(experiment)
        for seed in study.seeds
    ]


def no_runs(study: StudyConfig, experiment: Experiment) -> list[RunSpec]:
    """Runs of an experiment that needs none."""
    return []


def compared_networks(experiment: Experiment, backbones: Iterable[str] | None = None) -> list[Network]:
    """Networks that a grid, a sweep or an experiment with methods of its own compares, in order.

    Args:
        experiment: One of these.
        backbones: Of a grid, all of the paper's unless some are named.
    """
    grid, sweep = experiment.grid, experiment.sweep
    if sweep is not None:
        return [Network(sweep.backbone, sweep.encoder, paradigm) for paradigm in sweep.paradigms]
    if grid is None:
        return [Network(str(one.backbone), str(one.encoder), str(one.paradigm)) for one in experiment.methods]
    names = grid_backbones() if backbones is None else backbones
    if grid.axis == "paradigm":
        networks = [Network(name, own_encoder(name), value) for name in names for value in PARADIGMS]
    else:
        networks = [Network(name, value, str(grid.paradigm)) for name in names for value in BACKBONES[name].encoders]
    return [one for one in networks if grid.values is None or getattr(one, grid.axis) in grid.values]


def is_compared(run: RunSpec, experiment: Experiment) -> bool:
    """Whether an experiment compares a run, whatever its size, its seed and, in a sweep, the swept value.

    Other settings are at their defaults, of which its name says nothing.

    Args:
        run: Any run.
        experiment: As of ``compared_networks``.
    """
    sweep = experiment.sweep
    plain = run if sweep is None else replace(run, **{sweep.setting: None})  # type: ignore[arg-type]
    return not plain.departures and (run.backbone, run.encoder, run.paradigm) in compared_networks(experiment)


def own_encoder(backbone: str) -> str:
    """Encoder of a backbone in the main tables, else its own stack; the grid of paradigms holds it fixed."""
    method = method_of(backbone)
    return "shared" if method is None else str(method.encoder)


def experiment_runs(study: StudyConfig, name: str) -> list[RunSpec]:
    """Runs that one experiment compares.

    Args:
        study: The study.
        name: A key of ``EXPERIMENTS``.
    """
    experiment = EXPERIMENTS[name]
    runs: list[RunSpec] = resolve(experiment.runs)(study, experiment)
    return runs


def study_runs(study: StudyConfig) -> list[RunSpec]:
    """Every run of the experiments that the study names, each once."""
    return _distinct(run for name in study.experiments for run in experiment_runs(study, name))


def ablation_runs(study: StudyConfig) -> list[RunSpec]:
    """Every run of the paper's grids and sweeps, each once, for all backbones of the grids."""
    whole = study.replace(grid_backbones=grid_backbones())
    return _distinct(run for name in ablations() for run in experiment_runs(whole, name))


def every_run(study: StudyConfig) -> list[RunSpec]:
    """Every run of the study and of the paper's grids and sweeps, each once."""
    return _distinct((*study_runs(study), *ablation_runs(study)))


def other_tables(study: StudyConfig, name: str) -> list[str]:
    """Tables of the study beside one, which that one may be computed from."""
    return [other for other in study.experiments if other != name]


def reported(study: StudyConfig) -> list[str]:
    """Experiments of the report: the study's tables, and all that are figures alone."""
    return [name for name in EXPERIMENTS if name in study.experiments or name not in tables()]


def asked_runs(study: StudyConfig, targets: Collection[str]) -> set[RunSpec]:
    """Runs that are made whatever tables ask for.

    Args:
        study: The study.
        targets: Targets of the workflow that were named; none means all.
    """
    runs: set[RunSpec] = set()
    if not targets or not WHOLE_STUDY.isdisjoint(targets):
        runs.update(study_runs(study))
    if "ablations" in targets:
        runs.update(ablation_runs(study))
    return runs


def table_runs(study: StudyConfig, name: str, at_hand: Collection[RunSpec] = ()) -> list[RunSpec]:
    """Runs that a table lists: those that it compares, and others that are at hand.

    Args:
        study: The study.
        name: A key of ``EXPERIMENTS``.
        at_hand: Runs that were trained, or are about to be, whatever the table asks for.
    """
    own = experiment_runs(study, name)
    if name in main_tables():
        known = [run for run in every_run(study) if run in at_hand]
        return _distinct((*own, *known, *at_hand))
    if EXPERIMENTS[name].grid is not None:
        whole = experiment_runs(study.replace(grid_backbones=grid_backbones()), name)
        return [run for run in whole if run in own or run in at_hand]
    return own


def masked_runs(study: StudyConfig, runs: Iterable[RunSpec]) -> list[RunSpec]:
    """Those of some runs that are tested with and without the flags of attributes that they never saw.

    Args:
        study: The study; none unless it asks for both.
        runs: The runs.
    """
    if study.evaluation.mask_unseen_flags != "both":
        return []
    return [run for run in runs if run.variants != "all" and _has_unseen_flags(run)]


def _has_unseen_flags(run: RunSpec) -> bool:
    """Whether a run's network has flags that the paper's training variants never set."""
    if run.backbone not in BACKBONES:
        return True  # an installed package says nothing of its network's parts
    config = ModelConfig(backbone=run.backbone, encoder=run.encoder, num_customers=run.num_customers)
    return not set(UNSEEN_FLAGS).isdisjoint(architecture_of(config).flags)


def _small_runs(study: StudyConfig, cells: Iterable[dict[str, Any]]) -> list[RunSpec]:
    """A run a cell and seed, at the smaller size, the one that the ablations are made at."""
    size = study.sizes[0].num_customers
    return [RunSpec(num_customers=size, seed=seed, **cell) for cell in cells for seed in study.seeds]


def _distinct(runs: Iterable[RunSpec]) -> list[RunSpec]:
    return list(dict.fromkeys(runs))
