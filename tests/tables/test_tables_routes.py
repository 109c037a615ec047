"""Routes of a sample instance of each variant."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from helpers.results_folder import ResultsFolder
from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.cli.main import main
from polarvrp.errors import DataError
from polarvrp.files import write_text
from polarvrp.problem.datasets import read_instances
from polarvrp.problem.instances import instance_digests
from polarvrp.solutions.origin import DIGESTS
from polarvrp.study import shipped
from polarvrp.tables.figures import draw_figure
from polarvrp.tables.sources import MissingResultsError, Results

RUN = "polarnet-ple-polar-n4-s0"


@pytest.fixture
def quick(folder: ResultsFolder) -> Results:
    """Four customers; variants with a closed, an open and a multi-depot tour, the last without a test set."""
    results = Results(folder.root, "quick")
    for variant in ("OVRPB", "CVRP"):
        generate(folder, variant, 4)
    for variant in ("CVRP", "OVRPB", "MDVRP"):
        folder.solve(RUN, variant, 4, [3.25, 4.0], actions=(1, 2, 0, 3, 4))
        folder.solve("cada-shared-rl-n4-s0", variant, 4, [9.0, 9.0], actions=(1, 2, 0, 3, 4))
    return results


def generate(folder: ResultsFolder, variant: str, num_customers: int) -> None:
    path = str(folder.root / "datasets" / "test" / f"{variant}-n{num_customers}.npz")
    words = ["--variant", variant, "--num-customers", str(num_customers), "--instances", "2", "--seed", "1234"]
    assert main(["generate", *words, "--output", path]) == 0


def drawn(results: Results) -> Figure:
    return draw_figure(results, EXPERIMENTS["sample_routes"])


def test_a_panel_a_variant_with_its_routes_and_cost(quick: Results, folder: ResultsFolder) -> None:
    figure = drawn(quick)
    panels = [axes for axes in figure.axes if axes.get_lines()]
    assert [axes.get_title() for axes in panels] == ["CVRP\n3.250", "OVRPB\n3.250"]
    assert figure.get_suptitle().startswith("Routes of the first test instance of each variant: Ours, n=4\n")
    for axes, variant, nodes in zip(panels, ("CVRP", "OVRPB"), ([0, 1, 2, 0], [0, 1, 2]), strict=True):
        places = read_instances(folder.root / "datasets" / "test" / f"{variant}-n4.npz").locs[0]
        first, second, *signs = axes.get_lines()
        assert first.get_xydata().tolist() == places[nodes].tolist()
        assert second.get_xydata()[0].tolist() == places[0].tolist()
        assert sum(sign.get_xydata().shape[0] for sign in signs) == 5  # each node once


def test_solutions_of_other_instances_are_refused(quick: Results, folder: ResultsFolder) -> None:
    sets = {name: folder.root / "datasets" / "test" / f"{name}-n4.npz" for name in ("CVRP", "OVRPB")}
    own, others = (instance_digests(read_instances(sets[name])) for name in ("CVRP", "OVRPB"))
    solution: dict[str, Any] = {"costs": [3.25, 4.0], "actions": (1, 2, 0, 3, 4)}
    folder.solve(RUN, "CVRP", 4, **solution, metadata={DIGESTS: {"0": own[0], "1": own[1]}})
    drawn(quick)
    folder.solve(RUN, "CVRP", 4, **solution, metadata={DIGESTS: {"0": others[0], "1": own[1]}})
    with pytest.raises(DataError, match=r"CVRP-n4.parquet solves another instance 0 than .*CVRP-n4.npz holds"):
        drawn(quick)


def test_without_test_sets_there_is_nothing_to_draw(folder: ResultsFolder) -> None:
    folder.solve(RUN, "CVRP", 4, [3.0])
    with pytest.raises(MissingResultsError, match="holds no evaluations beside their test sets at scale quick"):
        drawn(Results(folder.root, "quick"))


def test_a_shipped_model_of_a_size_that_the_scale_does_not_have_is_left_out(
    folder: ResultsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As scale quick leaves solutions of one in the folder that it shares with scale paper."""
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path / "pretrained")
    write_text(shipped.SHIPPED / "pretrained-n4" / "weights.safetensors", "")
    for variant in ("CVRP", "OVRPB"):
        generate(folder, variant, 4)
        folder.solve("pretrained-n4", variant, 4, [3.25], actions=(1, 2, 0, 3, 4), split="shipped")
    generate(folder, "CVRP", 50)
    folder.solve("polarnet-ple-polar-n50-s0", "CVRP", 50, [9.0], actions=(1, 2, 0, 3, 4))
    titles = [drawn(Results(folder.root, scale)).get_suptitle() for scale in ("quick", "paper")]
    assert [title.partition("\n")[0].rpartition(": ")[2] for title in titles] == [
        "Ours (shipped, n=4), n=4",
        "Ours, n=50",
    ]
