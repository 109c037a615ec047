"""Pictures of solutions: everything that a reader looks for is drawn, once and apart from the rest."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.image import imread

from polarvrp.cli.main import main
from polarvrp.library.plot import _distinct_colours, draw_solution, title_of
from polarvrp.problem.library_instances import LibraryInstance
from polarvrp.problem.library_prices import service_starts, split_to_feasible
from polarvrp.problem.library_twins import drawn_library
from polarvrp.problem.tours import Route
from polarvrp.problem.vrplib import load_set_x


def solved(variant: str, num_customers: int) -> tuple[LibraryInstance, list[Route]]:
    """A feasible solution: every customer in the order of windows, cut where it must be."""
    library = drawn_library(variant, num_customers, seed=1)
    customers = np.arange(library.num_depots, len(library.demands))
    if library.time_windows is not None:
        customers = customers[np.argsort(library.time_windows[customers, 1])]
    return library, split_to_feasible(library, [Route(0, tuple(customers.tolist()))])


def test_marks_show_depots_loads_and_pickups() -> None:
    """Areas are proportional to loads; pickups are hollow triangles."""
    library, routes = solved("MDVRPB", 30)
    (axes,) = draw_solution(library, routes, "title").axes
    marks = [mark for mark in axes.collections if isinstance(mark, PathCollection)]
    places = [tuple(place) for mark in marks for place in np.asarray(mark.get_offsets()).tolist()]
    assert sorted(places) == sorted(map(tuple, library.coordinates.tolist()))
    pickups = library.pickups
    assert pickups is not None
    area = {
        tuple(place): size
        for mark in marks
        for place, size in zip(np.asarray(mark.get_offsets()).tolist(), mark.get_sizes().tolist(), strict=False)
    }
    sizes = np.array([area[tuple(place)] for place in library.coordinates[library.num_depots :].tolist()])
    loads = (library.demands + pickups)[library.num_depots :]
    assert np.corrcoef(sizes, loads)[0, 1] > 0.98
    legend = axes.get_legend()
    assert legend is not None
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[0] == "depot" and "pickup 9" in texts and "delivery 1" in texts


def test_every_window_and_service_is_a_bar() -> None:
    library, routes = solved("VRPTW", 25)
    _, schedule = draw_solution(library, routes, "title").axes
    windows, service = library.time_windows, library.service_times
    assert windows is not None and service is not None
    bars = [(bar.get_x(), bar.get_width()) for bar in schedule.patches]  # type: ignore[attr-defined]
    wanted = []
    for route in routes:
        for customer, start in zip(route.customers, service_starts(library, route), strict=True):
            earliest, latest = windows[customer]
            assert earliest <= start <= latest
            wanted += [(earliest, latest - earliest), (start, service[customer])]
    assert sorted(bars) == pytest.approx(np.array(sorted(wanted)))


def test_colours_of_neighbours_are_far_apart() -> None:
    colours = np.array(_distinct_colours(60))
    assert len({tuple(colour) for colour in colours.round(6).tolist()}) == 60
    assert (np.abs(np.diff(colours, axis=0)).sum(axis=1) > 0.4).all()


def test_titles_name_broken_rules() -> None:
    library, _, routes = load_set_x("X-n101-k25")
    assert title_of(library, routes) == "X-n101-k25: CVRP, 100 customers\ncost 27591, 26 routes"
    small = dataclasses.replace(library, capacity=100)
    assert "infeasible: route 1 has load" in title_of(small, routes)


def test_the_command_draws_library_files_and_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.vrp").write_text(
        "NAME : a\nDIMENSION : 3\nCAPACITY : 5\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n1 0 0\n2 1 0\n3 0 2\n"
        "DEMAND_SECTION\n1 0\n2 3\n3 4\nDEPOT_SECTION\n1\n-1\nEOF\n"
    )
    (tmp_path / "a.sol").write_text("Route #1: 1\nRoute #2: 2\nCost 6\n")
    (tmp_path / "b.sol").write_text("Route #1: 1\nCost 2\n")
    picture = tmp_path / "a.png"
    assert main(["plot", str(tmp_path / "a.vrp"), str(tmp_path / "a.sol"), "--output", str(picture)]) == 0
    image = imread(picture)
    assert image.shape[0] > 1000 and 0 < (image[..., :3] < 0.5).any(axis=-1).mean() < 0.2
    assert main(["plot", str(tmp_path / "a.vrp"), str(tmp_path / "b.sol"), "--output", str(picture)]) == 2
    assert "b.sol: customer 2 is not served" in capsys.readouterr().err
    assert main(["plot", str(tmp_path / "a.vrp"), str(tmp_path / "a.sol"), "--output", "a.bmp"]) == 2
    assert "--output must end in .png or .pdf or .svg, got a.bmp" in capsys.readouterr().err
    drawing = ["plot", str(tmp_path / "a.vrp"), str(tmp_path / "a.sol"), "--output", str(picture)]
    for index in ("0", "1"):
        assert main([*drawing, "--index", index]) == 2
        assert f"--index is for sets, {tmp_path}/a.vrp holds one instance; leave it out" in capsys.readouterr().err

    command = ["generate", "--variant", "OVRPMBLTW", "--num-customers", "9", "--instances", "2", "--seed", "1"]
    assert main([*command, "--output", str(tmp_path / "s.npz")]) == 0
    solver = ["--solver", "pyvrp", "--seconds", "0.1", "--output", str(tmp_path / "s.parquet")]
    assert main(["reference", str(tmp_path / "s.npz"), *solver]) == 0
    drawing = ["plot", str(tmp_path / "s.npz"), str(tmp_path / "s.parquet"), "--output", str(tmp_path / "s.svg")]
    assert main([*drawing, "--index", "1"]) == 0
    text = (tmp_path / "s.svg").read_text()
    assert "s.npz, instance 1: OVRPMBLTW, 9 customers" in text
    assert main([*drawing, "--index", "0"]) == 2  # another instance's picture is there
    assert (tmp_path / "s.svg").read_text() == text and "choose another --output" in capsys.readouterr().err
    drawing[-1] = str(tmp_path / "t.svg")
    assert main([*drawing, "--index", "2"]) == 2
    assert "--index must be from 0 to 1, got 2" in capsys.readouterr().err
    for option in (["--open"], ["--distances", "exact"]):
        assert main([*drawing, *option]) == 2
        assert f"{option[0]} is for library files" in capsys.readouterr().err
