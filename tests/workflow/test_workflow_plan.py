"""What the workflow would do: jobs of each scale and target, and refusals."""

import functools
import os
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from helpers.library_texts import SOLOMON, TWINS
from helpers.snakemake import Workflow, snakemake
from helpers.studies import trained
from polarvrp.catalog.experiments import tables
from polarvrp.config.loading import load_study
from polarvrp.files import write_text
from polarvrp.machine import has_gpu_driver
from polarvrp.study.inventory import inventory
from polarvrp.study.layout import Layout
from polarvrp.study.runs import parse_run
from polarvrp.study.shipped import shipped_models
from polarvrp.study.specs import fingerprint, train_spec

ROOT = Path(__file__).parents[2]
SMALL_JOBS_GPU = "gpu=1" if has_gpu_driver() else "gpu=0"
"""Jobs of scale quick share a GPU where there is one, and run side by side where not."""

Plans = Callable[[str], dict[str, int]]

pytestmark = pytest.mark.workflow


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plans:
    """Jobs of a scale in an empty folder; each is planned once."""
    workflow = Workflow(tmp_path_factory.mktemp("plans"))
    return functools.cache(lambda scale: workflow.dry("--config", f"scale={scale}").jobs)


def test_quick_plans_every_stage(plan: Plans) -> None:
    jobs = dict(plan("quick"))
    ships = 2 if "pretrained-n20" in shipped_models() else 0
    shipped = {name: jobs.pop(name, 0) for name in ("evaluate_shipped", "evaluate_shipped_zero_shot")}
    assert sum(shipped.values()) == ships
    assert {name: jobs[name] for name in jobs if not name.startswith(("build", "draw"))} == {
        "generate_dataset": 128,
        "solve_references": 192,
        "train_policy": 22,
        "evaluate_policy": 22,
        "evaluate_zero_shot": 7,
        "evaluate_set_x": 7,
        "analyse_margins": 2,
        "analyse_experts": 1,
        "analyse_embeddings": 2,
        "analyse_architectures": 1,
        "write_report": 1,
        "all": 1,
        "total": 409 + ships,
    }


def test_paper_plans_the_whole_paper_in_chunks(plan: Plans) -> None:
    jobs = plan("paper")
    assert jobs["generate_dataset"] == 2 * 48 + 2 * 16
    assert jobs["solve_reference_chunk"] == 48 * 2 * 2 * 20
    assert jobs["merge_references"] == 48 * 2 * 2
    assert jobs["train_policy"] == jobs["evaluate_policy"] == 54
    assert jobs["evaluate_zero_shot"] == jobs["evaluate_set_x"] == 7
    assert jobs["evaluate_zero_shot_masked"] == 1, "of the one method whose flags no training set"
    assert {name.removeprefix("build_") for name in jobs if name.startswith("build_")} == set(tables())


@pytest.mark.parametrize("scale", ["quick", "laptop", "paper"])
def test_status_counts_the_jobs_that_the_workflow_plans(plan: Plans, tmp_path: Path, scale: str) -> None:
    planned = plan(scale)
    (tmp_path / "scale.yaml").write_text(f"scale: {scale}\n")
    jobs = inventory(load_study(tmp_path / "scale.yaml", ROOT / "config"), Layout(), [])
    known = {stage: len(of_stage) for stage, of_stage in jobs.items()}

    def of(*beginnings: str) -> int:
        return sum(count for rule, count in planned.items() if rule.startswith(beginnings))

    assert known == {
        "sets": of("generate_"),
        "references": of("solve_reference", "solve_limited"),
        "trainings": of("train_"),
        "evaluations": of("evaluate_policy", "evaluate_plain"),
        "shipped": of("evaluate_shipped"),
        "zero-shot": of("evaluate_zero_shot"),
        "Set-X": of("evaluate_set_x"),
        "analyses": of("analyse_"),
        "tables": of("build_"),
        "figures": of("draw_"),
        "report": of("write_report"),
    }
    assert sum(known.values()) + of("merge_", "all") == planned["total"]


def test_a_table_asks_for_what_it_compares(workflow: Workflow) -> None:
    jobs = workflow.dry("results/tables/in_distribution.parquet", "--config", "scale=paper").jobs
    assert jobs["train_policy"] == jobs["evaluate_policy"] == 14
    assert not {"solve_reference_chunk", "merge_references", "evaluate_zero_shot"}.intersection(jobs)


def test_laptop_solves_what_was_not_published_in_a_folder_of_its_own(plan: Plans, workflow: Workflow) -> None:
    jobs = plan("laptop")
    assert jobs["merge_references"] == 48 * 2 and jobs["train_policy"] == jobs["evaluate_policy"] == 37
    dry = workflow("results/laptop/tables/set_x.parquet", "--config", "scale=laptop", "--dry-run")
    assert dry.code == 0 and "results/laptop/models/polarnet-ple-polar-n50-s0/weights.safetensors" in dry.output


def test_own_file_wins_over_study_and_scale(workflow: Workflow, tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text("scale: paper\nbackbones: [polarnet]\nreferences: {solvers: []}\n")
    jobs = workflow.dry("zero_shot", "--configfile", own).jobs
    assert (jobs["train_policy"], jobs["evaluate_zero_shot"], jobs["generate_dataset"]) == (1, 1, 32 + 16)
    own.write_text(own.read_text() + "evaluation: {mask_unseen_flags: false}\n")
    alone = workflow.dry("zero_shot", "--configfile", own).jobs
    assert jobs == alone | {"evaluate_zero_shot_masked": 1, "total": alone["total"] + 1}
    picture = workflow.dry("results/figures/sample_routes.png", "--config", "scale=paper").jobs
    assert picture["evaluate_zero_shot"] == 1 and "evaluate_zero_shot_masked" not in picture


@pytest.mark.parametrize(("masked", "told"), [("false", True), ("true", True), ("both", False)])
def test_a_table_is_told_by_what_its_study_tests(workflow: Workflow, tmp_path: Path, masked: str, told: bool) -> None:
    """What an earlier study solved without flags too is no row of another's."""
    own = tmp_path / "mine.yaml"
    own.write_text(f"variants: [CVRP, MDVRP]\nevaluation: {{mask_unseen_flags: {masked}}}\n")
    words = ("results/tables/zero_shot.parquet", "results/tables/in_distribution.parquet", "--configfile", own)
    run = workflow(*words, "--dry-run", "--printshellcmds")
    assert run.code == 0 and "polarvrp tables zero_shot " in run.output, run.output
    commands = [line for line in run.output.splitlines() if "polarvrp tables " in line]
    assert ["--protocols strict published" in line for line in sorted(commands)] == [False, told]


def test_a_table_without_runs_reads_none(workflow: Workflow, tmp_path: Path) -> None:
    """Whatever models of other studies lie in the folder."""
    own = tmp_path / "mine.yaml"
    own.write_text("backbones: []\nvariants: [CVRP, MDVRP]\n")
    run = workflow("results/tables/in_distribution.parquet", "--configfile", own, "--dry-run", "--printshellcmds")
    assert run.code == 0 and " --runs --variants CVRP MDVRP " in run.output, run.output


def test_ablations_add_the_grids_and_sweeps(workflow: Workflow) -> None:
    jobs = workflow.dry("ablations").jobs
    assert jobs["train_policy"] == jobs["evaluate_policy"] == 37
    assert {name for name in jobs if name.startswith("build_")} == {
        "build_training_paradigms",
        "build_encoder_settings",
        "build_temperature",
        "build_refined_tours",
        "build_task_experts",
        "build_refinement_start",
    }
    assert {name for name in jobs if name.startswith("draw_")} == {"draw_training_paradigms", "draw_encoder_settings"}
    assert workflow.dry("all", "ablations").jobs["train_policy"] == 22 + 32


def test_trained_ablation_stays_in_its_table(workflow: Workflow, tmp_path: Path) -> None:
    table = "results/tables/training_paradigms.parquet"
    assert workflow.dry(table).jobs["evaluate_policy"] == 3
    study, run = load_study(folder=ROOT / "config"), parse_run("mvmoe_ablation-shared-po-n10-s0")
    for known, listed in ((fingerprint(train_spec(study, run)), 4), ("another", 3)):  # which would be trained again
        trained(Layout(tmp_path / "results"), run.name, known)
        assert workflow.dry(table).jobs["evaluate_policy"] == listed


def test_solvers_are_rows_where_their_solutions_are_there_or_made_anyway(workflow: Workflow, tmp_path: Path) -> None:
    own = tmp_path / "study.yaml"
    own.write_text(
        "scale: paper\nvariants: [CVRP, VRPMB]\nbackbones: [polarnet]\nexperiments: [in_distribution, zero_shot]"
    )

    def inputs(*words: str, name: str = "in_distribution") -> str:
        printed = workflow(*words, "--dry-run", "--configfile", own).output
        return printed.partition(f"build_{name}:")[2].partition("output:")[0]

    table, solutions = "results/tables/in_distribution.parquet", "references/test/pyvrp/CVRP-n50.parquet"
    assert "evaluations" in inputs(table) and "references" not in inputs(table)
    assert solutions in inputs() and solutions in inputs(table, "references")
    beside_shipped = "references/test/pyvrp/VRPMB-n50.parquet" in inputs(name="zero_shot")  # whose runs are of n = 100
    assert beside_shipped == ("pretrained-n50" in shipped_models())
    write_text(tmp_path / "results" / solutions, "by a solver")
    assert "solve_reference_chunk" not in workflow.dry(table, "--configfile", own).jobs


def test_targets_users_name(workflow: Workflow) -> None:
    targets = "all datasets references train policies evaluate zero_shot set_x ablations tables figures report"
    run = workflow.dry(*targets.split())
    assert run.code == 0 and set(targets.split()) <= set(run.jobs)


def test_any_single_file(workflow: Workflow) -> None:
    run = workflow.dry(
        "results/models/mtpomo_ablation-ple-polar-n50-s1/weights.safetensors",
        "results/tables/temperature.parquet",
        "results/tables/paper_comparison.parquet",
        "results/tables/gap_by_time.parquet",  # which no list of experiments of this scale names
        "results/references/validation/pyvrp/CVRP-n20.parquet",
        "results/datasets/test/MDVRPMBLTW-n100.npz",
        "results/set_x/polarnet-shared-po-n20-alpha0.03-s2.parquet",
        "results/evaluations/validation/polarnet-shared-po-n20-alpha0.03-s2/OVRPBLTW-n20.parquet",
    )
    assert run.code == 0
    assert run.jobs["evaluate_validation"] == 1
    assert run.jobs["build_temperature"] == run.jobs["build_gap_by_time"] == 1
    assert run.jobs["evaluate_set_x"] == 7 + 1, "those of a table that the comparison reads, and the one of its own"


@pytest.mark.parametrize(
    "path",
    [
        "results/models/cada-ple-rl-n50-s0/weights.safetensors",
        "results/datasets/test/VRPTWL-n50.npz",
        # sets of another size than the run's
        "results/evaluations/test/polarnet-ple-polar-n10-s0/CVRP-n20.parquet",
    ],
)
def test_name_that_does_not_exist_has_no_rule(workflow: Workflow, path: str) -> None:
    run = workflow.dry(path)
    assert run.code == 1 and "MissingRuleException" in run.output


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        (["--config", "sclae=paper"], None, "configuration: unknown key sclae; did you mean 'scale'?"),
        (["--config", "scale=papr"], None, "configuration: scale must be one of quick, laptop, paper, got 'papr'"),
        (["--config", "training={epochs: 5}"], None, "configuration: training.epochs must be a whole number, got '5'"),
        (
            [],
            "external_methods: [{name: hgs, label: HGS, files: [others/*.parquet]}]",
            "configuration: external_methods, hgs: others/*.parquet is no file; make it, or drop it",
        ),
        (
            [],
            "training: {instances: [mine/*.npz]}",
            "configuration: training.instances: mine/*.npz is no file; make it, or drop it from the configuration",
        ),
    ],
)
def test_mistake_in_the_configuration_is_one_line(
    workflow: Workflow, tmp_path: Path, arguments: list[str], text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "mine.yaml").write_text(f"{text}\n")
        arguments = ["--configfile", str(tmp_path / "mine.yaml")]
    run = workflow.dry(*arguments)
    assert run.code == 2
    (line,) = [line for line in run.output.splitlines() if line.startswith("configuration: ")]
    assert line.startswith(message)
    assert "Traceback" not in run.output and " File " not in run.output


def test_a_key_that_stands_twice_in_an_own_file_is_one_line(workflow: Workflow, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("seeds: [0]\nseeds: [1]\n")
    run = workflow.dry("--configfile", tmp_path / "mine.yaml")
    (line,) = [line for line in run.output.splitlines() if line.startswith("configuration: ")]
    assert run.code == 2
    assert line == f"configuration: {tmp_path}/mine.yaml, line 2: seeds stands in line 1 already; keep one"


def test_several_mistakes_are_a_line_each(workflow: Workflow, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("seeds: [-1]\ntraining: {epochs: 0, learning_rate: 3e-4, decays: 0.5}\n")
    run = workflow.dry("--configfile", tmp_path / "mine.yaml")
    assert run.code == 2
    assert [line for line in run.output.splitlines() if line.startswith("configuration: ")] == [
        "configuration: seeds[0] must be at least 0, got -1",
        "configuration: training.epochs must be above 0, got 0",
        "configuration: training.learning_rate must be a number, got '3e-4'; "
        "YAML reads 3e-4 and quoted numbers as text, write 0.0003",
        "configuration: unknown key training.decays; did you mean 'decay'?",
    ]


def test_gpu_limit_holds_without_a_profile(workflow: Workflow, tmp_path: Path) -> None:
    """The guard of ``common.smk`` sets an attribute that Snakemake does not document."""
    (tmp_path / "Snakefile").write_text(
        'workflow.global_resources.setdefault("gpu", 1)\n'
        'rule all:\n    input: expand("{job}.txt", job=list("abc"))\n'
        'rule job:\n    output: "{job}.txt"\n    resources: gpu=1\n'
        '    shell: "date +%s.%N > {output}; sleep 0.5; date +%s.%N >> {output}"\n'
    )
    run = snakemake(["--cores", "3"], tmp_path, {}, timeout_s=60)
    assert run.code == 0, run.output
    spans = sorted([float(time) for time in (tmp_path / f"{job}.txt").read_text().split()] for job in "abc")
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert 'workflow.global_resources.setdefault("gpu", 1)' in (ROOT / "workflow/rules/common.smk").read_text()


@pytest.mark.parametrize(
    ("scale", "options", "training", "evaluation"),
    [
        ("paper", [], {"gpu=1", "threads: 3"}, {"gpu=1", "threads: 3"}),  # three quarters of what there is
        ("quick", [], {SMALL_JOBS_GPU}, {SMALL_JOBS_GPU}),  # one thread, which Snakemake does not print
        (
            "paper",
            ["--set-threads", "train_policy=2", "--set-resources", "train_policy:gpu=0"],
            {"gpu=0", "threads: 2"},
            {"gpu=1", "threads: 3"},
        ),
    ],
)
def test_threads_and_gpu_of_jobs_follow_the_scale_and_then_the_profile(
    workflow: Workflow, scale: str, options: list[str], training: set[str], evaluation: set[str]
) -> None:
    run = workflow(
        "results/evaluations/test/polarnet-ple-polar-n50-s0/CVRP-n50.parquet",
        *("--dry-run", "--cores", "4", "--workflow-profile", "none"),
        *(*options, "--config", f"scale={scale}"),
    )
    for rule, expected in (("train_policy", training), ("evaluate_policy", evaluation)):
        block = run.output.partition(f"rule {rule}:")[2].partition("\nrule ")[0]
        assert set(re.findall(r"gpu=\d+|threads: \d+", block)) == expected


def test_a_folder_of_ones_own_files(workflow: Workflow, tmp_path: Path) -> None:
    """A job a file; a bad one stops no other, and its log says what is wrong."""
    own = tmp_path / "mine.yaml"
    own.write_text("solve: {folder: my files, seconds: 0.1}\n")
    for name, text in (("a/tiny.vrp", TWINS["A"]), ("c 1.txt", SOLOMON), ("bad.vrp", "nothing\n")):
        (path := tmp_path / "my files" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    run = workflow("solve", "--cores", "2", "--configfile", own, "--keep-going")
    assert run.code == 1
    solved = tmp_path / "results" / "solve"
    assert (solved / "a" / "tiny" / "tiny.sol").read_text().splitlines()[2] == "Cost 16"
    rows = [row for path in sorted(solved.rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    assert [(row["instance"], row["cost"]) for row in rows] == [("A-n4-k2", 16), ("R199", pytest.approx(15))]
    assert "bad.vrp: unknown format" in (tmp_path / "results" / "logs" / "solve_file" / "bad.log").read_text()
    (tmp_path / "my files" / "bad.vrp").unlink()
    assert workflow("solve", "--cores", "2", "--configfile", own).nothing_to_do

    assert "target solve needs the key folder of section solve" in workflow("solve", "--dry-run").output
    own.write_text("solve: {folder: nowhere}\n")
    assert "nowhere" in workflow("solve", "--dry-run", "--configfile", own).output
    own.write_text("solve: {folder: my files, model: polarnet-ple-polar-n10-s0}\n")
    assert workflow.dry("solve", "--configfile", own).jobs["train_policy"] == 1


@pytest.mark.parametrize(
    ("scale", "model"),
    [
        ("quick", "polarnet-ple-polar-n50-s0"),
        ("laptop", "results/laptop/models/polarnet-ple-polar-n50-s0"),  # the command knows runs in results alone
    ],
)
def test_own_files_are_solved_by_the_model_of_their_scale(
    workflow: Workflow, tmp_path: Path, scale: str, model: str
) -> None:
    write_text(tmp_path / "mine" / "tiny.vrp", TWINS["A"])
    own = tmp_path / "mine.yaml"
    own.write_text(f"scale: {scale}\nsolve: {{folder: mine, model: polarnet-ple-polar-n50-s0}}\n")
    run = workflow("solve", "--configfile", own, "--dry-run", "--printshellcmds")
    assert run.code == 0 and run.jobs["train_policy"] == 1, run.output
    assert f"polarvrp solve mine/tiny.vrp --model {model} --seconds 10.0" in run.output


def test_own_files_follow_a_model_that_a_path_names(workflow: Workflow, tmp_path: Path) -> None:
    """One that was trained again solves them again, and is not trained by the workflow even where that could."""
    model = Path("results/models/polarnet-ple-polar-n50-s0")
    solved, weights = tmp_path / "results/solve/tiny/solutions.parquet", tmp_path / model / "weights.safetensors"
    for time, path in ((1, weights), (1, tmp_path / "mine" / "tiny.vrp"), (2, solved)):
        write_text(path, TWINS["A"])
        os.utime(path, (time, time))
    (tmp_path / "mine.yaml").write_text(f"solve: {{folder: mine, model: {model}}}\n")
    assert "solve_file" not in workflow.dry("solve", "--configfile", "mine.yaml").jobs
    os.utime(weights, (3, 3))
    jobs = workflow.dry("solve", "--configfile", "mine.yaml").jobs
    assert jobs == {"solve": 1, "solve_file": 1, "total": 2}
