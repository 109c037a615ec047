"""One record, and the function that it names, put a thing into tables, figures, comparison and report."""

import dataclasses
import sys
from types import ModuleType

import pandas as pd
import pytest
from matplotlib.figure import Figure as Canvas

from helpers.results_folder import ResultsFolder, table_rows
from polarvrp.catalog import backbones, encoders, paradigms
from polarvrp.catalog.experiments import EXPERIMENTS, INTEGER, REAL, TEXT, Experiment, Figure
from polarvrp.catalog.methods import METHODS, Method
from polarvrp.cli.main import main
from polarvrp.tables.figures import draw_figure
from polarvrp.tables.printing import Axis, PrintedTable, captioned, print_table, written
from polarvrp.tables.sources import Results


def show(results: Results, *names: str) -> str:
    """Build, draw and report these experiments; the text of the page."""
    common = ["--results", str(results.root), "--scale", results.scale]
    assert main(["tables", *names, *common]) == 0
    drawn = [name for name in names if EXPERIMENTS[name].figure]
    assert not drawn or main(["figures", *drawn, *common]) == 0
    assert main(["report", *names, *common]) == 0
    return results.layout.report.read_text(encoding="utf-8")


def legend(results: Results, name: str) -> list[str]:
    return [text.get_text() for text in draw_figure(results, EXPERIMENTS[name]).legends[0].get_texts()]


@pytest.fixture
def paper(folder: ResultsFolder) -> Results:
    return Results(folder.root, "paper")


def test_a_fourth_paradigm(folder: ResultsFolder, paper: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    record = dataclasses.replace(paradigms.PARADIGMS["rl"], name="hinge", label="Hinge")
    monkeypatch.setitem(paradigms.PARADIGMS, "hinge", record)
    for paradigm in ("rl", "hinge"):
        folder.evaluate(f"polarnet-ple-{paradigm}-n50-s0", 3.0, reference=30.0)
    page = show(paper, "training_paradigms")
    assert ">Hinge</th>" in page
    assert "Ours Hinge" in paper.layout.table("training_paradigms", "md").read_text(encoding="utf-8")
    assert legend(paper, "training_paradigms") == ["RL", "Hinge"]
    rows = [row for row in table_rows(paper, "paper_comparison") if row["table"] == "training_paradigms"]
    ours = {row["column"]: (row["paper"], row["ours"] is not None) for row in rows}
    assert ours == {"rl": (1.432, True), "po": (1.282, False), "polar": (1.192, False), "hinge": (None, True)}


def test_a_fourth_encoder(folder: ResultsFolder, paper: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    record = dataclasses.replace(encoders.ENCODERS["deep"], name="wide", label="Wide")
    monkeypatch.setitem(encoders.ENCODERS, "wide", record)
    for encoder in ("wide", "ple"):
        folder.evaluate(f"polarnet-{encoder}-polar-n50-s0", 3.0, reference=30.0)
        folder.train(f"polarnet-{encoder}-polar-n50-s0", parameters=123_456)
    page = show(paper, "encoder_settings")
    assert ">Wide</th>" in page and "123,456" in page
    assert legend(paper, "encoder_settings") == ["PLE", "Wide"]


def test_a_backbone_of_the_grids(folder: ResultsFolder, paper: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    record = dataclasses.replace(backbones.BACKBONES["polarnet"], name="gated", label="Gated")
    monkeypatch.setitem(backbones.BACKBONES, "gated", record)
    folder.evaluate("gated-shared-rl-n50-s0", 3.0, reference=30.0)
    folder.evaluate("polarnet-ple-rl-n50-s0", 3.0, reference=30.0)
    page = show(paper, "training_paradigms")
    assert page.index(">Ours</th>") < page.index(">Gated</th>")
    titles = [axes.get_title() for axes in draw_figure(paper, EXPERIMENTS["training_paradigms"]).axes]
    assert [title.split("\n")[0] for title in titles] == ["Ours", "Gated"]


def test_a_method_of_the_main_tables(folder: ResultsFolder, paper: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    method = Method(label="Deep ours", backbone="polarnet", encoder="deep", paradigm="polar")
    monkeypatch.setitem(METHODS, method.stem, method)
    for stem in (method.stem, "cada-shared-rl"):
        folder.evaluate(f"{stem}-n50-s0", 3.0, reference=30.0, variants=("CVRP",))
    page = show(paper, "in_distribution")
    assert ">Deep ours</td>" in page
    assert legend(paper, "in_distribution") == ["PyVRP", "OR-Tools (published)", "CaDA", "Deep ours"]
    assert [row["method"] for row in table_rows(paper, "in_distribution")][-2:] == [
        "cada-shared-rl-s0",
        "polarnet-deep-polar-s0",
    ]


def test_a_row_of_the_study_s_own_needs_its_label_only(folder: ResultsFolder) -> None:
    for stem in ("cada-shared-po", "cada-shared-rl", "polarnet-ple-polar"):
        folder.evaluate(f"{stem}-n10-s0", 3.0, variants=("CVRP",))
    words = ["tables", "in_distribution", "--results", str(folder.root)]
    assert main([*words, "--labels", '{"cada-shared-po": "CaDA"}']) == 0
    results = Results(folder.root, "quick")
    assert legend(results, "in_distribution") == ["Ours", "CaDA"]  # the label of the catalog's own row is taken
    text = results.layout.table("in_distribution", "md").read_text(encoding="utf-8")
    assert text.index("| Ours ") < text.index("| CaDA ")


@pytest.mark.parametrize("labels", ["{", "[]", '{"cada-shared-po": 1}'])
def test_labels_that_are_none_are_refused(
    folder: ResultsFolder, labels: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tables", "--results", str(folder.root), "--labels", labels]) == 2
    assert "argument --labels" in capsys.readouterr().err


def count_runs(results: Results, experiment: Experiment) -> pd.DataFrame:
    runs = results.evaluated_runs()
    counts = pd.Series([run.encoder for run in runs]).value_counts(sort=False)
    return pd.DataFrame({"encoder": counts.index, "trainings": counts, "share": counts / len(runs)})


def render_counts(frame: pd.DataFrame, experiment: Experiment) -> list[PrintedTable]:
    rows, columns = Axis.of("encoder", frame["encoder"]), Axis.of("measure", ["Trainings"], "")
    cells = [written(frame, "Trainings", "trainings", str)]
    return [print_table(captioned(frame, experiment, ""), cells, ("Encoder",), rows, columns)]


def draw_counts(results: Results, experiment: Experiment) -> Canvas:
    frame = results.table(experiment.name)
    figure = Canvas()
    figure.subplots().bar(frame["encoder"], frame["trainings"])
    return figure


def compare_counts(ours: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    paper = pd.DataFrame({"encoder": ["shared", "ple"], "paper": [6.0, 1.0]})
    both = paper.merge(ours, "left", "encoder")
    return both.assign(row=both["encoder"], column="trainings", ours=both["trainings"].astype("float64"))[
        ["row", "column", "paper", "ours"]
    ]


def test_a_new_experiment(folder: ResultsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("encoder_counts")
    for function in (count_runs, render_counts, draw_counts, compare_counts):
        setattr(module, function.__name__, function)
    monkeypatch.setitem(sys.modules, "encoder_counts", module)
    record = Experiment(
        name="encoder_counts",
        title="Trainings by encoder",
        caption="How many trainings there are with each encoder.",
        runs="polarvrp.study.experiments:main_runs",
        rows="encoder_counts:count_runs",
        render="encoder_counts:render_counts",
        keys={"encoder": TEXT},
        values={"trainings": INTEGER, "share": REAL},
        needs=("training_variants",),
        paper="encoder_counts:compare_counts",
        figure=Figure(title="Trainings by encoder", caption="A bar an encoder.", draw="encoder_counts:draw_counts"),
    )
    monkeypatch.setitem(EXPERIMENTS, "encoder_counts", record)
    for run in ("polarnet-ple-polar-n10-s0", "cada-shared-rl-n10-s0", "mvmoe-shared-rl-n10-s0"):
        folder.evaluate(run, 3.0, variants=("CVRP",))
    results = Results(folder.root, "quick")
    page = show(results, "encoder_counts")
    assert ">Trainings</th>" in page and "A bar an encoder." in page and "data:image/png;base64," in page
    assert table_rows(results, "encoder_counts") == [
        {"encoder": "shared", "trainings": 2, "share": 2 / 3, "scale": "quick"},
        {"encoder": "ple", "trainings": 1, "share": 1 / 3, "scale": "quick"},
    ]
    compared = {row["row"]: row for row in table_rows(results, "paper_comparison") if row["table"] == "encoder_counts"}
    assert (compared["shared"]["ours"], compared["shared"]["difference"]) == (2.0, -4.0)
