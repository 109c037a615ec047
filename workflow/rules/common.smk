# Names of files and the functions that list them; no rules. What depends on what is decided in polarvrp.study.
from functools import partial
from pathlib import Path

from polarvrp.study import experiments
from polarvrp.study import specs as jobs
from polarvrp.study.runs import RUN_PATTERN, STEM_PATTERN, TAIL_PATTERN, parse_run
from polarvrp.problem.variants import VARIANTS
from polarvrp.config.study import EXPERIMENTS, GRIDS, SWEEPS

DATASET = "results/datasets/{split}/{variant}-n{n}.npz"
REFERENCE = "results/references/{split}/{solver}/{variant}-n{n}.parquet"
CHUNK = "results/references/{split}/{solver}/chunks/{variant}-n{n}-{start}.parquet"
WEIGHTS = "results/models/{run}/weights.safetensors"
HISTORY = "results/models/{run}/history.parquet"
METADATA = "results/models/{run}/metadata.json"
SIZED_RUN = "{stem}-n{n}{tail}"  # a run's name with its size apart: the test sets of an evaluation follow from it
EVALUATION = "results/evaluations/test/{run}/{variant}-n{n}.parquet"
SET_X = "results/set_x/{run}.parquet"

STUDY_VARIANTS = study.training_variants + study.zero_shot_variants
SIZES = [size.num_customers for size in study.sizes]
# Seconds of an evaluation go into a table: at full scale nothing runs beside it.
EVALUATION_THREADS = 1 if study.scale == "quick" else workflow.cores

workflow.global_resources.setdefault("gpu", 1)  # the default profile says so too; here for those who bypass it


wildcard_constraints:
    split="test|validation",
    variant="|".join(VARIANTS),
    solver="pyvrp|ortools",
    n=r"[1-9]\d*",
    start=r"\d+",
    run=RUN_PATTERN,
    stem=STEM_PATTERN,
    tail=TAIL_PATTERN,


# Sets and references


def test_sets(n=SIZES, variants=STUDY_VARIANTS):
    return expand(DATASET, split="test", variant=variants, n=n)


def validation_sets(n=SIZES):
    return expand(DATASET, split="validation", variant=study.training_variants, n=n)


def references(n=SIZES, variants=STUDY_VARIANTS):
    return expand(REFERENCE, split="test", solver=study.references.solvers, variant=variants, n=n)


def chunks(wildcards):
    return expand(CHUNK, start=jobs.chunk_starts(study, wildcards.split), **wildcards)


# Runs


def run_validation_sets(wildcards):
    return validation_sets(parse_run(wildcards.run).num_customers)


def models(runs):
    return [WEIGHTS.format(run=run.name) for run in runs]


def histories(runs):
    return [path.format(run=run.name) for run in runs for path in (HISTORY, METADATA)]


def evaluations(runs, variants=study.training_variants):
    return [EVALUATION.format(run=run.name, variant=name, n=run.num_customers) for run in runs for name in variants]


def set_x_costs(runs):
    return [SET_X.format(run=run.name) for run in runs]


def extra_ablations():
    """Ablations that the scale does not name are listed in tables once trained, or when target ablations is asked."""
    asked = "ablations" in workflow.dag_settings.targets
    return [run for run in experiments.ablation_runs(study) if asked or Path(WEIGHTS.format(run=run.name)).exists()]


def listed_runs(table):
    return experiments.table_runs(study, table, extra_ablations())


def transfer_runs():
    return experiments.experiment_runs(study, "zero_shot")


# Tables and figures


def tables(names=study.experiments):
    return expand("results/tables/{table}.parquet", table=names)


def gap_inputs(table, variants=study.training_variants):
    runs = listed_runs(table)
    sizes = sorted({run.num_customers for run in runs})
    return evaluations(runs, variants) + references(sizes, variants)


def grid_inputs(table):
    return gap_inputs(table) + histories(listed_runs(table))


TABLE_INPUTS = {
    "in_distribution": gap_inputs,
    "zero_shot": partial(gap_inputs, variants=study.zero_shot_variants),
    "set_x": lambda table: set_x_costs(listed_runs(table)),
    **dict.fromkeys((*GRIDS, *SWEEPS), grid_inputs),
    "training_cost": lambda table: histories(listed_runs(table)),
    "paper_comparison": lambda table: tables([name for name in study.experiments if name != table]),
}
FIGURE_INPUTS = {
    **{figure: tables([figure]) for figure in ("in_distribution", "zero_shot", *GRIDS)},
    "training_curves": histories(experiments.main_runs(study)),
}


def figures():
    names = [name for name in FIGURE_INPUTS if name in study.experiments or name == "training_curves"]
    return expand("results/figures/{figure}.png", figure=names)


# Specifications, one canonical text each


def dataset_spec(wildcards):
    return jobs.canonical(jobs.dataset_spec(study, wildcards.split, wildcards.variant, int(wildcards.n)))


def reference_spec(wildcards):
    spec = jobs.reference_spec(study, wildcards.split, wildcards.solver, wildcards.variant, int(wildcards.n))
    return jobs.canonical(spec)


def run_of(wildcards):
    return parse_run(SIZED_RUN.format(**wildcards))


def train_spec(wildcards):
    return jobs.canonical(jobs.train_spec(study, parse_run(wildcards.run)))


def evaluation_spec(wildcards):
    return jobs.canonical(jobs.evaluation_spec(study, run_of(wildcards)))


def set_x_spec(wildcards):
    return jobs.canonical(jobs.set_x_spec(study, run_of(wildcards)))


def fingerprint_of(wildcards):
    return jobs.fingerprint(jobs.train_spec(study, run_of(wildcards)))


def table_spec(table):
    return jobs.canonical(jobs.table_spec(study, table, listed_runs(table)))


# Single settings, as command lines want them


def seed_of(wildcards):
    return getattr(study.datasets, f"{wildcards.split}_seed")


def instances_of(wildcards):
    return getattr(study.datasets, f"{wildcards.split}_instances")


def limit_of(wildcards):
    return jobs.size_config(study, int(wildcards.n)).reference_seconds


def names_of(runs):
    return [run.name for run in runs]
