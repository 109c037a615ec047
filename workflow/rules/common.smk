# Names of files and the functions that list them; no rules. What depends on what is decided in polarvrp.study.
import json
import os
import shlex
from functools import cache
from pathlib import Path

from polarvrp.catalog import limits
from polarvrp.catalog.experiments import EXPERIMENTS, ablations, analyses, main_tables
from polarvrp.catalog.methods import METHODS, PUBLISHED_SEED, SOLVERS
from polarvrp.catalog.scales import SCALES
from polarvrp.machine import has_gpu_driver
from polarvrp.problem.variants import VARIANTS
from polarvrp.study import at_hand, experiments, external, shipped
from polarvrp.study import specs as jobs
from polarvrp.study.instances import instances_spec
from polarvrp.study.layout import UNSEEN_SPLITS, Layout
from polarvrp.study.needs import Plan
from polarvrp.study.runs import is_run_name, parse_run, run_pattern, stem_pattern, tail_pattern
from polarvrp.study.weights import weights_at

SCALE = SCALES[study.scale]
layout = Layout.of_scale(study.scale)
os.environ.update(POLARVRP_SCALE=study.scale)  # a label of trainings, no part of what they depend on
SIZED_RUN = "{stem}-n{n}{tail}"  # a run's name with its size apart: the test sets of an evaluation follow from it
DATASET = str(layout.dataset("{split}", "{variant}", "{n}"))
REFERENCE = str(layout.reference("{split}", "{solver}", "{variant}", "{n}"))
CHUNK = str(layout.reference_chunk("{split}", "{solver}", "{variant}", "{n}", "{start}"))
WEIGHTS = str(layout.weights("{run}"))
HISTORY = str(layout.history("{run}"))
METADATA = str(layout.metadata("{run}"))
EVALUATION = str(layout.evaluation("{run}", "{variant}", "{n}"))
MARGINS = str(layout.analysis("{run}", "preference_margins"))
EXPERTS = str(layout.analysis(SIZED_RUN, "expert_contributions"))
EMBEDDINGS = str(layout.analysis(SIZED_RUN, "embeddings"))
SET_X = str(layout.set_x("{run}"))
UNSEEN = {rules: str(layout.unseen_evaluation("{run}", "{variant}", "{n}", rules)) for rules in UNSEEN_SPLITS}
VALIDATED = str(layout.evaluation("{run}", "{variant}", "{n}", "validation"))
PLAIN = str(layout.evaluation("{run}", "{variant}", "{n}", limits.PLAIN))
LIMITED = str(layout.limited("{solver}", "{part}", "{variant}", "{n}"))
SHIPPED = str(layout.shipped_evaluation(f"{shipped.PREFIX}{{n}}", "{variant}", "{n}"))

STUDY_VARIANTS = study.training_variants + study.zero_shot_variants
SIZES = [size.num_customers for size in study.sizes]

with exit_on_mistake("configuration"):
    EXTERNAL_FILES = external.external_files(study.external_methods)
    # Read with each specification; a mistake in them is told here.
    jobs.initial_weights_spec(study)
    if study.training.instances is not None:
        instances_spec(study.training.instances)

# The machine's part, which a profile overrides by set-threads and set-resources. Jobs of the small scales run side by
# side, a core each, unless a GPU is there to share. At full scale every job on a GPU takes the same cores, for the
# refinement of trainings: whatever ends on a GPU leaves room for whatever is next there. A quarter of a GPU's share is
# left to solvers.
workflow.global_resources.setdefault("gpu", 1)  # the default profile says so too; here for those who bypass it

SMALL_JOBS = SCALE.small_jobs
CORES_OF_A_GPU = workflow.cores // max(workflow.global_resources["gpu"].value, 1)
ANALYSIS_THREADS = 1 if SMALL_JOBS else 4
GPU_JOB_THREADS = 1 if SMALL_JOBS else max(min(3 * CORES_OF_A_GPU // 4, 16), 1)
GPUS = 0 if SMALL_JOBS and not has_gpu_driver() else 1
TRAINING_PRIORITY = 1  # before evaluations and everything else


wildcard_constraints:
    split="test|validation",
    variant="|".join(VARIANTS),
    solver="|".join(SOLVERS),
    n=r"[1-9]\d*",
    start=r"\d+",
    part=r"0\.\d+",
    run=run_pattern(),
    stem=stem_pattern(),
    tail=tail_pattern(),


# Sets and references


def test_sets():
    return expand(DATASET, split="test", variant=STUDY_VARIANTS, n=SIZES)


def validation_sets(n=SIZES):
    return expand(DATASET, split="validation", variant=study.training_variants, n=n)


def references(n=SIZES):
    return expand(REFERENCE, split="test", solver=study.references.solvers, variant=STUDY_VARIANTS, n=n)


def chunks(wildcards):
    return expand(CHUNK, start=jobs.chunk_starts(study, wildcards.split), **wildcards)


# Runs


def run_validation_sets(wildcards):
    return validation_sets(parse_run(wildcards.run).num_customers)


def models(runs):
    return [WEIGHTS.format(run=run.name) for run in runs]


def evaluations(runs):
    variants = study.training_variants
    return [EVALUATION.format(run=run.name, variant=name, n=run.num_customers) for run in runs for name in variants]


# The user's own files; what reads them is loaded for those who have some


def own_files():
    from polarvrp.library.inputs import job_files

    if study.solve.folder is None:
        raise WorkflowError("target solve needs the key folder of section solve in the configuration")
    with exit_on_mistake("configuration"):
        return job_files(study.solve.folder)


def own_solutions(wildcards):
    return [layout.solved(stem) for stem in own_files()]


def own_file(wildcards):
    return own_files()[wildcards.file]


def own_known_solution(wildcards):
    from polarvrp.problem.known_solutions import known_solution_path

    return known_solution_path(own_file(wildcards)) or []


def own_run():
    """Name of the run of this workflow whose model solves them; none where another model does, or none."""
    model = study.solve.model
    return model if model is not None and is_run_name(model) else None


def own_model(wildcards):
    """Weights that a run of this workflow must bring, or those that a path names; models that ship are at hand."""
    run = own_run()
    return own_weights() if run is None else models([parse_run(run)])


def own_weights():
    """By their whole path, which no job makes, so that what lies in the results is followed but not trained anew."""
    model = study.solve.model
    with exit_on_mistake("configuration"):
        path = None if model is None else weights_at(model)
        if path is None:
            return []
        external.require_workflow_path(path.absolute(), "solve.model")
    return path.absolute()


def own_model_option():
    """Option of the command that names the model; none for the shipped one whose size is nearest."""
    model, run = study.solve.model, own_run()
    if run is not None and layout != Layout():
        model = str(layout.model(run))  # the command looks for runs in the usual folder only
    return "" if model is None else f"--model {shlex.quote(model)}"


# Tables and figures


def tables(names=study.experiments):
    return [layout.table(name) for name in names]


def drawn(names):
    return [layout.figure(name) for name in names if EXPERIMENTS[name].figure]


def figures():
    return drawn(experiments.reported(study))


def own_labels():
    """Labels of the study's own rows in the main tables, as the commands take them."""
    return json.dumps({method.stem: method.label for method in study.methods if method not in METHODS.values()})


def external_methods():
    """Option of the command that lists imported solutions; none without any."""
    methods = [method.model_dump() for method in study.external_methods]
    return f"--external {shlex.quote(json.dumps(methods))}" if methods else ""


@cache
def plan():
    """What experiments list and need in this call, by what was trained before it and by its targets."""
    trained = at_hand.trained_runs(study, layout)
    return Plan(study, layout, trained, workflow.dag_settings.targets)


def needs(name):
    listed = EXTERNAL_FILES if name in main_tables() else []
    return plan().files(name) + listed


# Specifications, one canonical text each


def dataset_spec(wildcards):
    return jobs.canonical(jobs.dataset_spec(study, wildcards.split, wildcards.variant, int(wildcards.n)))


@cache
def spec_of_references(split, solver, variant, n):
    return jobs.canonical(jobs.reference_spec(study, split, solver, variant, n))


def reference_spec(wildcards):
    return spec_of_references(wildcards.split, wildcards.solver, wildcards.variant, int(wildcards.n))


def run_of(wildcards):
    return parse_run(SIZED_RUN.format(**wildcards))


def of_run(specification):
    """What depends on the run that wildcards name."""
    return lambda wildcards: jobs.canonical(specification(study, run_of(wildcards)))


def limited_spec(wildcards):
    n, part = int(wildcards.n), float(wildcards.part)
    return jobs.canonical(jobs.limited_spec(study, wildcards.solver, part, wildcards.variant, n))


def part_of_limit(wildcards):
    return float(wildcards.part) * limit_of(wildcards)


def validation_spec(wildcards):
    return jobs.canonical(jobs.evaluation_spec(study, run_of(wildcards), "validation"))


def plain_spec(wildcards):
    return jobs.canonical(jobs.evaluation_spec(study, run_of(wildcards)) | {"augmentations": 1})


def train_spec(wildcards):
    run = parse_run(wildcards.run)
    with exit_on_mistake("configuration"):
        jobs.require_other_weights(study, run)
    return jobs.canonical(jobs.train_spec(study, run))


def shipped_spec(wildcards):
    return jobs.canonical(jobs.shipped_spec(study, int(wildcards.n)))


def fingerprint_of(wildcards):
    return jobs.fingerprint(jobs.train_spec(study, run_of(wildcards)))


def margins_spec(wildcards):
    return jobs.canonical(jobs.margins_spec(study, parse_run(wildcards.run)))


def architectures_spec(wildcards):
    return jobs.canonical(jobs.architectures_spec(study))


def table_spec(table):
    """With the times of solvers' solutions that are there: as inputs they would be solved again, which may take weeks."""
    spec = jobs.table_spec(study, table, plan().runs(table))
    if "solvers" in EXPERIMENTS[table].needs:
        inputs = set(map(str, plan().files(table)))
        parts = limits.LIMITS if "efforts" in EXPERIMENTS[table].needs else ()
        beside = at_hand.solved_beside(layout, plan().variants(table), plan().shown_sizes(table), inputs, parts)
        spec |= {"solved": beside} if beside else {}
    return jobs.canonical(spec)


def figure_spec(figure):
    return jobs.canonical(jobs.figure_spec(study, figure, plan().runs(figure)))


def report_spec(wildcards):
    return jobs.canonical(jobs.report_spec(study, experiments.reported(study)))


# Single settings, as command lines want them


def results_root(wildcards):
    return layout.root


def seed_of(wildcards):
    return getattr(study.datasets, f"{wildcards.split}_seed")


def instances_of(wildcards):
    return getattr(study.datasets, f"{wildcards.split}_instances")


def limit_of(wildcards):
    return jobs.size_config(study, int(wildcards.n)).reference_seconds


def flags_options(masked):
    """What networks are told of attributes that they never saw, as the command takes it."""
    masking = ["--mask-unseen-flags"] if masked else []
    return masking + ([] if study.evaluation.mb_sets_b else ["--mixed-backhauls-only"])


def only_runs(runs):
    """Option of the commands that look for runs; they read none where it names none."""
    return ["--runs", *(run.name for run in runs)]


def only_variants():
    """Option of the commands that look for solutions; none where the study has every variant."""
    return [] if set(STUDY_VARIANTS) == set(VARIANTS) else ["--variants", *STUDY_VARIANTS]


def only_tables(name):
    """Option of the command for a table that is computed from others; none for the rest."""
    read = experiments.other_tables(study, name) if "tables" in EXPERIMENTS[name].needs else []
    return ["--compared", *read] if read else []


def only_protocols(name):
    """Option of the command for a table of unseen variants; none where the study tests with and without flags."""
    all_asked = study.evaluation.mask_unseen_flags == "both" or "masked_flags" not in EXPERIMENTS[name].needs
    return [] if all_asked else ["--protocols", *jobs.PROTOCOLS]
