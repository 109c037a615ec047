"""Jobs of a whole study and the files that each makes: the workflow's plan, without the workflow."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.config.study import StudyConfig
from polarvrp.study.experiments import reported
from polarvrp.study.layout import FIGURE_SUFFIXES, TABLE_SUFFIXES, Layout
from polarvrp.study.needs import Job, Plan
from polarvrp.study.runs import RunSpec


def inventory(study: StudyConfig, layout: Layout, trained: Collection[RunSpec]) -> dict[str, list[Job]]:
    """Jobs that the workflow's target ``all`` needs, done or not, by stage.

    Args:
        study: The study.
        layout: Of its results.
        trained: Runs that were trained, which tables may list beside those that they ask for.
    """
    plan, names = Plan(study, layout, trained), reported(study)
    solved = plan.references(study.training_variants + study.zero_shot_variants, study.reference_sizes)
    jobs = list(dict.fromkeys((*solved, *(job for name in names for job in plan.jobs(name)))))
    runs = list(dict.fromkeys(job.run for job in jobs if job.run))
    validated = {(variant, run.num_customers) for run in runs for variant in study.training_variants}
    tested = {test_set for job in jobs for test_set in job.test_sets}

    def of(*rules: str) -> list[Job]:
        """Jobs of the rules whose names begin like this."""
        return [job for job in jobs if job.rule.startswith(rules)]

    return {
        "sets": [*_sets(layout, "validation", validated), *_sets(layout, "test", tested)],
        "references": of("solve_"),
        "trainings": [_job("train_policy", run.name, [layout.weights(run.name)], run) for run in runs],
        "evaluations": of("evaluate_policy", "evaluate_plain"),
        "zero-shot": of("evaluate_zero_shot"),
        "Set-X": of("evaluate_set_x"),
        "shipped": of("evaluate_shipped"),
        "analyses": of("analyse_"),
        "tables": [
            _job(f"build_{name}", name, [layout.table(name, end) for end in TABLE_SUFFIXES])
            for name in names
            if EXPERIMENTS[name].rows
        ],
        "figures": [
            _job(f"draw_{name}", name, [layout.figure(name, end) for end in FIGURE_SUFFIXES])
            for name in names
            if EXPERIMENTS[name].figure
        ],
        "report": [_job("write_report", "all", [layout.report])],
    }


def _job(rule: str, name: str, outputs: Iterable[Path], run: RunSpec | None = None) -> Job:
    return Job(rule=rule, name=name, outputs=tuple(outputs), run=run)


def _sets(layout: Layout, split: str, wanted: Iterable[tuple[str, int]]) -> list[Job]:
    return [
        _job("generate_dataset", f"{split}-{name}-n{size}", [layout.dataset(split, name, size)])
        for name, size in sorted(wanted)
    ]
