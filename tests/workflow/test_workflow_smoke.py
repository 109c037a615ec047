"""The smallest study through every stage, with a row of one's own; then what makes its jobs run again."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from safetensors.numpy import load_file

from helpers.own_package import install_package
from helpers.snakemake import Workflow
from polarvrp.cli.main import main
from polarvrp.config.loading import load_study
from polarvrp.config.study import StudyConfig
from polarvrp.study.runs import parse_run
from polarvrp.study.specs import fingerprint, train_spec

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "config" / "tiny.yaml"
RUN = "polarnet-ple-polar-n10-s0"
UNSEEN = {"evaluate_zero_shot", "evaluate_zero_shot_masked"}
OWN_ROW = {"name": "nodewise", "encoder": "shared", "paradigm": "po", "label": "Nodewise"}
METHODS = (*(f"polarnet-ple-{paradigm}-s0" for paradigm in ("rl", "po", "polar")), "nodewise-shared-po-s0")

pytestmark = pytest.mark.workflow


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """A folder in which the smallest study, with a backbone from outside the package, ran to its end."""
    folder = tmp_path_factory.mktemp("study")
    workflow = Workflow(folder, install_package(folder))
    write_study(folder / "study.yaml")
    run = workflow("--cores", "2", "--configfile", "study.yaml", "--workflow-profile", "none")
    assert run.code == 0, run.output[-5000:]
    return workflow


@pytest.fixture(scope="module")
def study() -> StudyConfig:
    return load_study(TINY, ROOT / "config")


def write_study(path: Path, **sections: dict[str, Any]) -> Path:
    """The smallest study with a row of one's own, and with other values."""
    study = yaml.safe_load(TINY.read_text())
    study["backbones"].append(OWN_ROW)
    for name, values in sections.items():
        study[name] = {**study.get(name, {}), **values}
    path.write_text(yaml.safe_dump(study))
    return path


def trained(jobs: dict[str, int]) -> set[str]:
    """Rules of a plan but for those that only draw and report."""
    return {name for name in jobs if not name.startswith(("build_", "draw_", "write_", "all", "total"))}


def test_every_table_comes_in_four_formats(finished: Workflow, study: StudyConfig) -> None:
    for name in study.experiments:
        for suffix in ("parquet", "csv", "md", "tex"):
            assert (finished.folder / f"results/tables/{name}.{suffix}").stat().st_size > 0
        table = pq.read_table(finished.folder / f"results/tables/{name}.parquet")
        assert table.num_rows > 0 and set(table["scale"].to_pylist()) == {"quick"}


def test_every_method_is_on_every_variant(finished: Workflow) -> None:
    table = pq.read_table(finished.folder / "results/tables/in_distribution.parquet")
    rows = {
        (row["variant"], row["num_customers"], row["method"]): row
        for row in table.to_pylist()
        if row["num_customers"] == 10  # models of other sizes may ship
    }
    methods = ("pyvrp", "ortools", *METHODS)
    assert set(rows) == {(variant, 10, method) for variant in ("CVRP", "OVRPBLTW") for method in methods}
    for row in rows.values():
        assert row["instances"] == 4 and row["reference"] == "pyvrp" and row["objective"] > 0
    assert rows["CVRP", 10, "pyvrp"]["gap_percent"] == 0
    zero_shot = pq.read_table(finished.folder / "results/tables/zero_shot.parquet").to_pylist()
    unseen = {(row["variant"], row["method"], row["protocol"]) for row in zero_shot if row["num_customers"] == 10}
    protocols = ("strict", "strict-masked", "published", "published-masked")
    assert {row for row in unseen if row[1] == "polarnet-ple-polar-s0"} == {
        (variant, "polarnet-ple-polar-s0", protocol) for variant in ("VRPMB", "MDVRP") for protocol in protocols
    }


@pytest.mark.parametrize("name", ["in_distribution", "zero_shot", "set_x"])
def test_a_row_of_ones_own_is_in_every_main_table_under_its_label(finished: Workflow, name: str) -> None:
    tables = finished.folder / "results/tables"
    rows = [row for row in pq.read_table(tables / f"{name}.parquet").to_pylist() if row["method"] == METHODS[-1]]
    assert rows and all(row.get("objective", row.get("cost")) > 0 for row in rows)
    for suffix in ("md", "tex"):
        assert "Nodewise" in (tables / f"{name}.{suffix}").read_text()


def test_solutions_are_feasible_and_priced_exactly(finished: Workflow, capsys: pytest.CaptureFixture[str]) -> None:
    results = finished.folder / "results"
    for variant in ("CVRP", "OVRPBLTW", "VRPMB", "MDVRP"):
        for solutions in (
            f"references/test/pyvrp/{variant}-n10.parquet",
            f"evaluations/test/{RUN}/{variant}-n10.parquet",
        ):
            assert main(["check", str(results / f"datasets/test/{variant}-n10.npz"), str(results / solutions)]) == 0
    capsys.readouterr()


def test_chunks_make_one_set(finished: Workflow) -> None:
    table = pq.read_table(finished.folder / "results/references/test/ortools/CVRP-n10.parquet")
    assert table["instance"].to_pylist() == [0, 1, 2, 3]


def test_models_say_what_they_are(finished: Workflow, study: StudyConfig) -> None:
    folder = finished.folder / "results/models" / RUN
    assert {path.name for path in folder.iterdir()} == {
        "weights.safetensors",
        "config.yaml",
        "history.parquet",
        "metadata.json",
    }
    spec = train_spec(study, parse_run(RUN))
    assert yaml.safe_load((folder / "metadata.json").read_text())["fingerprint"] == fingerprint(spec)
    assert (finished.folder / "results/checkpoints" / RUN / fingerprint(spec) / "history.jsonl").is_file()
    history = pq.read_table(folder / "history.parquet")
    assert history["epoch"].to_pylist() == [1, 2, 3]
    refined = history["refined_tours"].to_pylist()
    assert refined[:2] == [0, 0] and refined[2] > 0


def test_each_training_left_one_offline_run(finished: Workflow) -> None:
    runs = [path.name.split("-", 3)[3] for path in (finished.folder / "results/wandb").glob("offline-run-*")]
    assert sorted(runs) == sorted(method.replace("-s0", "-n10-s0") for method in METHODS)


def test_report_is_one_page_that_needs_nothing_else(finished: Workflow) -> None:
    page = (finished.folder / "results/report.html").read_text()
    assert "Nothing here is a result" in page and page.count("Nodewise") >= 3
    figures = list((finished.folder / "results/figures").glob("*.png"))
    assert page.count("<table id=") >= 4 and page.count("data:image/png;base64,") == len(figures) >= 4
    assert not any(
        f'{attribute}="{scheme}' in page for attribute in ("src", "href") for scheme in ("http", "/", "results")
    )


def test_every_job_left_its_log(finished: Workflow) -> None:
    logs = {path.name for path in (finished.folder / "results/logs").iterdir()}
    assert {"generate_dataset", "train_policy", "evaluate_policy", "build_in_distribution", "write_report"} <= logs


def test_second_run_does_nothing(finished: Workflow, tmp_path: Path) -> None:
    reordered = tmp_path / "reordered.yaml"
    content = {
        key: dict(reversed(part.items())) if isinstance(part, dict) else part
        for key, part in yaml.safe_load((finished.folder / "study.yaml").read_text()).items()
    }
    reordered.write_text(yaml.safe_dump(dict(reversed(content.items())), sort_keys=False))
    assert finished("--cores", "1", "--configfile", reordered).nothing_to_do


def test_other_temperature_reruns_preference_trainings_only(finished: Workflow, tmp_path: Path) -> None:
    jobs = finished.dry("--configfile", write_study(tmp_path / "altered.yaml", training={"temperature": 0.04})).jobs
    assert trained(jobs) == {"train_policy", "evaluate_policy", "evaluate_set_x", *UNSEEN}
    assert jobs["train_policy"] == jobs["evaluate_policy"] == 3 and all(jobs[rule] == 2 for rule in UNSEEN)


def test_other_test_seed_leaves_validation_and_models(finished: Workflow, tmp_path: Path) -> None:
    jobs = finished.dry("--configfile", write_study(tmp_path / "altered.yaml", datasets={"test_seed": 5})).jobs
    assert "train_policy" not in jobs and "evaluate_set_x" not in jobs
    assert (jobs["generate_dataset"], jobs["solve_reference_chunk"], jobs["evaluate_policy"]) == (4, 16, 4)


def test_other_augmentations_rerun_evaluations_only(finished: Workflow, tmp_path: Path) -> None:
    jobs = finished.dry("--configfile", write_study(tmp_path / "altered.yaml", evaluation={"augmentations": 1})).jobs
    assert trained(jobs) == {"evaluate_policy", "evaluate_set_x", *UNSEEN}


def test_flags_that_are_not_masked_any_more_evaluate_nothing(finished: Workflow, tmp_path: Path) -> None:
    jobs = finished.dry(
        "--configfile", write_study(tmp_path / "altered.yaml", evaluation={"mask_unseen_flags": False})
    ).jobs
    assert trained(jobs) == set() and jobs["build_zero_shot"] == 1


def test_another_way_of_drawing_makes_pictures_and_report_alone(finished: Workflow, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("from polarvrp.study import specs\nspecs.FIGURE_CODE_VERSION = 99\n")
    paths = os.pathsep.join([str(tmp_path), finished.variables["PYTHONPATH"]])
    jobs = Workflow(finished.folder, {"PYTHONPATH": paths}).dry("--configfile", "study.yaml").jobs
    assert jobs["draw_in_distribution"] == jobs["draw_training_curves"] == 1
    assert {name for name in jobs if not name.startswith("draw_")} == {"write_report", "all", "total"}


def test_lost_set_is_remade_alone_and_byte_by_byte(finished: Workflow) -> None:
    path = finished.folder / "results/datasets/test/MDVRP-n10.npz"
    before = path.read_bytes()
    path.unlink()
    run = finished("datasets", "--cores", "1", "--configfile", "study.yaml")
    assert run.code == 0 and run.jobs == {"generate_dataset": 1, "datasets": 1, "total": 2}
    assert path.read_bytes() == before
    assert finished("--cores", "2", "--configfile", "study.yaml").nothing_to_do


def test_lost_weights_come_back_from_the_state_without_training(finished: Workflow) -> None:
    folder = finished.folder / "results/models" / RUN
    before = load_file(folder / "weights.safetensors")
    history = pq.read_table(folder / "history.parquet")
    (folder / "weights.safetensors").unlink()
    run = finished(f"results/models/{RUN}/weights.safetensors", "--cores", "1", "--configfile", "study.yaml")
    assert run.code == 0, run.output[-3000:]
    after = load_file(folder / "weights.safetensors")
    assert after.keys() == before.keys() and all((after[name] == before[name]).all() for name in before)
    assert pq.read_table(folder / "history.parquet") == history
    log = (finished.folder / f"results/logs/train_policy/{RUN}.log").read_text()
    assert "epoch 1:" not in log


def test_killed_training_goes_on_where_it_stopped(workflow: Workflow) -> None:
    """Process group killed after the first epoch; the same command, with the project's own profile, resumes."""
    target = "results/models/polarnet-shared-rl-n10-s0/weights.safetensors"
    arguments = (target, "--cores", "1", "--configfile", TINY, "--workflow-profile", ROOT / "profiles/default")
    process = subprocess.Popen(
        workflow.command(*arguments),
        cwd=workflow.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline_s = time.monotonic() + 200
    states = workflow.folder / "results/checkpoints"
    while not any(path.stat().st_size for path in states.glob("*/*/history.jsonl")):
        assert process.poll() is None and time.monotonic() < deadline_s
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (workflow.folder / target).exists()

    shutil.rmtree(workflow.folder / ".snakemake/locks")  # what --unlock does
    run = workflow(*arguments)
    assert run.code == 0, run.output[-3000:]
    log = (workflow.folder / "results/logs/train_policy/polarnet-shared-rl-n10-s0.log").read_text()
    assert "resumed at epoch" in log and "epoch 1:" not in log
    history = pq.read_table((workflow.folder / target).with_name("history.parquet"))
    assert history["epoch"].to_pylist() == [1, 2, 3]
