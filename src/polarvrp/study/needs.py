"""What experiments are computed from: jobs of the workflow, and the files that these make; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.catalog.limits import LIMITS, PLAIN
from polarvrp.catalog.scales import SCALES
from polarvrp.config.study import StudyConfig
from polarvrp.study.at_hand import beside
from polarvrp.study.experiments import asked_runs, masked_runs, other_tables, table_runs
from polarvrp.study.layout import UNSEEN_SPLITS, Layout, unseen_protocols
from polarvrp.study.runs import RunSpec
from polarvrp.study.shipped import shipped_models, shipped_name, shipped_size
from polarvrp.study.specs import chunk_starts, limited_instances, size_config


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job of the workflow.

    Attributes:
        rule: Folder of its log.
        name: Of its log.
        outputs: Files that exist once it is done; of a need, those that it asks for.
        whole: File that makes it needless, such as the merged set of its chunk.
        run: Trained model that it makes or tests.
        test_sets: Variant and size of those that it makes or reads.
        core_seconds: What it costs, where its settings say so.
    """

    rule: str
    name: str
    outputs: tuple[Path, ...]
    whole: Path | None = None
    run: RunSpec | None = None
    test_sets: tuple[tuple[str, int], ...] = ()
    core_seconds: float | None = None


class Plan:
    """What the experiments of a study list, and what they need for that.

    Attributes:
        study: The study.
        layout: Of its results.
        runs: Function from an experiment's name to its runs: those that it compares, and others that are there or made
            by a target anyway.
        all_are_solved: Whether a target makes references of every size, whatever tables need.
        shipped_sizes: Sizes of models that ship, where no published solution is of the study's test sets; solutions of
            others come with the models.
    """

    def __init__(
        self, study: StudyConfig, layout: Layout, trained: Collection[RunSpec], targets: Collection[str] = ()
    ) -> None:
        """Plan of a study.

        Args:
            study: The study.
            layout: Of its results.
            trained: Runs that were trained, which tables may list beside those that they ask for.
            targets: Targets of the workflow that were named; none means all.
        """
        made, everything = asked_runs(study, targets), not targets or "all" in targets
        self.study, self.layout = study, layout
        self.runs = cache(lambda name: table_runs(study, name, beside(study, layout, name, trained, made)))
        self.all_are_solved = "references" in targets or (everything and SCALES[study.scale].solves_everywhere)
        self.shipped_sizes = [size for size in study.solved_sizes if shipped_name(size) in shipped_models()]

    def jobs(self, name: str) -> list[Job]:
        """Jobs whose outputs an experiment is computed from, need by need."""
        return [job for need in EXPERIMENTS[name].needs for job in NEEDS[need](self, name) if job.outputs]

    def files(self, name: str) -> list[Path]:
        """Those outputs, and for parts of a set the whole.

        Snakemake counts how often an input is listed, so what two needs ask for stays there twice.
        """
        files: list[Path] = []
        for need in EXPERIMENTS[name].needs:
            jobs = NEEDS[need](self, name)
            files += dict.fromkeys(path for job in jobs for path in ((job.whole,) if job.whole else job.outputs))
        return files

    def sizes(self, name: str) -> list[int]:
        """Sizes of an experiment's runs."""
        return sorted({run.num_customers for run in self.runs(name)})

    def shown_sizes(self, name: str) -> list[int]:
        """Those of its runs, and of shipped models, which may be rows whatever the study solves."""
        ships = shipped_models() if "shipped" in EXPERIMENTS[name].needs else []
        return sorted({*self.sizes(name), *map(shipped_size, ships)})

    def variants(self, name: str) -> tuple[str, ...]:
        """Variants of a table of test sets."""
        unseen = "unseen_variants" in EXPERIMENTS[name].needs
        return self.study.zero_shot_variants if unseen else self.study.training_variants

    def references(self, variants: Iterable[str], sizes: Iterable[int]) -> list[Job]:
        """Jobs that solve test sets, each by one solver and a part of the instances."""
        solved = product(self.study.references.solvers, variants, sizes)
        return [job for solver, variant, size in solved for job in self._chunks(solver, variant, size)]

    def _chunks(self, solver: str, variant: str, size: int) -> list[Job]:
        starts, limit_s = chunk_starts(self.study, "test"), size_config(self.study, size).reference_seconds
        whole, name = self.layout.reference("test", solver, variant, size), f"test-{solver}-{variant}-n{size}"
        is_whole = len(starts) == 1
        return [
            Job(
                rule="solve_references" if is_whole else "solve_reference_chunk",
                name=name if is_whole else f"{name}-{start}",
                outputs=(whole if is_whole else self.layout.reference_chunk("test", solver, variant, size, start),),
                whole=whole,
                test_sets=((variant, size),),
                core_seconds=limit_s * min(starts.step, self.study.datasets.test_instances - start),
            )
            for start in starts
        ]


def _of_runs(
    rule: str, runs: Iterable[RunSpec], outputs: Callable[[RunSpec], Iterable[Path]], variants: Collection[str] = ()
) -> list[Job]:
    """A job a run, which reads the test sets of some variants."""
    return [
        Job(
            rule=rule,
            name=run.name,
            outputs=tuple(outputs(run)),
            run=run,
            test_sets=tuple((variant, run.num_customers) for variant in variants),
        )
        for run in runs
    ]


def _tests(
    plan: Plan, rule: str, runs: Iterable[RunSpec], variants: Collection[str], splits: Collection[str]
) -> list[Job]:
    """Solutions of some variants by runs, once for each folder that they lie in."""

    def outputs(run: RunSpec) -> Iterable[Path]:
        sets = product(splits, variants)
        return (plan.layout.evaluation(run.name, variant, run.num_customers, split) for split, variant in sets)

    return _of_runs(rule, runs, outputs, variants)


def _solved(plan: Plan, name: str, variants: Iterable[str]) -> list[Job]:
    """References of the sizes of an experiment's runs that nobody published."""
    return plan.references(variants, [size for size in plan.sizes(name) if size in plan.study.solved_sizes])


def _training_variants(plan: Plan, name: str) -> list[Job]:
    variants = plan.study.training_variants
    return _tests(plan, "evaluate_policy", plan.runs(name), variants, ["test"]) + _solved(plan, name, variants)


def _unseen_variants(plan: Plan, name: str) -> list[Job]:
    """By the rules of the problem and by those of the published environments."""
    variants = plan.study.zero_shot_variants
    splits = [UNSEEN_SPLITS[protocol] for protocol in unseen_protocols(masked=False)]
    return _tests(plan, "evaluate_zero_shot", plan.runs(name), variants, splits) + _solved(plan, name, variants)


def _masked_flags(plan: Plan, name: str) -> list[Job]:
    runs = masked_runs(plan.study, plan.runs(name))
    splits = [UNSEEN_SPLITS[protocol] for protocol in unseen_protocols(masked=True)]
    return _tests(plan, "evaluate_zero_shot_masked", runs, plan.study.zero_shot_variants, splits)


def _solvers(plan: Plan, name: str) -> list[Job]:
    """Solutions that a table shows and that no gap needs, where they are made anyway."""
    published = {size.num_customers for size in plan.study.sizes}.difference(plan.study.solved_sizes)
    shown = published.intersection(plan.shown_sizes(name)) if plan.all_are_solved else set()
    return plan.references(plan.variants(name), sorted(shown))


def _by_shipped(plan: Plan, variants: tuple[str, ...]) -> list[Job]:
    """Solutions by models that ship; of training variants and of unseen ones by a rule each."""
    is_unseen = variants == plan.study.zero_shot_variants
    return [
        Job(
            rule="evaluate_shipped_zero_shot" if is_unseen else "evaluate_shipped",
            name=f"n{size}",
            outputs=tuple(plan.layout.shipped_evaluation(shipped_name(size), variant, size) for variant in variants),
            test_sets=tuple((variant, size) for variant in variants),
        )
        for size in plan.shipped_sizes
    ]


def _shipped(plan: Plan, name: str) -> list[Job]:
    variants = plan.variants(name)
    return _by_shipped(plan, variants) + plan.references(variants, plan.shipped_sizes)


def _shipped_routes(plan: Plan, name: str) -> list[Job]:
    study = plan.study
    drawn = _by_shipped(plan, study.training_variants) + _by_shipped(plan, study.zero_shot_variants)
    return drawn + _test_sets(plan, plan.shipped_sizes)


def _test_sets(plan: Plan, sizes: Iterable[int]) -> list[Job]:
    return [
        Job(
            rule="generate_dataset",
            name=f"test-{variant}-n{size}",
            outputs=(plan.layout.dataset("test", variant, size),),
            test_sets=((variant, size),),
        )
        for variant, size in product(plan.study.training_variants + plan.study.zero_shot_variants, sizes)
    ]


def _efforts(plan: Plan, name: str) -> list[Job]:
    """Solutions of training variants without symmetries, and by solvers in parts of their limit."""
    study, layout, variants = plan.study, plan.layout, plan.study.training_variants
    limited = product(study.references.solvers, LIMITS, variants, plan.sizes(name))
    return _tests(plan, "evaluate_plain", plan.runs(name), variants, [PLAIN]) + [
        Job(
            rule="solve_limited",
            name=f"{solver}-{part}-{variant}-n{size}",
            outputs=(layout.limited(solver, part, variant, size),),
            test_sets=((variant, size),),
            core_seconds=part * size_config(study, size).reference_seconds * limited_instances(study),
        )
        for solver, part, variant, size in limited
    ]


def _histories(plan: Plan, name: str) -> list[Job]:
    files = plan.layout.history, plan.layout.metadata
    return _of_runs("train_policy", plan.runs(name), lambda run: [path(run.name) for path in files])


def _analysed(plan: Plan, name: str, kind: str, file: str, *, tests: bool) -> list[Job]:
    variants = plan.study.training_variants if tests else ()
    return _of_runs(f"analyse_{kind}", plan.runs(name), lambda run: [plan.layout.analysis(run.name, file)], variants)


def _tables(plan: Plan, name: str) -> list[Job]:
    others = other_tables(plan.study, name)
    return [Job(rule=f"build_{other}", name=other, outputs=(plan.layout.table(other),)) for other in others]


NEEDS: dict[str, Callable[[Plan, str], list[Job]]] = {
    "training_variants": _training_variants,
    "unseen_variants": _unseen_variants,
    "masked_flags": _masked_flags,
    "solvers": _solvers,
    "shipped": _shipped,
    "shipped_routes": _shipped_routes,
    "efforts": _efforts,
    "test_sets": lambda plan, name: _test_sets(plan, plan.sizes(name)),
    "set_x": lambda plan, name: _of_runs("evaluate_set_x", plan.runs(name), lambda run: [plan.layout.set_x(run.name)]),
    "histories": _histories,
    "margins": lambda plan, name: _analysed(plan, name, "margins", "preference_margins", tests=False),
    "experts": lambda plan, name: _analysed(plan, name, "experts", "expert_contributions", tests=True),
    "embeddings": lambda plan, name: _analysed(plan, name, "embeddings", "embeddings", tests=True),
    "architectures": lambda plan, name: [
        Job(rule="analyse_architectures", name="all", outputs=(plan.layout.architectures,))
    ],
    "tables": _tables,
}
"""Jobs whose outputs a need of an experiment means, from the experiment's name."""
