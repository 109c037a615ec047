"""What of a study is done, runs, failed or is missing, by files that are made here."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.studies import study, trained
from polarvrp.cli.main import main
from polarvrp.cli.status import data_size, time_needed
from polarvrp.config.study import StudyConfig
from polarvrp.files import write_parquet, write_text
from polarvrp.outputs import marked
from polarvrp.study import shipped
from polarvrp.study.inventory import inventory
from polarvrp.study.layout import FIGURE_SUFFIXES, TABLE_SUFFIXES, Layout
from polarvrp.study.needs import Job
from polarvrp.study.runs import parse_run
from polarvrp.study.specs import fingerprint, train_spec
from polarvrp.study.status import Status, study_status

ROOT = Path(__file__).parents[2]
RUN, OTHER = "polarnet-ple-polar-n50-s0", "mtpomo-shared-rl-n50-s0"


@pytest.fixture
def small(tmp_path: Path) -> StudyConfig:
    return study(
        tmp_path,
        scale="paper",
        variants=["CVRP", "VRPMB"],
        sizes=[{"num_customers": 50, "batch_size": 256, "reference_seconds": 10.0}],
        transfer_size=50,
        backbones=["mtpomo", "polarnet"],
        experiments=["in_distribution", "zero_shot"],
    )


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "results")


def make(paths: tuple[Path, ...]) -> None:
    for path in paths:
        write_text(path, "x" * 10)


def counts(status: Status, stage: str) -> dict[str, int]:
    states = status.states[stage]
    return {state: states.count(state) for state in dict.fromkeys(states)}


def test_an_empty_folder_has_everything_to_do(small: StudyConfig, layout: Layout) -> None:
    status = study_status(small, layout)
    assert {stage: set(states) for stage, states in status.states.items() if states} == {
        stage: {"missing"} for stage in status.states if status.states[stage]
    }
    assert {stage: len(status.states[stage]) for stage in ("sets", "references", "trainings", "evaluations")} == {
        "sets": 1 + 2,
        "references": 2 * 2 * 20,
        "trainings": 2,
        "evaluations": 2,
    }
    assert status.reference_core_seconds == 2 * 2 * 1000 * 10.0
    assert [training.seconds for training in status.trainings] == [None, None]
    assert status.disk == {}


def test_chunks_are_done_by_themselves_or_by_the_set_that_they_became(small: StudyConfig, layout: Layout) -> None:
    make(tuple(layout.reference_chunk("test", "pyvrp", "CVRP", 50, start) for start in (0, 50)))
    make((layout.reference("test", "ortools", "VRPMB", 50),))
    status = study_status(small, layout)
    assert counts(status, "references") == {"done": 2 + 20, "missing": 58}
    assert status.reference_core_seconds == 58 * 50 * 10.0
    assert status.disk == {"references": 30}


def test_a_log_without_results_is_a_job_that_runs_while_a_process_writes_it_and_failed_after(
    small: StudyConfig, layout: Layout
) -> None:
    log = layout.log("evaluate_policy", RUN)
    log.parent.mkdir(parents=True)
    with log.open("w") as file:
        file.write("out of memory\n")
        file.flush()
        status = study_status(small, layout)
        assert counts(status, "evaluations") == {"missing": 1, "running": 1} and status.failed == []
    status = study_status(small, layout)
    assert counts(status, "evaluations") == {"missing": 1, "failed": 1} and status.failed == [log]


def test_the_rest_of_a_training_takes_as_long_as_its_last_epochs_and_another_as_those_most_like_it(
    small: StudyConfig, layout: Layout
) -> None:
    state = layout.checkpoints(RUN) / fingerprint(train_spec(small, parse_run(RUN)))
    rows = [{"seconds": seconds, "seconds_validate": 1.0} for seconds in (99.0, 9.0, 9.0, 9.0)]
    write_text(state / "history.jsonl", "\n".join(map(json.dumps, rows)))
    other, own = study_status(small, layout).trainings
    assert (own.run, own.epochs, own.total_epochs, own.seconds) == (RUN, 4, 300, 296 * 10.0)
    assert (other.run, other.epochs, other.seconds) == (OTHER, 0, 300 * 10.0)
    (state / "lock").touch()
    with (state / "lock").open():
        assert counts(study_status(small, layout), "trainings") == {"missing": 1, "running": 1}


def test_a_complete_training_tells_the_time_of_the_others(small: StudyConfig, layout: Layout) -> None:
    trained(layout, OTHER, fingerprint(train_spec(small, parse_run(OTHER))))
    (left,) = study_status(small, layout).trainings
    assert left.run == RUN and left.seconds == 600.0


def test_a_model_of_another_configuration_is_missing(small: StudyConfig, layout: Layout) -> None:
    trained(layout, RUN, "0123456789abcdef")
    status = study_status(small, layout)
    assert status.outdated == [RUN] and counts(status, "trainings") == {"missing": 2}


def test_what_a_model_of_another_configuration_solved_is_missing_too(small: StudyConfig, layout: Layout) -> None:
    """It is solved again by the model that the study trains instead."""
    make((layout.evaluation(RUN, "CVRP", 50), layout.evaluation(OTHER, "CVRP", 50)))
    trained(layout, RUN, "0123456789abcdef")
    trained(layout, OTHER, fingerprint(train_spec(small, parse_run(OTHER))))
    assert counts(study_status(small, layout), "evaluations") == {"done": 1, "missing": 1}


def test_tables_figures_and_report_of_another_scale_are_missing(small: StudyConfig, layout: Layout) -> None:
    """As scale quick leaves them in the folder that it shares with scale paper."""
    for name, scale in (("in_distribution", "quick"), ("zero_shot", "paper")):
        write_parquet(layout.table(name), pa.table({"scale": [scale]}), {"table": name, "scale": scale})
        make(tuple(layout.table(name, suffix) for suffix in TABLE_SUFFIXES[1:]))
        make(tuple(layout.figure(name, suffix) for suffix in FIGURE_SUFFIXES))
    write_text(layout.report, marked({"report": "quick"}))
    status = study_status(small, layout)
    assert counts(status, "tables") == {"done": 1, "missing": 1}
    assert counts(status, "figures") == {"done": 1, "missing": 3}
    assert counts(status, "report") == {"missing": 1}
    write_text(layout.report, marked({"report": "paper"}))
    assert counts(study_status(small, layout), "report") == {"done": 1}


def test_evaluations_take_as_long_as_one_of_their_size(small: StudyConfig, layout: Layout) -> None:
    path = layout.evaluation(RUN, "CVRP", 50)
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"seconds": [0.25, None, 0.5]}), path)
    status = study_status(small, layout)
    assert (status.evaluation_seconds, status.timed_evaluations) == (0.75, 1)
    assert status.untimed_evaluations == 3, "on unseen variants none was made, of our own without flags neither"


def test_references_that_were_published_are_solved_at_full_scale_only(tmp_path: Path) -> None:
    own = {"sizes": [{"num_customers": 50, "batch_size": 8, "reference_seconds": 1.0}], "transfer_size": 50}
    assert not inventory(study(tmp_path, scale="quick", **own), Layout(), [])["references"]
    no_solver = study(tmp_path, scale="paper", references={"solvers": []})
    assert not inventory(no_solver, Layout(), [])["references"]


def test_models_that_ship_are_tested_where_no_solutions_come_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path)
    for size in (20, 50):
        make((tmp_path / f"pretrained-n{size}" / "weights.safetensors",))
    jobs = inventory(study(tmp_path, scale="quick", variants=["CVRP", "VRPMB"]), Layout(), [])
    assert [(job.rule, job.outputs) for job in jobs["shipped"]] == [
        ("evaluate_shipped", (Layout().shipped_evaluation("pretrained-n20", "CVRP", 20),)),
        ("evaluate_shipped_zero_shot", (Layout().shipped_evaluation("pretrained-n20", "VRPMB", 20),)),
    ]


def test_the_last_chunk_of_a_set_holds_the_remainder(tmp_path: Path) -> None:
    odd = study(tmp_path, scale="paper", datasets={"test_instances": 130, "validation_instances": 130})
    jobs: list[Job] = inventory(odd, Layout(), [])["references"]
    assert [job.core_seconds for job in jobs[:3]] == [500.0, 500.0, 300.0]


def test_the_command_prints_one_page(
    small: StudyConfig,
    layout: Layout,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = layout.checkpoints(RUN) / fingerprint(train_spec(small, parse_run(RUN)))
    write_text(state / "history.jsonl", json.dumps({"seconds": 12.0}))
    write_text(layout.log("train_policy", RUN), "begins\npolarvrp train: no space left\n\n")
    monkeypatch.chdir(ROOT)
    words = ["--configfile", str(tmp_path / "mine.yaml"), "--results", str(layout.root), "--cores", "40"]
    assert main(["status", *words]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^trainings +- +- +1 +1 +2$", printed, re.MULTILINE)
    assert f"failed: {RUN}, epoch 1 of 300, 59.8 min left" in printed
    assert "rest: 2 trainings 119.8 min on a GPU" in printed
    assert "rest: references 16.7 min on 40 cores (11.1 core-hours)" in printed
    assert "no space left" in printed
    assert main(["status", *words, "--gpus", "0"]) == 2
    assert "--gpus must be at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (119, "119 s"), (120, "2.0 min"), (7199, "120.0 min"), (7200, "2.0 h"), (400000, "4.6 days")],
)
def test_durations_are_in_the_unit_that_suits_them(seconds: float, text: str) -> None:
    assert time_needed(seconds) == text


def test_sizes_on_disk_are_in_the_unit_that_suits_them() -> None:
    assert [data_size(size) for size in (10, 5_300_000, 12_000_000_000)] == ["0.0 kB", "5.3 MB", "12.0 GB"]
