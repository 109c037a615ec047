"""Printed tables: pivot, order, averages, emphasis, and the line that no demonstration lacks."""

import pytest

from polarvrp.tables.formats import best_in_bold, duration, method_label, minus
from polarvrp.tables.registry import TABLES
from polarvrp.tables.sheets import Cell, Column, Sheet, latex_text, to_latex, to_markdown
from polarvrp.tables.sources import Results

OURS = "polarnet-ple-polar"
WARNING = "Nothing here is a result."


def printed(results, name):
    kind = TABLES[name]
    return to_markdown(kind.render(kind.build(results)))


def rows_of(markdown):
    """Cells of each row, heads first, without the row of alignments."""
    lines = [line for line in markdown.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]


@pytest.fixture
def quick(folder):
    """Two variants, two sizes, three methods beside PyVRP; OR-Tools is better than any policy."""
    for size in (10, 20):
        for variant, gaps in {"OVRP": (1.0, 4.0, 2.0), "CVRP": (0.5, 2.0, 8.0)}.items():
            folder.solve("pyvrp", variant, size, [10.0, 10.0], seconds=31.0)
            for method, gap in zip(
                ("ortools", f"{OURS}-n{size}-s0", f"mtpomo-shared-rl-n{size}-s0"), gaps, strict=True
            ):
                folder.solve(method, variant, size, [10.0 + gap / 10] * 2, seconds=0.05)
    folder.solve("routefinder_ablation-ple-polar-n10-s0", "CVRP", 10, [10.3])
    return Results(folder.root, "quick")


def test_main_table_has_the_papers_shape(quick):
    assert rows_of(printed(quick, "in_distribution")) == [
        ["Variant", "Method", "n=10 Obj.", "n=10 Gap", "n=10 Time", "n=20 Obj.", "n=20 Gap", "n=20 Time"],
        ["CVRP", "PyVRP", "10.000", r"\*", "1m 02s", "10.000", r"\*", "1m 02s"],
        ["", "OR-Tools", "10.050", "0.500%", "0.10s", "10.050", "0.500%", "0.10s"],
        ["", "MTPOMO", "10.800", "8.000%", "0.10s", "10.800", "8.000%", "0.10s"],
        ["", "Ours", "**10.200**", "**2.000%**", "0.10s", "**10.200**", "**2.000%**", "0.10s"],
        ["OVRP", "PyVRP", "10.000", r"\*", "1m 02s", "10.000", r"\*", "1m 02s"],
        ["", "OR-Tools", "10.100", "1.000%", "0.10s", "10.100", "1.000%", "0.10s"],
        ["", "MTPOMO", "**10.200**", "**2.000%**", "0.10s", "**10.200**", "**2.000%**", "0.10s"],
        ["", "Ours", "10.400", "4.000%", "0.10s", "10.400", "4.000%", "0.10s"],
        ["Average", "PyVRP", "–", r"\*", "–", "–", r"\*", "–"],
        ["", "OR-Tools", "–", "0.750%", "–", "–", "0.750%", "–"],
        ["", "MTPOMO", "–", "5.000%", "–", "–", "5.000%", "–"],
        ["", "Ours", "–", "**3.000%**", "–", "–", "**3.000%**", "–"],
        # Further runs are in the averages only, and have none where a variant is missing.
        ["", "routefinder_ablation-ple-polar-s0", "–", "–", "–", "–", "–", "–"],
    ]


def test_captions_state_scale_reference_and_instances(quick):
    text = printed(quick, "in_distribution")
    assert "Scale quick." in text
    assert r"mean over instances of 100·(cost − reference)/reference, against our PyVRP costs (\*)" in text
    assert "1 to 2 instances each" in text


def test_every_demonstration_says_that_it_is_no_result(folder, quick):
    for run in (f"{OURS}-n10-s0", "polarnet-ple-polar-n10-kappa2-s0", "polarnet-shared-polar-n10-s0"):
        folder.evaluate(run, 3.0, variants=("CVRP",))
        folder.train(run)
    folder.solve_set_x(f"{OURS}-n10-s0", {"X-n101-k25": (27591, 28810, 28823)})
    for name in ("in_distribution", "set_x", "training_paradigms", "encoder_settings", "task_experts", "training_cost"):
        kind = TABLES[name]
        sheets = kind.render(kind.build(quick))
        assert WARNING in to_markdown(sheets) and WARNING in to_latex(sheets)


def test_results_at_the_papers_scale_carry_no_warning(folder):
    folder.solve(f"{OURS}-n50-s0", "CVRP", 50, [11.0] * 3)
    text = printed(Results(folder.root, "paper"), "in_distribution")
    assert WARNING not in text and "against the published PyVRP costs" in text and "Scale paper." in text
    assert ["", "OR-Tools (published)", "10.572", "1.907%", "–"] in rows_of(text)


def test_zero_shot_is_a_row_a_variant(folder):
    folder.evaluate(f"{OURS}-n10-s0", [2.0, 4.0], variants=("MDVRP", "VRPMB"))
    assert rows_of(printed(Results(folder.root, "quick"), "zero_shot")) == [
        ["Variant", "PyVRP Obj.", "PyVRP Gap", "Ours Obj.", "Ours Gap"],
        ["VRPMB", "10.00", r"\*", "**10.40**", "**4.00%**"],
        ["MDVRP", "10.00", r"\*", "**10.20**", "**2.00%**"],
        ["Average", "–", r"\*", "–", "**3.00%**"],
    ]


def test_set_x_averages_by_size_group(folder):
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


def test_grids_put_the_best_of_each_backbone_in_bold(folder):
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


def test_sweep_prints_epoch_times_as_the_paper_does(folder):
    for run, gap in (("polarnet-shared-polar-n10-s0", 3.0), ("polarnet-shared-polar-n10-k2-s0", 2.0)):
        folder.evaluate(run, gap, variants=("CVRP",))
        folder.train(run, epoch_seconds=(209.0, 404.0), refined=(0, 1))
    assert rows_of(printed(Results(folder.root, "quick"), "refined_tours")) == [
        ["k", "Mean gap", "Epoch without LS", "Epoch with LS"],
        ["1", "3.000%", "3m 29s", "6m 44s"],
        ["2", "**2.000%**", "3m 29s", "6m 44s"],
    ]


def test_training_cost_uses_the_papers_labels(folder):
    folder.train("polarnet-shared-rl-n10-s2", epoch_seconds=(900.0, 900.0), memory=(1.0, 12.52), parameters=1_841_576)
    assert rows_of(printed(Results(folder.root, "quick"), "training_cost"))[1:] == [
        ["Shared, seed 2", "10", "1,841,576", "15m 00s", "30m 00s", "12.52 GB"]
    ]


def test_bold_goes_to_all_that_print_like_the_best():
    cells = best_in_bold([1.2341, 1.2339, 0.5, None, 2.0], "{:.3f}", [True, True, False, True, True])
    assert [cell.bold for cell in cells] == [True, True, False, False, False]
    assert [cell.text for cell in cells] == ["1.234", "1.234", "0.500", "–", "2.000"]


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
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_labels_name_seeds_and_leave_other_runs_alone():
    assert method_label(f"{OURS}-s0") == "Ours"
    assert method_label(f"{OURS}-s3") == "Ours, seed 3"
    assert method_label("published-pyvrp") == "PyVRP (published)"
    assert method_label("polarnet-ple-polar-kappa2-s0") == "polarnet-ple-polar-kappa2-s0"


def test_zero_has_no_sign():
    assert (minus("-0.000%"), minus("-0.012%"), minus("0.000%")) == ("0.000%", "−0.012%", "0.000%")


def test_latex_groups_heads_and_escapes():
    sheet = Sheet(
        "Gap of a_b in %",
        [Column("Variant", numeric=False), Column("Obj.", "n=10"), Column("Gap", "n=10")],
        [[[Cell("CVRP"), Cell("10.0", bold=True), Cell("2%")]], [[Cell("Average"), Cell(), Cell("*")]]],
    )
    text = to_latex([sheet])
    assert r"\caption{Gap of a\_b in \%}\\" in text
    assert r"\multicolumn{1}{c}{} & \multicolumn{2}{c}{n=10} \\" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert "CVRP & \\textbf{10.0} & 2\\% \\\\\n\\midrule\nAverage & -- & * \\\\\n\\end{longtable}" in text
    assert text.count("{") == text.count("}") and text.count(r"\begin") == text.count(r"\end{")
    assert latex_text("α ≤ 1−x_<1>") == r"$\alpha$ $\le$ 1$-$x\_\textless{}1\textgreater{}"
