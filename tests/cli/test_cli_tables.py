"""``polarvrp tables`` and ``polarvrp figures``: what they print, and how they refuse."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from helpers.results_folder import ResultsFolder
from polarvrp.cli.main import main
from polarvrp.study import shipped
from polarvrp.study.layout import Layout

RUN = "polarnet-ple-polar-n10-s0"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of two methods, whatever models come with the package."""
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path / "ships nothing")
    folder = ResultsFolder(tmp_path / "results")
    folder.evaluate(RUN, 3.0, variants=("CVRP",))
    folder.evaluate("cada-shared-rl-n10-s0", 4.0, variants=("CVRP",))
    folder.train(RUN)
    return folder.root


def test_tables_prints_each_path(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", "in_distribution", "--results", str(root)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [str(root / "tables" / f"in_distribution.{suffix}") for suffix in ("parquet", "csv", "md", "tex")]
    assert all((root / "tables" / line.rpartition("/")[2]).is_file() for line in printed)


def test_without_a_scale_that_of_the_configuration_counts(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text("scale: laptop\n")
    for own, scale in ((["--scale", "quick"], "quick"), ([], "laptop")):
        assert main(["tables", "in_distribution", "--results", str(root), *own]) == 0
        assert f"Scale {scale}:" in (root / "tables" / "in_distribution.md").read_text(encoding="utf-8")


def test_runs_limit_the_table(root: Path) -> None:
    """To those that are named, be there none."""
    command = ["tables", "in_distribution", "--results", str(root)]
    for runs, methods in (([RUN], {"pyvrp", "polarnet-ple-polar-s0"}), ([], {"pyvrp"})):
        assert main([*command, "--runs", *runs]) == 0
        assert set(pq.read_table(root / "tables" / "in_distribution.parquet")["method"].to_pylist()) == methods


def test_runs_of_another_scale_are_left_out_and_named_in_one_line(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever names them takes them; runs that say no scale, and those without a model, are of any."""
    path = Layout(root).metadata(RUN)
    command = ["tables", "--results", str(root), "--scale", "quick"]

    def listed(*words: str) -> set[str]:
        assert main([*command, *words]) == 0
        return set(pq.read_table(root / "tables" / "in_distribution.parquet")["method"].to_pylist())

    assert listed() == {"pyvrp", "cada-shared-rl-s0", "polarnet-ple-polar-s0"}
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"scale": "laptop"}))
    capsys.readouterr()
    assert listed() == {"pyvrp", "cada-shared-rl-s0"}
    assert [line for line in capsys.readouterr().err.splitlines() if RUN in line] == [
        f"{root / 'models'}: trained at another scale and left out: {RUN}; --runs takes them"
    ]
    assert listed("in_distribution", "--runs", RUN) == {"pyvrp", "polarnet-ple-polar-s0"}
    command[-1] = "laptop"
    assert listed() == {"pyvrp", "cada-shared-rl-s0", "polarnet-ple-polar-s0"}


def test_variants_limit_the_table(root: Path) -> None:
    ResultsFolder(root).evaluate(RUN, 3.0, variants=("OVRP",))
    assert main(["tables", "in_distribution", "--results", str(root), "--variants", "OVRP"]) == 0
    assert set(pq.read_table(root / "tables" / "in_distribution.parquet")["variant"].to_pylist()) == {"OVRP"}


def test_the_comparison_reads_the_named_tables(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--results", str(root)]
    assert main(["tables", "in_distribution", *common]) == 0
    assert main(["tables", "paper_comparison", *common, "--compared", "in_distribution", "set_x"]) == 0
    capsys.readouterr()
    assert main(["tables", "paper_comparison", *common, "--compared", "set_x"]) == 2
    assert "table paper_comparison has no results" in capsys.readouterr().err


def test_gaps_to_the_best_known_costs(root: Path) -> None:
    ResultsFolder(root).solve("best_known", "CVRP", 10, [9.0, 9.0])
    command = ["tables", "in_distribution", "--results", str(root), "--reference", "best_known"]
    assert main(command) == 0
    rows = pq.read_table(root / "tables" / "in_distribution.parquet").to_pylist()
    gaps = {row["method"]: (row["gap_percent"], row["reference"]) for row in rows}
    assert gaps["pyvrp"] == (pytest.approx(100 / 9), "best_known")
    assert gaps["polarnet-ple-polar-s0"] == (pytest.approx(100 * (10.3 / 9 - 1)), "best_known")
    assert "the best known costs" in (root / "tables" / "in_distribution.md").read_text(encoding="utf-8")


def test_without_names_what_has_no_results_is_said_and_left_out(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", "--results", str(root)]) == 0
    captured = capsys.readouterr()
    assert "training_cost.parquet" in captured.out and "zero_shot.parquet" not in captured.out
    assert "zero_shot left out: table zero_shot has no results" in captured.err


def test_figures_prints_each_path(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["tables", "in_distribution", "--results", str(root)])
    capsys.readouterr()
    assert main(["figures", "in_distribution", "--results", str(root)]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        str(root / "figures" / f"in_distribution.{suffix}") for suffix in ("png", "pdf")
    ]
    assert captured.err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tables", "zeroshot"], "unknown table 'zeroshot'; there are in_distribution, zero_shot"),  # a typo
        (
            ["tables", "set_x"],
            "make them with: snakemake --cores all results/tables/set_x.parquet --config scale=quick",
        ),  # nothing made yet
        (["tables", "--scale", "paper"], "holds no results"),  # only quick results exist
        (["tables", "in_distribution", "--runs", "polarnet"], "'polarnet' names no run"),  # no run's name
        (["tables", "in_distribution", "--runs", "mtpomo-shared-rl-n10-s0"], "does not exist"),  # a run not made yet
        (["tables", "in_distribution", "--variants", "VRPTWL"], "unknown variant 'VRPTWL'"),  # in another order
        (["tables", "in_distribution", "--reference", "best_known"], "polarvrp reference INSTANCES.npz --best-of"),
        (["figures", "gaps"], "unknown figure 'gaps'"),  # a typo
        (["figures", "zero_shot"], "make it with: polarvrp tables zero_shot"),  # no table yet
    ],
)
def test_refusals_are_one_line_and_exit_code_2(
    root: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main([*arguments[:1], "--results", str(root), *arguments[1:]]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err.splitlines()[-1] and "Traceback" not in captured.err
    assert not (root / "tables").exists() and not (root / "figures").exists()


OTHER = "mtpomo-shared-po-n50-alpha0.5-s0"


@pytest.mark.parametrize(
    ("words", "command"),
    [
        # a table of another scale, which config.yaml would make again
        (["figures", "in_distribution", "--scale", "paper"], "polarvrp tables in_distribution --scale paper"),
        (["report", "in_distribution", "--scale", "paper"], "polarvrp tables in_distribution --scale paper"),
        (
            ["figures", "zero_shot", "--results", "my copy"],
            "polarvrp tables zero_shot --scale quick --results 'my copy'",
        ),
        (["report", "in_distribution"], "polarvrp figures in_distribution --scale quick"),
        (["tables", "--scale", "laptop"], "snakemake --cores all tables --config scale=laptop"),
        (["figures", "--scale", "laptop"], "snakemake --cores all tables --config scale=laptop"),
        (["report", "--scale", "laptop"], "snakemake --cores all tables figures --config scale=laptop"),
        # runs are made one by one, whether the study has them or not
        (
            ["tables", "in_distribution", "--runs", OTHER, "--scale", "paper"],
            f"snakemake --cores all results/evaluations/test/{OTHER}/CVRP-n50.parquet --config scale=paper",
        ),
        (
            ["tables", "set_x", "--runs", OTHER, "--scale", "laptop"],
            f"snakemake --cores all results/laptop/set_x/{OTHER}.parquet --config scale=laptop",
        ),
        (
            ["tables", "training_cost", "--runs", OTHER],
            f"snakemake --cores all results/models/{OTHER}/metadata.json --config scale=quick",
        ),
        # other folders of results: where the workflow can work in them, and where it cannot
        (
            ["tables", "set_x", "--results", "my copy/results"],
            "snakemake --cores all results/tables/set_x.parquet --config scale=quick --directory '{here}/my copy'",
        ),
        (
            ["tables", "set_x", "--results", "results/laptop"],
            "snakemake --cores all results/tables/set_x.parquet --config scale=quick, which works in results",
        ),
    ],
)
def test_what_is_missing_is_made_by_the_command_that_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], command: str
) -> None:
    """At the scale in question and in its folder of results."""
    monkeypatch.chdir(root.parent)
    assert main(["tables", "in_distribution"]) == 0
    capsys.readouterr()
    assert main(words) == 2
    assert capsys.readouterr().err.endswith(f" with: {command.format(here=root.parent)}\n")


def test_a_folder_that_is_no_run_is_named_and_left_out(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A backup beside the evaluations must not stop every table."""
    (root / "evaluations" / "test" / "old-backup").mkdir()
    assert main(["tables", "in_distribution", "--results", str(root)]) == 0
    error = capsys.readouterr().err
    assert f"{root / 'evaluations' / 'test' / 'old-backup'} is left out: 'old-backup' names no run" in error
    assert len(pq.read_table(root / "tables" / "in_distribution.parquet")) == 3
