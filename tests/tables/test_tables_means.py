"""Means of tables over instances, variants and seeds are those of exact fractions, or missing where a number is."""

import math
import statistics
from fractions import Fraction

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polarvrp.tables.means import SPREAD, average_over, complete_mean, over_seeds

NUMBER = st.one_of(st.just(math.nan), st.floats(-1e3, 1e6), st.floats(-1e3, 1e6), st.floats(-1e3, 1e6))
SEEDS, VARIANTS = 3, ("CVRP", "OVRP")


def exact_mean(numbers: list[float]) -> float:
    """Mean of numbers, NaN without any or where one is."""
    if not numbers or any(math.isnan(number) for number in numbers):
        return math.nan
    return float(sum(map(Fraction, numbers)) / len(numbers))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(numbers=st.lists(NUMBER, max_size=20))
def test_a_mean_is_exact_but_for_two_roundings_and_the_same_in_any_order(numbers: list[float]) -> None:
    found = complete_mean(numbers)
    assert found == pytest.approx(exact_mean(numbers), rel=3e-16, abs=0, nan_ok=True)
    assert complete_mean(sorted(numbers, reverse=True)) == pytest.approx(found, rel=0, abs=0, nan_ok=True)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    gaps=st.lists(NUMBER, min_size=SEEDS * len(VARIANTS), max_size=SEEDS * len(VARIANTS)),
    dropped=st.sets(st.integers(0, SEEDS * len(VARIANTS) - 1)),
)
def test_averages_over_variants_and_seeds(gaps: list[float], dropped: set[int]) -> None:
    """A variant that a method lacks leaves it without an average; a seed has one of its own."""
    places = [(variant, seed) for variant in VARIANTS for seed in range(SEEDS)]
    rows = {place: gap for number, (place, gap) in enumerate(zip(places, gaps, strict=True)) if number not in dropped}
    frame = pd.DataFrame(
        [{"variant": variant, "method": f"m-s{seed}", "gap": gap} for (variant, seed), gap in rows.items()],
        columns=["variant", "method", "gap"],
    )
    averages = average_over(frame, "variant", VARIANTS, ["method"], "gap").to_dict()
    for seed in range(SEEDS):
        of_seed = [rows[variant, seed] for variant in VARIANTS if (variant, seed) in rows]
        expected = exact_mean(of_seed) if len(of_seed) == len(VARIANTS) else math.nan
        assert averages.get(f"m-s{seed}", math.nan) == pytest.approx(expected, rel=3e-16, abs=0, nan_ok=True)

    means = over_seeds(frame, ["variant"], ["gap"])
    found = (
        {row["variant"]: (row["gap"], row[f"gap{SPREAD}"]) for row in means.to_dict("records")} if len(means) else {}
    )
    for variant in VARIANTS:
        of_variant = [gap for (name, _), gap in rows.items() if name == variant]
        if not of_variant:
            assert variant not in found
            continue
        assert found[variant][0] == pytest.approx(exact_mean(of_variant), rel=3e-16, abs=0, nan_ok=True)
        known = [gap for gap in of_variant if not math.isnan(gap)]
        spread = statistics.stdev(map(Fraction, known)) if len(known) > 1 else math.nan
        assert found[variant][1] == pytest.approx(float(spread), rel=1e-9, abs=1e-9, nan_ok=True)
