"""Printed tables: pivot, order, averages, emphasis, and the line that no demonstration lacks."""

import re
from dataclasses import replace

import pandas as pd
import pytest

from helpers.printed_tables import table
from helpers.results_folder import ResultsFolder
from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.catalog.methods import METHODS
from polarvrp.tables.build import build_table, print_experiment
from polarvrp.tables.formats import duration, minus, number
from polarvrp.tables.labels import catalog_labels, method_label, shipped_method
from polarvrp.tables.latex import to_latex
from polarvrp.tables.printing import PrintedTable, to_html, to_markdown, written
from polarvrp.tables.sources import Results

OURS = "polarnet-ple-polar"
WARNING = "Nothing here is a result."


def tables(results: Results, name: str) -> list[PrintedTable]:
    return print_experiment(build_table(results, EXPERIMENTS[name]), EXPERIMENTS[name])


def printed(results: Results, name: str) -> str:
    return to_markdown(tables(results, name))


def rows_of(markdown: str) -> list[list[str]]:
    """Cells of each row, heads first, without the row of alignments."""
    lines = [line for line in markdown.splitlines() if line.startswith("|") and "--" not in line]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]


@pytest.fixture
def quick(folder: ResultsFolder) -> Results:
    """Two variants, two sizes, three methods beside PyVRP; OR-Tools is better than any policy.

    PyVRP takes 62 core seconds for a set, which the paper prints as 3.9 s on 16 cores.
    """
    for size in (10, 20):
        for variant, gaps in {"OVRP": (1.0, 4.0, 2.0), "CVRP": (0.5, 2.0, 8.0)}.items():
            folder.solve("pyvrp", variant, size, [10.0, 10.0], seconds=31.0)
            for method, gap in zip(
                ("ortools", f"{OURS}-n{size}-s0", f"mtpomo-shared-rl-n{size}-s0"), gaps, strict=True
            ):
                folder.solve(method, variant, size, [10.0 + gap / 10] * 2, seconds=0.05)
    folder.solve("routefinder_ablation-ple-polar-n10-s0", "CVRP", 10, [10.3])
    return Results(folder.root, "quick")


def test_main_table_has_the_papers_shape(quick: Results) -> None:
    assert rows_of(printed(quick, "in_distribution")) == [
        ["Variant", "Method", "n=10 Obj.", "n=10 Gap", "n=10 Time", "n=20 Obj.", "n=20 Gap", "n=20 Time"],
        ["CVRP", "PyVRP", "10.000", r"\*", "3.9s", "10.000", r"\*", "3.9s"],
        ["", "OR-Tools", "10.050", "0.500%", "0.01s", "10.050", "0.500%", "0.01s"],
        ["", "MTPOMO", "10.800", "8.000%", "0.10s", "10.800", "8.000%", "0.10s"],
        ["", "Ours", "**10.200**", "**2.000%**", "0.10s", "**10.200**", "**2.000%**", "0.10s"],
        ["OVRP", "PyVRP", "10.000", r"\*", "3.9s", "10.000", r"\*", "3.9s"],
        ["", "OR-Tools", "10.100", "1.000%", "0.01s", "10.100", "1.000%", "0.01s"],
        ["", "MTPOMO", "**10.200**", "**2.000%**", "0.10s", "**10.200**", "**2.000%**", "0.10s"],
        ["", "Ours", "10.400", "4.000%", "0.10s", "10.400", "4.000%", "0.10s"],
        ["Average", "PyVRP", "–", r"\*", "–", "–", r"\*", "–"],
        ["", "OR-Tools", "–", "0.750%", "–", "–", "0.750%", "–"],
        ["", "MTPOMO", "–", "5.000%", "–", "–", "5.000%", "–"],
        ["", "Ours", "–", "**3.000%**", "–", "–", "**3.000%**", "–"],
        # Other runs have a table of averages, and no average where a variant is missing.
        ["Run", "n=10 Gap"],
        ["routefinder_ablation-ple-polar", "–"],
    ]


def test_captions_state_scale_reference_and_instances(quick: Results) -> None:
    text = printed(quick, "in_distribution")
    assert "Scale quick." in text
    assert "mean over instances of 100 · (cost − reference) / reference" in text
    assert r"Gaps are against our PyVRP costs (\*)" in text
    assert "1 to 2 instances each" in text
    assert "in brackets" not in text


def test_means_say_how_many_instances_they_leave_out(folder: ResultsFolder) -> None:
    """Ours fails on the hard instances, and is the best on the easy one."""
    for variant in ("CVRP", "VRPMB"):
        folder.solve("pyvrp", variant, 10, [10.0, 20.0, 20.0])
        folder.solve(f"{OURS}-n10-s0", variant, 10, [11.0, None, None])
        folder.solve("cada-shared-rl-n10-s0", variant, 10, [12.0, 24.0, 24.0])
    folder.solve("polarnet-ple-po-n10-s0", "CVRP", 10, [10.3, 20.6, None])
    quick, said = Results(folder.root, "quick"), "in brackets counts the instances that the mean before it leaves out"
    rows = [[cell for cell in row if cell != "1.5s"] for row in rows_of(printed(quick, "in_distribution"))]
    assert rows[2:4] == [["", "CaDA", "20.000", "20.000%"], ["", "Ours", "**11.000 [2]**", "**10.000% [2]**"]]
    assert rows[5:7] == [["", "CaDA", "–", "20.000%", "–"], ["", "Ours", "–", "**10.000% [2]**", "–"]]
    assert rows[-1] == ["polarnet-ple-po", "**3.000% [1]**"]
    assert printed(quick, "in_distribution").count(said) == 2
    assert rows_of(printed(quick, "zero_shot"))[1][-2:] == ["**11.00 [2]**", "**10.00% [2]**"]
    assert said in printed(quick, "zero_shot")
    assert r"10.00\% [2]" in to_latex(tables(quick, "zero_shot"))


def test_every_demonstration_says_that_it_is_no_result(folder: ResultsFolder, quick: Results) -> None:
    for run in (f"{OURS}-n10-s0", "polarnet-ple-polar-n10-kappa2-s0", "polarnet-shared-polar-n10-s0"):
        folder.evaluate(run, 3.0, variants=("CVRP",))
        folder.train(run)
    folder.solve_set_x(f"{OURS}-n10-s0", {"X-n101-k25": (27591, 28810, 28823)})
    for name in ("in_distribution", "set_x", "training_paradigms", "encoder_settings", "task_experts", "training_cost"):
        shown = tables(quick, name)
        assert WARNING in to_markdown(shown) and WARNING in to_latex(shown)


def test_results_at_the_papers_scale_carry_no_warning(folder: ResultsFolder) -> None:
    folder.solve(f"{OURS}-n50-s0", "CVRP", 50, [11.0] * 3)
    text = printed(Results(folder.root, "paper"), "in_distribution")
    assert WARNING not in text and "against the published PyVRP costs" in text and "Scale paper." in text
    assert ["", "OR-Tools (published)", "10.572", "1.907%", "–"] in rows_of(text)


def test_zero_shot_is_a_row_a_variant(folder: ResultsFolder) -> None:
    folder.evaluate(f"{OURS}-n10-s0", [2.0, 4.0], variants=("MDVRP", "VRPMB"))
    assert rows_of(printed(Results(folder.root, "quick"), "zero_shot")) == [
        ["Variant", "PyVRP Obj.", "PyVRP Gap", "Ours Obj.", "Ours Gap"],
        ["VRPMB", "10.00", r"\*", "**10.40**", "**4.00%**"],
        ["MDVRP", "10.00", r"\*", "**10.20**", "**2.00%**"],
        ["Average", "–", r"\*", "–", "**3.00%**"],
    ]


def test_set_x_averages_by_size_group(folder: ResultsFolder) -> None:
    costs = {"X-n251-k28": (100, 104, 105), "X-n101-k25": (100, 101, 102), "X-n106-k14": (100, 103, 104)}
    folder.solve_set_x(f"{OURS}-n10-s0", costs)
    folder.solve_set_x("cada-shared-rl-n10-s0", dict.fromkeys(costs, (100, 103, 103)))
    assert rows_of(printed(Results(folder.root, "quick"), "set_x")) == [
        ["Instance", "Best known", "CaDA Cost", "CaDA Gap", "Ours Cost", "Ours Gap"],
        ["X-n101-k25", "100", "103", "3.000%", "**101**", "**1.000%**"],
        ["X-n106-k14", "100", "**103**", "**3.000%**", "**103**", "**3.000%**"],
        ["X-n251-k28", "100", "**103**", "**3.000%**", "104", "4.000%"],
        [r"Average n\<251 (2)", "–", "–", "3.000%", "–", "**2.000%**"],
        [r"Average 251\<=n\<=500 (1)", "–", "–", "**3.000%**", "–", "4.000%"],
        ["Average (3)", "–", "–", "3.000%", "–", "**2.667%**"],
    ]


def test_grids_put_the_best_of_each_backbone_in_bold(folder: ResultsFolder) -> None:
    for run, gap in {"polarnet-shared-polar": 3.0, "polarnet-ple-polar": 2.0, "mvmoe_ablation-deep-polar": 5.0}.items():
        folder.evaluate(f"{run}-n10-s0", gap, variants=("CVRP",))
        folder.train(f"{run}-n10-s0", parameters=6_983_414)
    rows = rows_of(printed(Results(folder.root, "quick"), "encoder_settings"))
    assert rows[0] == ["Variant", "MVMoE Deep-24", "Ours Shared", "Ours PLE"]
    assert rows[1] == ["CVRP", "**5.000%**", "3.000%", "**2.000%**"]
    assert rows[-2:] == [
        ["Average", "**5.000%**", "3.000%", "**2.000%**"],
        ["Parameters", "6,983,414", "6,983,414", "6,983,414"],
    ]


def test_sweep_prints_epoch_times_as_the_paper_does(folder: ResultsFolder) -> None:
    for run, gap in (("polarnet-shared-polar-n10-s0", 3.0), ("polarnet-shared-polar-n10-k2-s0", 2.0)):
        folder.evaluate(run, gap, variants=("CVRP",))
        folder.train(run, epoch_seconds=(209.0, 404.0), refined=(0, 1))
    assert rows_of(printed(Results(folder.root, "quick"), "refined_tours")) == [
        ["k", "Mean gap", "Epoch without LS", "Epoch with LS", "Total time"],
        ["1", "3.000%", "3m 29s", "6m 44s", "10m 13s"],
        ["2", "**2.000%**", "3m 29s", "6m 44s", "10m 13s"],
    ]


def test_training_cost_uses_the_papers_labels(folder: ResultsFolder) -> None:
    folder.train("polarnet-shared-rl-n10-s2", epoch_seconds=(900.0, 900.0), memory=(1.0, 12.52), parameters=1_841_576)
    assert rows_of(printed(Results(folder.root, "quick"), "training_cost"))[1:] == [
        ["10", "Shared", "1,841,576", "15m 00s", "30m 00s", "12.52 GB"]
    ]
    assert "Seed 2." in printed(Results(folder.root, "quick"), "training_cost")


def test_several_seeds_are_printed_as_mean_and_deviation(folder: ResultsFolder) -> None:
    """Gaps of 2 and 4 percent: mean 3, sample deviation the root of 2."""
    for seed, gap in enumerate((2.0, 4.0)):
        for stem in (OURS, f"{OURS}-kappa2"):
            run = f"polarnet-ple-polar-n10{stem.removeprefix(OURS)}-s{seed}"
            folder.evaluate(run, gap, variants=("CVRP",))
            folder.train(run, epoch_seconds=(60.0, 60.0 + seed), memory=(1.0, 1.0))
        folder.solve_set_x(f"{OURS}-n10-s{seed}", {"X-n101-k25": (100, 100 + gap, 100 + gap)})
    quick = Results(folder.root, "quick")
    said = "Mean ± standard deviation over the seeds 0, 1."
    expected = {
        "in_distribution": ["CVRP", "Ours", "**10.300**", "**3.000 ± 1.414%**", "1.0s"],
        "training_paradigms": ["Average", "**3.000 ± 1.414%**"],
        "task_experts": ["2", "**3.000 ± 1.414%**", "1m 00s ± 0.00s", "1m 00s ± 0.71s", "2m 00s ± 0.71s"],
        "set_x": ["X-n101-k25", "100", "**103**", "**3.000 ± 1.414%**"],
        "training_cost": ["10", "POLAR+PLE", "1,000", "1m 00s ± 0.35s", "2m 00s ± 0.71s", "1.00 ± 0.00 GB"],
    }
    for name, row in expected.items():
        rows = rows_of(printed(quick, name))
        assert [cells for cells in rows if cells[-1] == row[-1] and cells[0] in ("", row[0])], (name, rows)
        assert said in printed(quick, name)


def test_emphasis_goes_to_all_that_print_like_the_best() -> None:
    frame = pd.DataFrame({"set": ["a"] * 5, "gap": [1.2341, 1.2339, 0.5, None, 2.0]})
    competing = frame.assign(competes=[True, True, False, True, True])
    cells = written(competing, "Gap", "gap", number("{:.3f}"), ("set",))
    assert cells["best"].tolist() == [True, True, False, False, False]
    assert cells["text"].tolist() == ["1.234", "1.234", "0.500", "–", "2.000"]
    assert written(frame, "Gap", "gap", number("{:.3f}"), ("set",))["best"].tolist() == [
        False,
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.126, "0.13s"),
        (2.04, "2.0s"),
        (14.4, "14s"),
        (59.6, "1m 00s"),
        (624, "10m 24s"),
        (77400, "21h 30m"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_labels_name_seeds_and_leave_other_runs_alone() -> None:
    labels = catalog_labels()
    assert method_label(f"{OURS}-s0", labels) == "Ours"
    assert method_label(f"{OURS}-s3", labels) == "Ours, seed 3"
    assert method_label("published-pyvrp", labels) == "PyVRP (published)"
    assert method_label("polarnet-ple-polar-kappa2-s0", labels) == "polarnet-ple-polar-kappa2-s0"


def test_zero_has_no_sign() -> None:
    assert (minus("-0.000%"), minus("-0.012%"), minus("0.000%")) == ("0.000%", "−0.012%", "0.000%")


def test_html_marks_the_best_ours_and_averages_and_escapes() -> None:
    rows = [["CVRP", "CaDA", "!1"], ["CVRP", "Ours", "<2>"], ["Average", "Ours", "3"]]
    columns = (("", "Variant"), ("", "Method"), ("n=10", "Obj."))
    page = to_html(table(rows, columns, heads=2, summary=1), "mine")
    cells = dict(reversed(cell) for cell in re.findall(r'<td class="data ([^"]*?)\s*" >(.*?)</td>', page))
    classes = {text: set(names.split()[2:]) for text, names in cells.items()}
    assert classes["1"] == {"best"} and classes["&lt;2&gt;"] == {"ours"}
    assert classes["3"] == {"ours", "summary", "block"} and classes["CaDA"] == {"head"}
    assert '<table id="T_mine" class="printed heads-2">' in page


def test_html_marks_ours_whatever_its_row_is_labelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, OURS, replace(METHODS[OURS], label="POLAR net"))
    page = to_html(table([["CVRP", "CaDA", "1"], ["CVRP", "POLAR net, seed 3", "2"]], heads=2), "mine")
    assert re.findall(r'ours\s*" >(.*?)</td>', page) == ["CVRP", "POLAR net, seed 3", "2"]
    assert method_label(shipped_method(50), catalog_labels()) == "POLAR net (shipped, n=50)"


def test_sentences_are_set_to_the_left() -> None:
    sentence = "the published solutions give 1.762"
    page = to_html(table([["CVRP", "1.000 ± 0.100%", sentence]]), "mine")
    assert f'words" >{sentence}' in page and page.count("words") == 1
    assert to_markdown([table([["CVRP", "1", sentence]])]).splitlines()[3].startswith("|:")
