"""Jobs of a whole study and the files that each makes: the workflow's plan, without the workflow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from polarvrp.catalog.experiments import EXPERIMENTS, tables
from polarvrp.catalog.limits import LIMITS, PLAIN
from polarvrp.config.study import StudyConfig
from polarvrp.study import experiments
from polarvrp.study.at_hand import beside
from polarvrp.study.layout import FIGURE_SUFFIXES, TABLE_SUFFIXES, Layout, unseen_protocols
from polarvrp.study.runs import RunSpec
from polarvrp.study.shipped import shipped_models, shipped_name
from polarvrp.study.specs import chunk_starts, limited_instances, size_config

ANALYSES = {
    "margins": ("analyse_margins", "preference_margins"),
    "experts": ("analyse_experts", "expert_contributions"),
    "embeddings": ("analyse_embeddings", "embeddings"),
}
"""Rule and file of what analyses need of each run, by the need's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job of the workflow.

    Attributes:
        rule: Folder of its log.
        name: Of its log.
        outputs: Files that exist once it is done.
        whole: File that makes it needless, such as the merged set of its chunk.
        run: Trained model that it makes or tests.
        core_seconds: What it costs, where its settings say so.
    """

    rule: str
    name: str
    outputs: tuple[Path, ...]
    whole: Path | None = None
    run: RunSpec | None = None
    core_seconds: float | None = None


def inventory(study: StudyConfig, layout: Layout, trained: Collection[RunSpec]) -> dict[str, list[Job]]:
    """Jobs that the workflow's target ``all`` needs, done or not, by stage.

    Args:
        study: The study.
        layout: Of its results.
        trained: Runs that were trained, which tables may list beside those that they ask for.
    """
    made = experiments.study_runs(study)
    names = [name for name in EXPERIMENTS if name in study.experiments or name not in tables()]
    listed = {name: experiments.table_runs(study, name, beside(study, layout, name, trained, made)) for name in names}

    def runs_for(*needs: str) -> list[RunSpec]:
        """Runs of the experiments that have one of these needs, each once."""
        asking = [name for name in names if not set(needs).isdisjoint(EXPERIMENTS[name].needs)]
        return list(dict.fromkeys(run for name in asking for run in listed[name]))

    seen, unseen, set_x = runs_for("training_variants"), runs_for("unseen_variants"), runs_for("set_x")
    masked = experiments.masked_runs(study, runs_for("masked_flags"))
    trainings = list(dict.fromkeys((*seen, *unseen, *set_x, *runs_for("histories", *ANALYSES))))
    analysed = {need: runs_for(need) for need in ANALYSES}
    solved = _solved_sets(study, seen, unseen)
    encoded = (*analysed["experts"], *analysed["embeddings"])
    tested = {(name, run.num_customers) for run in (*seen, *encoded) for name in study.training_variants}
    tested |= {(name, run.num_customers) for run in unseen for name in study.zero_shot_variants}
    own = _shipped(study, layout, names)
    tested |= {
        (path.name.partition("-n")[0], size) for size, jobs in own.items() for job in jobs for path in job.outputs
    }
    validated = {(name, run.num_customers) for run in trainings for name in study.training_variants}
    return {
        "sets": [*_sets(layout, "validation", validated), *_sets(layout, "test", tested.union(solved))],
        "references": [
            *(job for name, size in solved for job in _chunks(study, layout, name, size)),
            *_limited(study, layout, runs_for("efforts")),
        ],
        "trainings": [_job("train_policy", run.name, [layout.weights(run.name)], run) for run in trainings],
        "evaluations": [
            *_evaluations(layout, "evaluate_policy", seen, study.training_variants),
            *_evaluations(layout, "evaluate_plain", runs_for("efforts"), study.training_variants, PLAIN),
        ],
        "zero-shot": _zero_shot(layout, unseen, masked, study.zero_shot_variants),
        "Set-X": [_job("evaluate_set_x", run.name, [layout.set_x(run.name)], run) for run in set_x],
        "shipped": [job for jobs in own.values() for job in jobs],
        "analyses": _analyses(layout, analysed, names),
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


def _evaluations(
    layout: Layout, rule: str, runs: Iterable[RunSpec], variants: Collection[str], split: str = "test"
) -> list[Job]:
    return [
        _job(rule, run.name, [layout.evaluation(run.name, name, run.num_customers, split) for name in variants], run)
        for run in runs
        if variants
    ]


def _analyses(layout: Layout, runs: Mapping[str, Iterable[RunSpec]], names: Iterable[str]) -> list[Job]:
    """Analyses of runs by their needs, and of networks without a run."""
    jobs = [
        _job(rule, run.name, [layout.analysis(run.name, name)], run)
        for need, (rule, name) in ANALYSES.items()
        for run in runs[need]
    ]
    if any("architectures" in EXPERIMENTS[name].needs for name in names):
        jobs.append(_job("analyse_architectures", "all", [layout.architectures]))
    return jobs


def _zero_shot(
    layout: Layout, runs: Iterable[RunSpec], masked: Iterable[RunSpec], variants: Collection[str]
) -> list[Job]:
    kinds = (
        ("evaluate_zero_shot", runs, unseen_protocols(masked=False)),
        ("evaluate_zero_shot_masked", masked, unseen_protocols(masked=True)),
    )
    return [
        _job(
            rule,
            run.name,
            [
                layout.unseen_evaluation(run.name, name, run.num_customers, rules)
                for rules in protocols
                for name in variants
            ],
            run,
        )
        for rule, of_rule, protocols in kinds
        for run in of_rule
        if variants
    ]


def _shipped(study: StudyConfig, layout: Layout, names: Iterable[str]) -> dict[int, list[Job]]:
    """Evaluations of the models that ship, by size, for sizes that no published solution is of."""
    needs = [EXPERIMENTS[name].needs for name in names]
    drawn = any("shipped_routes" in need for need in needs)
    unseen = ["unseen_variants" in need for need in needs if "shipped" in need]
    kinds = {
        "evaluate_shipped": study.training_variants if drawn or not all(unseen) else (),
        "evaluate_shipped_zero_shot": study.zero_shot_variants if drawn or any(unseen) else (),
    }
    return {
        size: [
            _job(rule, f"n{size}", [layout.shipped_evaluation(shipped_name(size), name, size) for name in variants])
            for rule, variants in kinds.items()
            if variants
        ]
        for size in study.solved_sizes
        if shipped_name(size) in shipped_models()
    }


def _solved_sets(study: StudyConfig, seen: Iterable[RunSpec], unseen: Iterable[RunSpec]) -> list[tuple[str, int]]:
    """Variant and size of each test set that solvers solve: all at full scale, else those that no one published."""
    everywhere = study.training_variants + study.zero_shot_variants
    asked = [(name, size) for size in study.reference_sizes for name in everywhere]
    for runs, variants in ((seen, study.training_variants), (unseen, study.zero_shot_variants)):
        needed = {run.num_customers for run in runs}.intersection(study.solved_sizes)
        asked += [(name, size) for size in sorted(needed) for name in variants]
    return list(dict.fromkeys(asked)) if study.references.solvers else []


def _limited(study: StudyConfig, layout: Layout, runs: Iterable[RunSpec]) -> list[Job]:
    """Jobs that solve the first instances of training variants in parts of the time limit, at the sizes of the runs."""
    return [
        Job(
            rule="solve_limited",
            name=f"{solver}-{part}-{name}-n{size}",
            outputs=(layout.limited(solver, part, name, size),),
            core_seconds=part * size_config(study, size).reference_seconds * limited_instances(study),
        )
        for size in sorted({run.num_customers for run in runs})
        for solver in study.references.solvers
        for part in LIMITS
        for name in study.training_variants
    ]


def _chunks(study: StudyConfig, layout: Layout, variant: str, size: int) -> list[Job]:
    """Jobs that solve a test set, each by one solver and a part of the instances."""
    starts, limit_s = chunk_starts(study, "test"), size_config(study, size).reference_seconds
    is_whole, jobs = len(starts) == 1, []
    for solver in study.references.solvers:
        whole, name = layout.reference("test", solver, variant, size), f"test-{solver}-{variant}-n{size}"
        for start in starts:
            chunk = layout.reference_chunk("test", solver, variant, size, start)
            jobs.append(
                Job(
                    rule="solve_references" if is_whole else "solve_reference_chunk",
                    name=name if is_whole else f"{name}-{start}",
                    outputs=(whole if is_whole else chunk,),
                    whole=whole,
                    core_seconds=limit_s * min(starts.step, study.datasets.test_instances - start),
                )
            )
    return jobs
