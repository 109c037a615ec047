"""What experiments are computed from; what the workflow plans by it is tested with the workflow."""

from pathlib import Path

from helpers.studies import study
from polarvrp.study.layout import Layout
from polarvrp.study.needs import Plan
from polarvrp.study.shipped import shipped_name


def test_files_are_whole_sets_once_a_need_and_jobs_are_their_parts(tmp_path: Path) -> None:
    own = study(tmp_path, scale="quick", variants=["CVRP"], references={"solvers": ["pyvrp"], "chunk_instances": 1})
    plan, layout = Plan(own, Layout(), []), Layout()
    files, jobs = plan.files("in_distribution"), plan.jobs("in_distribution")
    small, large = (layout.reference("test", "pyvrp", "CVRP", size) for size in (10, 20))
    assert (files.count(small), files.count(large)) == (1, 2), "references of shipped models are a need of their own"
    assert layout.shipped_evaluation(shipped_name(20), "CVRP", 20) in files
    parts = {path for job in jobs if job.whole == large for path in job.outputs}
    assert parts == {layout.reference_chunk("test", "pyvrp", "CVRP", 20, start) for start in (0, 1)}
    assert parts.isdisjoint(files)


def test_a_study_without_unseen_variants_has_no_jobs_of_them(tmp_path: Path) -> None:
    own = study(tmp_path, scale="quick", variants=["CVRP"])
    plan = Plan(own, Layout(), [])
    assert plan.runs("zero_shot")
    assert not plan.jobs("zero_shot") and not plan.files("zero_shot")


def test_published_sizes_are_solved_for_tables_where_a_target_solves_them(tmp_path: Path) -> None:
    own = study(tmp_path, scale="paper", variants=["CVRP"])
    whole = Layout().reference("test", "pyvrp", "CVRP", 100)
    targets: dict[tuple[str, ...], bool] = {(): True, ("all",): True, ("references",): True, ("tables",): False}
    assert {named: whole in Plan(own, Layout(), [], named).files("in_distribution") for named in targets} == targets
