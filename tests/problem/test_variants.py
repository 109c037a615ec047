"""Names and flags of the 48 variants."""

import pytest

from polarvrp.errors import ConfigError
from polarvrp.problem.variants import (
    TRAINING_VARIANTS,
    VARIANTS,
    ZERO_SHOT_VARIANTS,
    Variant,
    capacity_for,
    parse_variant,
)

# Names of the paper and (O, TW, L, B, MB, MD).
FLAGS = {
    "CVRP": (0, 0, 0, 0, 0, 0),
    "OVRP": (1, 0, 0, 0, 0, 0),
    "VRPB": (0, 0, 0, 1, 0, 0),
    "VRPL": (0, 0, 1, 0, 0, 0),
    "VRPTW": (0, 1, 0, 0, 0, 0),
    "OVRPTW": (1, 1, 0, 0, 0, 0),
    "VRPBLTW": (0, 1, 1, 1, 0, 0),
    "OVRPBLTW": (1, 1, 1, 1, 0, 0),
    "VRPMB": (0, 0, 0, 1, 1, 0),
    "OVRPMBLTW": (1, 1, 1, 1, 1, 0),
    "MDVRP": (0, 0, 0, 0, 0, 1),
    "MDOVRP": (1, 0, 0, 0, 0, 1),
    "MDVRPMBTW": (0, 1, 0, 1, 1, 1),
    "MDOVRPMBLTW": (1, 1, 1, 1, 1, 1),
}


@pytest.mark.parametrize(("name", "flags"), FLAGS.items())
def test_names_and_flags(name: str, flags: tuple[int, ...]) -> None:
    assert VARIANTS[name].flags == tuple(map(bool, flags))
    assert VARIANTS[name].name == name
    assert VARIANTS[name].num_depots == (3 if flags[-1] else 1)


def test_forty_eight_variants_sixteen_of_them_for_training() -> None:
    assert (len(VARIANTS), len(TRAINING_VARIANTS), len(ZERO_SHOT_VARIANTS)) == (48, 16, 32)
    assert all(Variant.of_flags(variant.flags) == variant for variant in VARIANTS.values())
    assert all(name == variant.name for name, variant in VARIANTS.items())
    assert not any("MB" in name or name.startswith("MD") for name in TRAINING_VARIANTS)
    assert sum(name.startswith("MD") for name in ZERO_SHOT_VARIANTS) == 24


@pytest.mark.parametrize(
    ("text", "name"), [("cvrp", "CVRP"), ("mdcvrp", "MDVRP"), ("MDVRP", "MDVRP"), ("oVRPmbLtw", "OVRPMBLTW")]
)
def test_names_in_any_case_and_the_published_folder(text: str, name: str) -> None:
    assert parse_variant(text) == VARIANTS[name]


@pytest.mark.parametrize("text", ["", "VRP", "OCVRP", "VRPTWL", "VRPBMB", "CVRPTW", "MDOCVRP"])
def test_unknown_names(text: str) -> None:
    with pytest.raises(ConfigError, match=r"unknown variant .*a name is \[MD\]\[O\]VRP\[B or MB\]\[L\]\[TW\] or CVRP"):
        parse_variant(text)


def test_plain_variant_is_the_default() -> None:
    assert Variant() == VARIANTS["CVRP"]


@pytest.mark.parametrize(
    ("n", "capacity"),
    [(10, 30), (20, 30), (21, 34), (50, 40), (100, 50), (500, 130), (1000, 230), (1001, 230), (1034, 231), (2000, 260)],
)
def test_capacity_grows_with_size(n: int, capacity: int) -> None:
    assert capacity_for(n) == capacity
