"""The shipped copies of the paper's tables reproduce the averages that the paper prints."""

from statistics import fmean

import pytest

from polarvrp.catalog.backbones import BACKBONES
from polarvrp.catalog.methods import method_of
from polarvrp.errors import ConfigError
from polarvrp.problem.variants import TRAINING_VARIANTS, ZERO_SHOT_VARIANTS
from polarvrp.tables.paper import (
    IN_DISTRIBUTION_ORDER,
    METHODS,
    PAPER_TABLES,
    ZERO_SHOT_ORDER,
    read_paper,
    set_x_group,
)


def mean_gap(table, method, **where):
    rows = [row for row in read_paper(table) if row["method"] == method]
    rows = [row for row in rows if all(row[key] == value for key, value in where.items())]
    return fmean(row["gap_percent"] for row in rows)


@pytest.mark.parametrize(
    ("method", "small", "large"),
    [("Ours", 1.192, 2.102), ("MoSES(CaDA)", 1.515, 2.631), ("FiLMMeD(CaDA)", 1.543, 2.498)],
)
def test_average_gaps_in_distribution_are_those_the_text_quotes(method, small, large):
    assert mean_gap("in_distribution", method, num_customers=50) == pytest.approx(small, abs=5e-4)
    assert mean_gap("in_distribution", method, num_customers=100) == pytest.approx(large, abs=5e-4)


def test_zero_shot_average_is_the_printed_one():
    assert mean_gap("zero_shot", "Ours") == pytest.approx(21.30, abs=5e-3)


def test_set_x_averages_are_the_printed_ones():
    """Of all 100 instances, and of 32, 36 and 32 by size."""
    assert mean_gap("set_x", "Ours") == pytest.approx(5.860, abs=5e-4)
    rows = [row for row in read_paper("set_x") if row["method"] == "Ours"]
    groups = {}
    for row in rows:
        groups.setdefault(set_x_group(row["instance"]), []).append(row["gap_percent"])
    assert [len(gaps) for gaps in groups.values()] == [32, 36, 32]
    assert [round(fmean(gaps), 3) for gaps in groups.values()] == [3.710, 5.680, 8.215]


def test_row_orders_are_the_papers_and_cover_every_variant():
    assert tuple(dict.fromkeys(row["variant"] for row in read_paper("in_distribution"))) == IN_DISTRIBUTION_ORDER
    assert tuple(dict.fromkeys(row["variant"] for row in read_paper("zero_shot"))) == ZERO_SHOT_ORDER
    assert sorted(IN_DISTRIBUTION_ORDER) == sorted(TRAINING_VARIANTS)
    assert sorted(ZERO_SHOT_ORDER) == sorted(ZERO_SHOT_VARIANTS)


def test_method_labels_are_the_papers_in_its_order():
    assert list(dict.fromkeys(row["method"] for row in read_paper("in_distribution"))) == list(METHODS)
    assert METHODS["FiLMMeD(CaDA)"] == "filmmed-shared-po"
    assert METHODS["Ours"] == "polarnet-ple-polar"
    assert [stem.split("-")[0] for stem in METHODS.values()][2:] == [name for name in BACKBONES if method_of(name)]


@pytest.mark.parametrize("name", PAPER_TABLES)
def test_every_table_is_rectangular(name):
    rows = read_paper(name)
    assert rows and {tuple(row) for row in rows} == {tuple(rows[0])}


def test_unknown_tables_and_instances_are_named():
    with pytest.raises(ConfigError, match="no table 'margins'"):
        read_paper("margins")
    with pytest.raises(ConfigError, match="got 'A-n32-k5'"):
        set_x_group("A-n32-k5")
