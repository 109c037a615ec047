"""Figures: drawn from tables of the right scale, labelled with it, and the same bytes for the same numbers."""

import json
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from helpers.results_folder import ResultsFolder
from polarvrp.catalog.backbones import grid_backbones
from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.errors import ConfigError
from polarvrp.problem.variants import VARIANTS
from polarvrp.study import shipped
from polarvrp.tables.build import build_tables
from polarvrp.tables.figures import draw_figure, draw_figures
from polarvrp.tables.sources import MissingResultsError, Results

RUN = "polarnet-ple-polar-n10-s0"


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Tables of two methods, one of them at two sizes; not to be changed."""
    folder = ResultsFolder(tmp_path_factory.mktemp("figures") / "results")
    folder.evaluate(RUN, 3.0)
    folder.evaluate("polarnet-ple-polar-n20-s0", 4.0)
    folder.evaluate("cada-shared-rl-n10-s0", 5.0)
    folder.train(RUN)
    results = Results(folder.root, "quick")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipped, "SHIPPED", folder.root / "ships nothing")
        build_tables(results)
    return results


def drawn(results: Results, name: str) -> Figure:
    return draw_figure(results, EXPERIMENTS[name])


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_gaps_have_a_panel_a_size_and_a_row_a_variant(quick: Results) -> None:
    figure = drawn(quick, "in_distribution")
    assert [axes.get_title() for axes in figure.axes] == ["n=10", "n=20"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()][:3] == ["CVRP", "VRPTW", "OVRP"]
    assert legend(figure) == ["CaDA", "Ours"]  # PyVRP is the reference, its gap is 0 everywhere
    x, y = figure.axes[1].collections[-1].get_offsets().T
    assert x.tolist() == pytest.approx([4.0] * 16)
    assert [round(value) for value in y] == list(range(16))


def test_seeds_share_a_dot_and_a_legend_entry(folder: ResultsFolder) -> None:
    for seed, gap in enumerate((3.0, 7.0)):
        folder.evaluate(f"polarnet-ple-polar-n10-s{seed}", gap, variants=("CVRP",))
        folder.train(f"polarnet-ple-polar-n10-s{seed}")
    results = Results(folder.root, "quick")
    build_tables(results, ["in_distribution"])
    figure = drawn(results, "in_distribution")
    assert legend(figure) == ["Ours"]
    assert figure.axes[0].collections[-1].get_offsets()[:, 0].tolist() == pytest.approx([5.0])
    curves = drawn(results, "training_curves")
    assert legend(curves) == ["Ours"] and len(curves.axes[0].get_lines()) == 2


def test_grids_have_a_panel_a_backbone_with_means(folder: ResultsFolder) -> None:
    for backbone in grid_backbones()[::3]:
        for encoder, gaps in (("shared", [3.0, 4.0]), ("ple", [2.0, 1.0])):
            folder.evaluate(f"{backbone}-{encoder}-polar-n10-s0", gaps, variants=("CVRP", "OVRP"))
    results = Results(folder.root, "quick")
    build_tables(results, ["encoder_settings"])
    titles = [axes.get_title() for axes in drawn(results, "encoder_settings").axes]
    assert titles == ["MTPOMO\nShared 3.50, PLE 1.50", "Ours\nShared 3.50, PLE 1.50"]


def staged(folder: ResultsFolder, run: str, stages: list[dict[str, Any]]) -> None:
    about = folder.root / "models" / run / "metadata.json"
    about.write_text(json.dumps({"spec": {"training": {"stages": stages}}}), encoding="utf-8")


def test_curves_go_by_instances_and_by_time(folder: ResultsFolder) -> None:
    """Costs of a stage on some variants do not compare; dotted lines mark where the next stage begins."""
    run = "moses-shared-rl-n10-s0"
    folder.train(run, epoch_seconds=(60.0, 60.0, 120.0), refined=(0, 0, 0), memory=(1.0, 1.0, 1.0))
    path = folder.root / "models" / run / "history.parquet"
    history = pd.read_parquet(path).assign(stage=[1, 1, 2], instances_per_second=10.0, sampled_cost=[5.0, 4.0, 9.0])
    history.to_parquet(path)
    staged(folder, run, [{"name": "base", "variants": ["CVRP"]}, {"name": "mixture"}])
    cost, by_instances, by_time = drawn(Results(folder.root, "quick"), "training_curves").axes
    (costs, mark), (gaps, _), (timed, timed_mark) = (axes.get_lines() for axes in (cost, by_instances, by_time))
    assert costs.get_xydata().tolist() == [[2400, 9.0]]
    assert gaps.get_xydata()[:, 0].tolist() == [600, 1200, 2400]
    assert timed.get_xydata()[:, 0].tolist() == [1, 2, 4] and by_time.get_xlabel() == "minutes of training"
    assert (mark.get_xdata()[0], timed_mark.get_xdata()[0], mark.get_linestyle()) == (1200, 2, ":")
    assert {axes.get_ylabel() for axes in (by_instances, by_time)} == {"gap to one local search (%)"}


@pytest.mark.parametrize(
    ("stages", "compared"),
    [
        ([{"num_customers": 5}, {}], [2.0, 3.0]),  # a curriculum of sizes: the first stage has shorter tours
        ([{"variants": list(VARIANTS)}, {"variants": list(VARIANTS)}], [1.0, 2.0, 3.0]),
    ],
)
def test_costs_are_drawn_of_the_instances_that_a_training_ends_with(
    folder: ResultsFolder, stages: list[dict[str, Any]], compared: list[float]
) -> None:
    folder.train(RUN, [1.0] * 3, [0] * 3, [1.0] * 3)
    path = folder.root / "models" / RUN / "history.parquet"
    pd.read_parquet(path).assign(stage=[1, 2, 2], sampled_cost=[1.0, 2.0, 3.0]).to_parquet(path)
    staged(folder, RUN, stages)
    costs = drawn(Results(folder.root, "quick"), "training_curves").axes[0].get_lines()[0]
    assert costs.get_ydata().tolist() == compared


def test_the_beginning_of_a_long_training_does_not_flatten_the_rest(folder: ResultsFolder) -> None:
    """Of 40 epochs the first two fall from 100 to 10, the others to 1; a short training is shown whole."""
    folder.train(RUN, [1.0] * 40, [0] * 40, [1.0] * 40)
    path = folder.root / "models" / RUN / "history.parquet"
    falling = [100.0, 50.0, *(10 - 9 * step / 37 for step in range(38))]
    history = pd.read_parquet(path).assign(sampled_cost=falling, validation_gap_percent=falling)
    history.to_parquet(path)
    for axes in drawn(Results(folder.root, "quick"), "training_curves").axes:
        bottom, top = axes.get_ylim()
        assert (bottom, top) == pytest.approx((1 - 0.45, 10 + 0.45))
    history[:30].to_parquet(path)
    assert all(axes.get_ylim()[1] > 100 for axes in drawn(Results(folder.root, "quick"), "training_curves").axes)


def test_axes_of_gaps_say_what_they_are_to(quick: Results) -> None:
    assert {axes.get_xlabel() for axes in drawn(quick, "in_distribution").axes} == {"gap to our PyVRP costs (%)"}
    assert drawn(quick, "encoder_settings").axes[0].get_xlabel() == "gap to our PyVRP costs (%)"


@pytest.mark.parametrize("name", ["in_distribution", "training_curves"])
def test_titles_state_the_scale(quick: Results, name: str) -> None:
    assert (
        drawn(quick, name)
        .get_suptitle()
        .endswith("Scale quick: shows that the pipeline works. Nothing here is a result.")
    )


def test_figures_are_written_twice_with_the_same_bytes(quick: Results) -> None:
    paths = draw_figures(quick, ["training_curves"])
    assert paths == [quick.root / "figures" / f"training_curves.{suffix}" for suffix in ("png", "pdf")]
    first = [path.read_bytes() for path in paths]
    assert first[0].startswith(b"\x89PNG") and first[1].startswith(b"%PDF")
    assert [path.read_bytes() for path in draw_figures(quick, ["training_curves"])] == first


def test_every_figure_that_can_be_drawn_is_drawn(quick: Results) -> None:
    drawn = list(dict.fromkeys(path.stem for path in draw_figures(quick)))
    assert drawn == ["in_distribution", "training_paradigms", "encoder_settings", "gap_by_time", "training_curves"]


def test_what_cannot_be_drawn_is_named(quick: Results) -> None:
    with pytest.raises(ConfigError, match="unknown figure 'curves'; there are in_distribution"):
        draw_figures(quick, ["curves"])
    with pytest.raises(MissingResultsError, match=r"zero_shot\.parquet does not exist; make it with: polarvrp tables"):
        draw_figures(quick, ["zero_shot"])
    with pytest.raises(MissingResultsError, match=r"in_distribution\.parquet is of scale quick, not paper"):
        draw_figures(Results(quick.root, "paper"), ["in_distribution"])
    with pytest.raises(MissingResultsError, match="holds no tables to draw"):
        draw_figures(Results(quick.root / "nowhere", "quick"))
