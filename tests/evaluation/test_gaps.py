"""The gap is a mean of per-instance gaps, and nothing missing is ever filled in."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polarvrp.errors import DataError
from polarvrp.evaluation.gaps import instance_gaps_percent, shown_gap, summarise_gaps
from polarvrp.problem.gaps import gap_percent

COSTS = [11.0, 22.0, 44.0]
REFERENCES = [10.0, 20.0, 50.0]


def test_a_gap_is_the_same_of_numbers_and_of_arrays() -> None:
    """Costs of Set-X are whole numbers, those of sets float64."""
    assert gap_percent(28_810, 27_591) == 100 * 1219 / 27_591
    gaps = gap_percent(np.array([28_810.0, 90.0]), np.array([27_591.0, 100.0]))
    assert gaps.tolist() == [gap_percent(28_810, 27_591), -10.0]


def test_mean_of_gaps_differs_from_gap_of_means() -> None:
    """(10 + 10 - 12) / 3 percent, against 77 over 80."""
    summary = summarise_gaps(COSTS, REFERENCES)
    assert summary.gap_percent == pytest.approx(8 / 3)
    assert summary.gap_of_means_percent == pytest.approx(-3.75)
    assert summary.objective == pytest.approx(77 / 3)
    assert (summary.instances, summary.left_out) == (3, 0)


@pytest.mark.parametrize(
    ("costs", "references"),
    [
        (COSTS, [10.0, 20.0, None]),  # nobody solved the third one for reference
        ([11.0, 22.0, None], REFERENCES),  # the method found nothing for the third one
        ([11.0, 22.0, np.nan], [10.0, 20.0, np.nan]),  # neither did
    ],
)
def test_missing_values_are_left_out_of_every_number_and_counted(costs: list[Any], references: list[Any]) -> None:
    summary = summarise_gaps(costs, references)
    assert summary.gap_percent == pytest.approx(10.0)
    assert summary.gap_of_means_percent == pytest.approx(10.0)
    assert summary.objective == pytest.approx(16.5)
    assert (summary.instances, summary.left_out) == (2, 1)


@pytest.mark.parametrize("references", [[None, None, None], [np.nan] * 3])
def test_without_any_reference_there_is_no_number(references: list[Any]) -> None:
    summary = summarise_gaps(COSTS, references)
    assert (summary.objective, summary.gap_percent, summary.gap_of_means_percent) == (None, None, None)
    assert (summary.instances, summary.left_out) == (0, 3)


def test_reference_has_no_gap_to_itself() -> None:
    assert instance_gaps_percent(REFERENCES, REFERENCES).tolist() == [0.0, 0.0, 0.0]


def test_gap_does_not_depend_on_the_unit() -> None:
    scaled = summarise_gaps(np.array(COSTS) * 1000, np.array(REFERENCES) * 1000)
    assert scaled.gap_percent == pytest.approx(summarise_gaps(COSTS, REFERENCES).gap_percent)


@pytest.mark.parametrize(
    ("costs", "references", "message"),
    [
        ([1.0], [1.0, 2.0], "equally long"),  # one reference too many
        ([[1.0]], [[1.0]], "equally long"),  # a matrix
        ([1.0], [0.0], "positive"),  # a filler that would divide by zero
        ([1.0], [-4.0], "positive, got -4.0 for instance 0"),  # a reward taken for a cost
        ([1.0], [np.inf], "positive"),  # "nothing found" written as infinity
    ],
)
def test_unusable_input_is_refused(costs: list[Any], references: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        summarise_gaps(costs, references)


COST = st.one_of(st.none(), st.floats(1e-3, 1e6))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(pairs=st.lists(st.tuples(COST, COST), min_size=1, max_size=30))
def test_numbers_are_those_of_exact_fractions(pairs: list[tuple[float | None, float | None]]) -> None:
    summary = summarise_gaps([cost for cost, _ in pairs], [reference for _, reference in pairs])
    both = [(Fraction(cost), Fraction(known)) for cost, known in pairs if cost is not None and known is not None]
    assert (summary.instances, summary.left_out) == (len(both), len(pairs) - len(both))
    if not both:
        assert (summary.objective, summary.gap_percent, summary.gap_of_means_percent) == (None, None, None)
        return
    gaps = [100 * (cost - known) / known for cost, known in both]
    costs, references = sum(cost for cost, _ in both), sum(known for _, known in both)
    # a gap is near zero where cost and reference are near each other: what is left of them carries their rounding
    rounding = 1e-13 * float(max(abs(gap) + 200 for gap in gaps))
    assert summary.objective == pytest.approx(float(costs / len(both)), rel=1e-13)
    assert summary.gap_percent == pytest.approx(float(sum(gaps) / len(gaps)), abs=rounding)
    assert summary.gap_of_means_percent == pytest.approx(float(100 * (costs - references) / references), abs=rounding)


@pytest.mark.parametrize(
    ("percent", "shown"), [(-4e-4, "0.000"), (-6e-4, "-0.001"), (-0.0, "0.000"), (1.6424, "1.642")]
)
def test_no_minus_before_a_gap_of_zero(percent: float, shown: str) -> None:
    assert shown_gap(percent) == shown
