"""The shipped copies of the paper's tables reproduce the averages that the paper prints."""

import csv
from importlib.resources import files
from statistics import fmean
from typing import Any

import pytest

from polarvrp.catalog.experiments import EXPERIMENTS
from polarvrp.catalog.methods import METHODS, PUBLISHED
from polarvrp.errors import ConfigError
from polarvrp.problem.variants import TRAINING_VARIANTS, ZERO_SHOT_VARIANTS
from polarvrp.tables.paper import IN_DISTRIBUTION_ORDER, PAPER_TABLES, ZERO_SHOT_ORDER, read_paper, set_x_group


def mean_gap(table: str, method: str, **where: Any) -> float:
    rows = read_paper(table)
    for key, value in {"method": method, **where}.items():
        rows = rows[rows[key] == value]
    return fmean(rows["gap_percent"])


@pytest.mark.parametrize(
    ("method", "small", "large"),
    [("Ours", 1.192, 2.102), ("MoSES(CaDA)", 1.515, 2.631), ("FiLMMeD(CaDA)", 1.543, 2.498)],
)
def test_average_gaps_in_distribution_are_those_the_text_quotes(method: str, small: float, large: float) -> None:
    assert mean_gap("in_distribution", method, num_customers=50) == pytest.approx(small, abs=5e-4)
    assert mean_gap("in_distribution", method, num_customers=100) == pytest.approx(large, abs=5e-4)


def test_zero_shot_average_is_the_printed_one() -> None:
    assert mean_gap("zero_shot", "Ours") == pytest.approx(21.30, abs=5e-3)


def test_set_x_averages_are_the_printed_ones() -> None:
    """Of all 100 instances, and of 32, 36 and 32 by size."""
    assert mean_gap("set_x", "Ours") == pytest.approx(5.860, abs=5e-4)
    rows = read_paper("set_x")
    rows = rows[rows["method"] == "Ours"]
    gaps = rows["gap_percent"].groupby(rows["instance"].map(set_x_group), sort=False)
    assert gaps.size().tolist() == [32, 36, 32]
    assert gaps.mean().round(3).tolist() == [3.710, 5.680, 8.215]


def test_row_orders_are_the_papers_and_cover_every_variant() -> None:
    assert tuple(read_paper("in_distribution")["variant"].unique()) == IN_DISTRIBUTION_ORDER
    assert tuple(read_paper("zero_shot")["variant"].unique()) == ZERO_SHOT_ORDER
    assert sorted(IN_DISTRIBUTION_ORDER) == sorted(TRAINING_VARIANTS)
    assert sorted(ZERO_SHOT_ORDER) == sorted(ZERO_SHOT_VARIANTS)


def test_method_labels_are_the_papers_in_its_order() -> None:
    compared = [record for stem, record in METHODS.items() if not stem.startswith(PUBLISHED)]
    assert read_paper("in_distribution")["method"].unique().tolist() == [record.label for record in compared]
    assert {record.label: record.stem for record in compared}["FiLMMeD(CaDA)"] == "filmmed-shared-po"
    costs = EXPERIMENTS["training_cost"].methods
    assert read_paper("training_cost")["method"].unique().tolist() == [record.label for record in costs]


@pytest.mark.parametrize("name", PAPER_TABLES)
def test_every_number_is_read_as_it_is_written(name: str) -> None:
    text = (files("polarvrp") / "data" / "paper_tables" / f"{name}.csv").read_text(encoding="utf-8")
    written = list(csv.DictReader(text.splitlines(), strict=True))
    rows = read_paper(name)
    assert len(rows) == len(written) > 0 and list(rows) == list(written[0])
    for column, values in rows.items():
        cells = [row[column] for row in written]
        if values.dtype.kind in "if":
            assert values.dropna().tolist() == [float(cell) for cell in cells if cell not in {"", "*"}]
        else:
            assert values.tolist() == cells


def test_unknown_tables_and_instances_are_named() -> None:
    with pytest.raises(ConfigError, match="no table 'margins'"):
        read_paper("margins")
    with pytest.raises(ConfigError, match="got 'A-n32-k5'"):
        set_x_group("A-n32-k5")
