"""Test results, tables and comparisons in W&B: offline runs are written and read back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.wandb_files import OfflineRun, offline_runs
from polarvrp.cli.main import main
from polarvrp.files import write_text
from polarvrp.solutions.rows import SolutionRow
from polarvrp.solutions.solutions import write_solutions
from polarvrp.study.layout import Layout
from polarvrp.study.runs import parse_run
from polarvrp.tables.wandb_results import compared_runs, run_content, study_content, table_scales

OURS, OTHER, UNFINISHED = "polarnet-ple-polar-n10-s0", "polarnet-ple-po-n10-s0", "polarnet-shared-po-n10-s0"
ROW = {
    "objective": 5.0,
    "gap_of_means_percent": 1.0,
    "seconds": 0.1,
    "instances": 2,
    "left_out": 0,
    "reference": "pyvrp",
}


def write_training(layout: Layout, run: str) -> None:
    named = parse_run(run)
    training = {"paradigm": named.paradigm, "num_customers": 10, "epochs": 2}
    spec = {"model": {"backbone": named.backbone, "encoder": named.encoder}, "training": training}
    rows = [{"epoch": epoch, "validation_gap_percent": 10.0 / epoch, "seconds": 1.0} for epoch in (1, 2)]
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"polarvrp": json.dumps({"spec": spec})})
    layout.model(run).mkdir(parents=True)
    pq.write_table(table, layout.history(run))
    write_text(layout.metadata(run), json.dumps({"scale": "quick", "parameters": 77, "device": "a card"}))


def write_table(layout: Layout, name: str, rows: list[dict[str, object]], scale: str = "quick") -> None:
    for suffix in ("csv", "md", "tex"):
        write_text(layout.table(name, suffix), f"{name} as {suffix}")
    pd.DataFrame([{**ROW, **row, "scale": scale} for row in rows]).to_parquet(layout.table(name))


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Two trainings with results, and one whose first epoch has ended."""
    layout = Layout(tmp_path_factory.mktemp("results"))
    for run in (OURS, OTHER):
        write_training(layout, run)
    gaps = {("CVRP", OURS): 1.0, ("VRPTW", OURS): 3.0, ("CVRP", OTHER): 4.0, ("VRPTW", OTHER): 6.0}
    write_table(
        layout,
        "in_distribution",
        [
            {"variant": variant, "num_customers": 10, "method": parse_run(run).method, "gap_percent": gap}
            for (variant, run), gap in gaps.items()
        ],
    )
    set_path = layout.dataset("test", "CVRP", 10)
    words = ["--variant", "CVRP", "--num-customers", "10", "--instances", "1", "--seed", "1"]
    assert main(["generate", *words, "--output", str(set_path)]) == 0
    actions = tuple(node for customer in range(1, 11) for node in (customer, 0))[:-1]
    row = SolutionRow(
        variant="CVRP",
        num_customers=10,
        instance=0,
        method=OURS,
        cost=9.5,
        actions=actions,
        routes=10,
        seconds=0.1,
        max_violation=0.0,
        reason=None,
    )
    write_solutions(layout.evaluation(OURS, "CVRP", 10), [row], key="run")
    write_text(layout.history("theirs"), "a folder of somebody else's, which stops nothing")
    return layout


@pytest.fixture(scope="module")
def written(layout: Layout) -> dict[str, OfflineRun]:
    """What the command writes, by id; twice, the second time nothing."""
    command = [sys.executable, "-m", "polarvrp", "sync-wandb", "--offline", "--results", str(layout.root)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    first, second = (
        subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=True
        ).stdout
        for _ in range(2)
    )
    names = {OURS, OTHER, f"{OURS}-test", f"{OTHER}-test", "quick-tables"}
    assert set(first.splitlines()) == {f"{name}: written as {name}" for name in names}
    assert set(second.splitlines()) == {f"{name}: already written" for name in names}
    return offline_runs(layout.root)


def test_gaps_of_a_run_are_its_summary(written: dict[str, OfflineRun]) -> None:
    found = written[f"{OURS}-test"]
    gaps = {name: value for name, value in found.summary.items() if name.startswith("test/")}
    assert gaps == {
        "test/in_distribution/gap_percent": 2.0,
        "test/in_distribution/CVRP/gap_percent": 1.0,
        "test/in_distribution/VRPTW/gap_percent": 3.0,
    }
    assert (found.run.run_group, found.run.job_type) == ("quick", "evaluate")
    assert list(found.run.tags) == ["polarnet", "ple", "polar", "n10", "default", "quick"]
    assert (found.config["paradigm"], found.config["parameters"]) == ("polar", 77)


def test_rows_and_sample_routes_are_shown(written: dict[str, OfflineRun], layout: Layout) -> None:
    (row,) = (row for row in written[f"{OURS}-test"].history if "routes/CVRP" in row)
    assert row["routes/CVRP"]["_type"] == "image-file" and row["tables/in_distribution"]["nrows"] == 2
    (picture,) = layout.root.glob(f"wandb/offline-run-*-{OURS}-test/files/{row['routes/CVRP']['path']}")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert not any("routes/CVRP" in row for row in written[f"{OTHER}-test"].history), "it has no solutions here"


def test_tables_are_artifacts_in_all_formats(written: dict[str, OfflineRun]) -> None:
    found = written["quick-tables"]
    formats = ["in_distribution.csv", "in_distribution.md", "in_distribution.parquet", "in_distribution.tex"]
    assert found.artifacts["quick-in_distribution"] == formats
    assert found.run.job_type == "tables"
    assert found.summary[f"in_distribution/{OURS}/gap_percent"] == 2.0


def test_trainings_that_differ_in_one_thing_are_compared_in_charts(written: dict[str, OfflineRun]) -> None:
    (row,) = (row for row in written["quick-tables"].history if any(name.startswith("gaps/") for name in row))
    charts = {name.removesuffix("_table") for name in row if name.startswith(("gaps/", "curves/"))}
    assert charts == {"gaps/paradigm", "curves/paradigm"}
    panels = written["quick-tables"].config["_wandb"]["visualize"]
    kinds = {name: panel["panel_config"]["panelDefId"] for name, panel in panels.items()}
    assert kinds == {"gaps/paradigm": "wandb/bar/v0", "curves/paradigm": "wandb/lineseries/v0"}


def test_runs_are_compared_that_share_everything_else() -> None:
    names = [
        OURS,
        OTHER,
        UNFINISHED,
        "polarnet-shared-po-n20-s0",
        "polarnet-ple-polar-n10-k3-s0",
        "cada-shared-po-n10-s0",
    ]
    runs = [parse_run(name) for name in names]
    assert [run.name for run in compared_runs(runs, "paradigm")] == [OURS, OTHER]
    assert [run.name for run in compared_runs(runs, "encoder")] == [OTHER, UNFINISHED]
    assert [run.name for run in compared_runs(runs, "backbone")] == [UNFINISHED, "cada-shared-po-n10-s0"]


def test_gaps_of_protocols_and_sizes_are_kept_apart(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    methods = [("CVRP", 10, 1.0), ("CVRP", 20, 9.0), ("VRPTW", 10, None)]
    write_table(
        layout,
        "in_distribution",
        [
            {"variant": name, "num_customers": size, "method": parse_run(OURS).method, "gap_percent": gap}
            for name, size, gap in methods
        ],
    )
    content = run_content(layout, parse_run(OURS), tmp_path)
    assert content.summary == {"test/in_distribution/CVRP/gap_percent": 1.0}, "a mean that lacks a variant is none"


def test_each_table_goes_by_its_own_scale(tmp_path: Path) -> None:
    """Scales quick and paper share a folder, where one may have left a table that the other did not build yet."""
    layout = Layout(tmp_path)
    row: dict[str, object] = {"variant": "CVRP", "num_customers": 50, "method": "pyvrp", "gap_percent": 0.0}
    write_table(layout, "in_distribution", [row], "paper")
    write_table(layout, "zero_shot", [{**row, "protocol": "strict"}])
    scales = table_scales(layout)
    assert scales == {"in_distribution": "paper", "zero_shot": "quick"}
    assert set(study_content(layout, [], scales).artifacts) == {"paper-in_distribution", "quick-zero_shot"}
