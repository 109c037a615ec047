"""What tables list beside what they ask for: runs and solutions that are there, and would not be made again for it."""

from pathlib import Path

import pytest

from helpers.studies import trained
from polarvrp.catalog.limits import LIMITS
from polarvrp.config.study import StudyConfig
from polarvrp.files import write_text
from polarvrp.study.at_hand import beside, solved_beside, trained_runs
from polarvrp.study.experiments import table_runs
from polarvrp.study.layout import Layout
from polarvrp.study.runs import parse_run
from polarvrp.study.specs import fingerprint, train_spec

SEED, LARGE = "polarnet-ple-polar-n50-s7", "polarnet-shared-rl-n100-s0"
"""A seed that the study does not name, and a run of its cost table."""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "results")


def train(study: StudyConfig, layout: Layout, *runs: str) -> None:
    for run in runs:
        trained(layout, run, fingerprint(train_spec(study, parse_run(run))))


def test_runs_are_at_hand_that_the_study_would_not_train_again(paper: StudyConfig, layout: Layout) -> None:
    train(paper, layout, SEED, LARGE)
    trained(layout, "mtpomo-shared-rl-n50-s0", "of another study")
    trained(layout, "polarnet-ple-polar-n10-s0", "of a size that the study does not have")
    write_text(layout.weights("mvmoe-shared-rl-n50-s0"), "without metadata")
    write_text(layout.weights("my old models"), "x")
    assert [run.name for run in trained_runs(paper, layout)] == [SEED, LARGE]


def test_main_tables_list_them(paper: StudyConfig, layout: Layout) -> None:
    """``in_distribution`` every one; tables of one size those whose solutions are there too."""
    train(paper, layout, SEED, LARGE)
    runs, made = trained_runs(paper, layout), [parse_run("polarnet-ple-po-n50-s0")]

    def others(name: str) -> list[str]:
        listed = table_runs(paper, name, beside(paper, layout, name, runs, made))
        return [run.name for run in listed if run not in table_runs(paper, name)]

    assert others("in_distribution") == ["polarnet-ple-po-n50-s0", LARGE, SEED]
    assert others("set_x") == others("zero_shot") == []
    write_text(layout.set_x(LARGE), "x")
    files = [
        layout.unseen_evaluation(LARGE, variant, 100, protocol)
        for protocol in ("strict", "published")
        for variant in paper.zero_shot_variants
    ]
    for path in files:
        write_text(path, "x")
    assert others("set_x") == others("zero_shot") == [LARGE]
    files[-1].unlink()
    assert others("zero_shot") == []
    assert others("training_cost") == []


def test_solutions_that_no_input_of_a_table_holds_are_told_with_their_times(layout: Layout) -> None:
    """By solvers that the study does not name any more too: the table shows them, and must follow them."""
    made, *others = (
        layout.reference("test", solver, "CVRP", size) for solver in ("pyvrp", "ortools") for size in (20, 50)
    )
    for path in (made, *others):
        write_text(path, "x")
    found = solved_beside(layout, ["CVRP", "OVRP"], [20, 50], {str(made)})
    assert found == {str(path): path.stat().st_mtime_ns for path in others}


def test_solutions_in_parts_of_a_limit_are_told_to_the_table_that_shows_them(layout: Layout) -> None:
    made, other = (layout.limited(solver, LIMITS[0], "CVRP", 20) for solver in ("pyvrp", "ortools"))
    for path in (made, other):
        write_text(path, "x")
    assert solved_beside(layout, ["CVRP"], [20], {str(made)}, LIMITS) == {str(other): other.stat().st_mtime_ns}
    assert solved_beside(layout, ["CVRP"], [20], {str(made)}) == {}
