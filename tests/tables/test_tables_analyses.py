"""Tables and figures of the analyses, and the paper's numbers beside them."""

import math

import pytest

from helpers.analysis_files import METRICS, architecture_file, embedding_file, expert_file, margin_file
from helpers.results_folder import ResultsFolder, table_rows
from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.errors import DataError
from polarvrp.files import read_parquet, write_parquet
from polarvrp.tables.build import build_table, build_tables, print_experiment
from polarvrp.tables.figures import draw_figure
from polarvrp.tables.sources import MissingResultsError, Results


@pytest.fixture
def paper(folder: ResultsFolder) -> Results:
    return Results(folder.root, "paper")


def test_margins_are_those_of_the_epochs_with_refinement(folder: ResultsFolder, paper: Results) -> None:
    margin_file(folder.root, "polarnet-ple-po-n50-s0", (9.0, 1.0, 2.0), None)
    margin_file(folder.root, "polarnet-ple-polar-n50-s0", (9.0, 3.0, 5.0), 1)
    margin_file(folder.root, "polarnet-ple-polar-n50-kappa2-s0", (9.0, 30.0, 50.0), 1)
    margin_file(folder.root, "polarnet-ple-polar-n100-s0", (9.0, 30.0, 50.0), 1)
    rows = table_rows(paper, "preference_margins")
    assert [(row["metric"], row["epsilon_percent"]) for row in rows] == [
        (metric, None if math.isnan(tolerance) else tolerance) for metric, tolerance in METRICS
    ]
    for row in rows:  # epochs 2 and 3, weighted by 20 and 30 pairs
        assert row["po"] == pytest.approx((20 * 1 + 30 * 2) / 50)
        assert row["polar"] == pytest.approx((20 * 3 + 30 * 5) / 50)
        assert (row["num_customers"], row["seed"]) == (50, 0)


def test_margins_print_the_paper_s_form_and_stand_beside_its_numbers(folder: ResultsFolder, paper: Results) -> None:
    for seed, late in ((0, 1.0), (1, 2.0)):
        margin_file(folder.root, f"polarnet-ple-po-n50-s{seed}", (9.0, 3.0), None)
        margin_file(folder.root, f"polarnet-ple-polar-n50-s{seed}", (9.0, late), 1)
    build_tables(paper, ["preference_margins"])
    text = paper.layout.table("preference_margins", "md").read_text(encoding="utf-8")
    assert "Mean preferred-pair gap Δ | **3.000 ± 0.000** | 1.500 ± 0.707" in " ".join(text.split())
    assert "Cost near-ties, ε=0.1% | 3.00 ± 0.00% | **1.50 ± 0.71%**" in " ".join(text.split())
    rows = {(row["row"], row["column"]): row for row in table_rows(paper, "paper_comparison")}
    assert rows["mean_cost_gap", "polar"]["paper"] == 0.562
    assert rows["mean_cost_gap", "polar"]["ours"] == pytest.approx(1.5)
    assert rows["cost_near_tie_percent epsilon_percent=0.1", "po"]["difference"] == pytest.approx(3.0 - 2.36)


def test_margins_of_other_sizes_are_not_compared(folder: ResultsFolder) -> None:
    quick = Results(folder.root, "quick")
    margin_file(folder.root, "polarnet-ple-polar-n10-s0", (9.0, 3.0), 1)
    expert_file(folder.root, "polarnet-ple-polar-n10-s0")
    build_tables(quick, ["preference_margins", "expert_contributions"])
    (row,) = [row for row in table_rows(quick, "preference_margins") if row["metric"] == "mean_cost_gap"]
    assert (row["po"], row["polar"]) == (None, 3.0)
    names = {"preference_margins", "expert_contributions"}
    compared = [row for row in table_rows(quick, "paper_comparison") if row["table"] in names]
    assert len(compared) == 20 + 24 and all(row["ours"] is None for row in compared)


def test_without_refinement_there_is_nothing_to_compare(folder: ResultsFolder, paper: Results) -> None:
    margin_file(folder.root, "polarnet-ple-po-n50-s0", (9.0, 3.0), None)
    assert table_rows(paper, "preference_margins") == []


def test_contributions_are_means_over_variants(folder: ResultsFolder, paper: Results) -> None:
    expert_file(folder.root, "polarnet-ple-polar-n50-s0", shift=2.0)
    expert_file(folder.root, "routefinder_ablation-ple-polar-n50-s0")
    rows = table_rows(paper, "expert_contributions")
    assert [row["layer"] for row in rows] == [1, 2]
    for row in rows:
        assert row["task_1_percent"] == pytest.approx(10 + 2 * sum(range(16)) / 16)
        assert (row["task_3_percent"], row["shared_percent"]) == (30.0, 40.0)
        assert (row["variants"], row["instances"], row["num_customers"]) == (16, 80, 50)
    build_tables(paper, ["expert_contributions"])
    lines = {(row["row"], row["column"]): row for row in table_rows(paper, "paper_comparison")}
    assert lines["layer=1", "shared_percent"]["difference"] == pytest.approx(40 - 10.7)
    assert lines["layer=6", "shared_percent"]["ours"] is None


def test_gates_list_every_backbone_of_the_grid(folder: ResultsFolder, paper: Results) -> None:
    for backbone in ("polarnet", "routefinder_ablation"):
        expert_file(folder.root, f"{backbone}-ple-polar-n50-s0")
    expert_file(folder.root, "polarnet-ple-rl-n50-s0")
    rows = table_rows(paper, "gate_weights")
    assert list(dict.fromkeys(row["backbone"] for row in rows)) == ["routefinder_ablation", "polarnet"]
    assert len(rows) == 2 * 16 * 2 * 4
    assert [row["variant"] for row in rows[:9:8]] == ["CVRP", "VRPTW"]  # the paper's order
    assert [(row["layer"], row["expert"]) for row in rows[3:5]] == [(1, "shared"), (2, "task_1")]
    build_tables(paper, ["gate_weights"])
    text = paper.layout.table("gate_weights", "md").read_text(encoding="utf-8")
    assert text.count("Gate weights by variant") == 2 and "Layer 2 Shared" in text


def test_separation_is_that_of_the_angle_between_variants(folder: ResultsFolder, paper: Results) -> None:
    for backbone, angle in (("polarnet", math.pi / 3), ("mtpomo_ablation", 0.0)):
        embedding_file(folder.root, f"{backbone}-ple-polar-n50-s0", angle)
    embedding_file(folder.root, "polarnet-shared-polar-n50-s0", 0.0)
    embedding_file(folder.root, "polarnet-deep-polar-n50-s0", 0.0)  # not in this grid
    rows = table_rows(paper, "embeddings")
    cells = [("mtpomo_ablation", "ple"), ("polarnet", "shared"), ("polarnet", "ple")]
    assert [(row["backbone"], row["encoder"]) for row in rows] == cells
    assert [row["cosine_separation"] for row in rows] == pytest.approx([0.0, 0.0, 0.5], abs=1e-6)
    assert (rows[2]["cosine_within"], rows[2]["cosine_between"]) == pytest.approx((1.0, 0.5))
    assert (rows[2]["points"], rows[2]["num_customers"]) == (4, 50)
    build_tables(paper, ["embeddings"])
    text = " ".join(paper.layout.table("embeddings", "md").read_text(encoding="utf-8").split())
    assert "| Ours | 1.000 | 1.000 | 0.000 | 1.000 | 0.500 | **0.500** |" in text
    figure = draw_figure(paper, EXPERIMENTS["embeddings"])
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [
        "",
        "Ours, Shared\nseparation 0.000",
        "MTPOMO, PLE\nseparation 0.000",
        "Ours, PLE\nseparation 0.500",
    ]
    assert figure.axes[3].collections[1].get_offsets().tolist() == [[1.0, 0.0], [1.0, 1.0]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["CVRP", "VRPTW"]


def test_a_map_of_what_was_analysed_since_the_table_was_built_has_no_number(
    folder: ResultsFolder, paper: Results
) -> None:
    embedding_file(folder.root, "polarnet-ple-polar-n50-s0", math.pi / 3)
    build_tables(paper, ["embeddings"])
    embedding_file(folder.root, "polarnet-shared-polar-n50-s0", 0.0)
    titles = [axes.get_title() for axes in draw_figure(paper, EXPERIMENTS["embeddings"]).axes]
    assert titles == ["Ours, Shared\nseparation –", "Ours, PLE\nseparation 0.500"]


def test_sizes_of_networks_need_no_run(folder: ResultsFolder, paper: Results) -> None:
    architecture_file(folder.root, (50, 100))
    build_tables(paper, ["architectures"])
    rows = table_rows(paper, "architectures")
    assert len(rows) == 8 and rows[0]["multiply_adds"] == 2_000_000 * 50
    text = paper.layout.table("architectures", "md").read_text(encoding="utf-8")
    assert "MTPOMO (grids)" in text and "4,000,000" in text and "200.0" in text
    lines = {row["row"]: row for row in table_rows(paper, "paper_comparison") if row["table"] == "architectures"}
    assert {name: (row["paper"], row["ours"]) for name, row in lines.items()} == {
        "polarnet ple": (6.98e6, 4e6),
        "polarnet shared": (1.84e6, 3e6),
        "polarnet ple / shared": (3.79, pytest.approx(4 / 3)),
    }
    figure = draw_figure(paper, EXPERIMENTS["architectures"])
    assert [axes.get_title() for axes in figure.axes] == ["Parameters", "Multiply-adds, n=50", "Multiply-adds, n=100"]
    assert [bar.get_width() for bar in figure.axes[2].containers[1]] == [50.0] * 4


def test_a_network_may_be_another_at_another_size(folder: ResultsFolder, paper: Results) -> None:
    """As that of CaDA, which has fewer prompt tokens beyond 50 customers."""
    architecture_file(folder.root, (50, 100))
    frame = build_table(paper, record := EXPERIMENTS["architectures"])
    frame.loc[(frame["backbone"] == "mtpomo") & (frame["num_customers"] == 100), "parameters"] = 999_000
    (table,) = print_experiment(frame, record)
    assert [list(row)[:4] for row in table.text.to_numpy()][:2] == [
        ["MTPOMO", "Shared", "1,000,000", "999,000"],
        ["MTPOMO (grids)", "Shared", "2,000,000", "2,000,000"],
    ]


@pytest.mark.parametrize(
    ("name", "source"), [("preference_margins", "history"), ("expert_contributions", "model"), ("embeddings", "model")]
)
def test_an_analysis_of_another_model_than_the_present_one_is_refused(
    folder: ResultsFolder, paper: Results, name: str, source: str
) -> None:
    run = "polarnet-ple-polar-n50-s0"
    margin_file(folder.root, run, (9.0, 3.0), 1)
    expert_file(folder.root, run)
    embedding_file(folder.root, run, math.pi / 3)
    folder.train(run)
    path = paper.layout.analysis(run, name)
    rows, found = table_rows(paper, name), read_parquet(path)
    write_parquet(path, found, {source: {"fingerprint": f"print-of-{run}"}})
    assert rows and table_rows(paper, name) == rows
    write_parquet(path, found, {source: {"fingerprint": "another"}})
    with pytest.raises(
        DataError, match=rf"{name}\.parquet is by a model of fingerprint another, but the run's is print"
    ):
        table_rows(paper, name)


def test_pictures_show_what_the_tables_hold(folder: ResultsFolder, paper: Results) -> None:
    margin_file(folder.root, "polarnet-ple-po-n50-s0", (9.0, 1.0, 2.0), None)
    margin_file(folder.root, "polarnet-ple-polar-n50-s0", (9.0, 3.0, 5.0), 1)
    expert_file(folder.root, "polarnet-ple-polar-n50-s0", shift=2.0)
    build_tables(paper, ["gate_weights"])
    by_epoch = draw_figure(paper, EXPERIMENTS["preference_margins"])
    assert [text.get_text() for text in by_epoch.legends[0].get_texts()] == ["PO", "POLAR"]
    assert len(by_epoch.axes) == 10
    assert by_epoch.axes[7].get_title() == "Policy near-ties, ε=0.5%"
    assert by_epoch.axes[7].get_lines()[1].get_xydata().tolist() == [[1, 9.0], [2, 3.0], [3, 5.0]]
    shares = draw_figure(paper, EXPERIMENTS["expert_contributions"])
    assert [axes.get_title() for axes in shares.axes] == ["Layer 1", "Layer 2"]
    bars = [bar.get_width() for bar in shares.axes[0].containers[0]]
    assert len(bars) == 17 and bars[-1] == pytest.approx(10 + 2 * 7.5) and bars[0] == 10.0
    gates = draw_figure(paper, EXPERIMENTS["gate_weights"])
    assert gates.axes[0].get_images()[0].get_array().tolist()[0] == pytest.approx([0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize("name", ["preference_margins", "expert_contributions", "embeddings"])
def test_pictures_without_analyses_say_what_makes_them(paper: Results, name: str) -> None:
    with pytest.raises(MissingResultsError, match=f"nothing for {name} at scale paper; make it with: snakemake"):
        draw_figure(paper, EXPERIMENTS[name])
