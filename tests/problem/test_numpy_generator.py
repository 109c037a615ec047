"""The NumPy generator reproduces the published sets bit for bit."""

import hashlib
import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from polarvrp.errors import ConfigError
from polarvrp.problem.numpy_generator import TEST_SEED, VALIDATION_SEED, generate_arrays
from polarvrp.problem.variants import VARIANTS, Variant, capacity_for

# variant, n, array, shape, float64 sum, first values, first 16 hex digits of the SHA-256 of the bytes
PINS = [
    ("CVRP", 50, "locs", (1000, 51, 2), 51012.080245, (0.19151945, 0.62210876, 0.43772775), "8a7fe6a68e9b11c1"),
    ("CVRP", 50, "demand_linehaul", (1000, 50), 6255.825031, (0.125, 0.075000003, 0.15000001), "027b9666fab177a4"),
    ("CVRP", 100, "locs", (1000, 101, 2), 100873.71765, (0.19151945, 0.62210876, 0.43772775), "16bc8aed051b79ed"),
    ("CVRP", 100, "demand_linehaul", (1000, 100), 10020.039984, (0.059999999, 0.16, 0.14), "215530f0636be4c7"),
    ("VRPTW", 50, "locs", (1000, 51, 2), 51012.080245, (0.19151945, 0.62210876, 0.43772775), "8a7fe6a68e9b11c1"),
    ("VRPTW", 50, "demand_linehaul", (1000, 50), 6255.825031, (0.125, 0.075000003, 0.15000001), "027b9666fab177a4"),
    ("VRPTW", 50, "time_windows", (1000, 51, 2), 226911.658885, (3.0314693, 3.2173021, 3.2234645), "6764516e242ae732"),
    ("VRPTW", 50, "service_time", (1000, 51), 8248.254853, (0.1781584, 0.17762755, 0.16706672), "cb5d104958838e75"),
    ("VRPL", 100, "locs", (1000, 101, 2), 100873.71765, (0.19151945, 0.62210876, 0.43772775), "16bc8aed051b79ed"),
    ("VRPL", 100, "demand_linehaul", (1000, 100), 10020.039984, (0.059999999, 0.16, 0.14), "215530f0636be4c7"),
    ("VRPL", 100, "distance_limit", (1000, 1), 2382.453076, (1.9114724, 2.3828001, 2.4689128), "b58c46c08718263f"),
    ("VRPB", 50, "locs", (1000, 51, 2), 51012.080245, (0.19151945, 0.62210876, 0.43772775), "8a7fe6a68e9b11c1"),
    ("VRPB", 50, "demand_linehaul", (1000, 50), 4989.575025, (0.125, 0.075000003, 0.15000001), "2df439dd9b008181"),
    ("VRPB", 50, "demand_backhaul", (1000, 50), 1261.175006, (0, 0, 0), "04c144b1fd413cac"),
    ("OVRPBLTW", 50, "locs", (1000, 51, 2), 51012.080245, (0.19151945, 0.62210876, 0.43772775), "8a7fe6a68e9b11c1"),
    ("OVRPBLTW", 50, "demand_linehaul", (1000, 50), 4989.575025, (0.125, 0.075000003, 0.15000001), "2df439dd9b008181"),
    ("OVRPBLTW", 50, "demand_backhaul", (1000, 50), 1261.175006, (0, 0, 0), "04c144b1fd413cac"),
    (
        "OVRPBLTW",
        50,
        "time_windows",
        (1000, 51, 2),
        226519.122262,
        (1.5643545, 1.7504301, 2.0222337),
        "637c9542f03df242",
    ),
    ("OVRPBLTW", 50, "service_time", (1000, 51), 8249.182736, (0.16119689, 0.15336794, 0.16500767), "e37631d46dd850bb"),
    ("OVRPBLTW", 50, "distance_limit", (1000, 1), 2362.106963, (2.5060172, 2.4884634, 2.4192169), "94d024d8dbf38082"),
    ("OVRPBLTW", 100, "locs", (1000, 101, 2), 100873.71765, (0.19151945, 0.62210876, 0.43772775), "16bc8aed051b79ed"),
    ("OVRPBLTW", 100, "demand_linehaul", (1000, 100), 8019.679987, (0, 0.16, 0.14), "87be05ff4ae00051"),
    ("OVRPBLTW", 100, "demand_backhaul", (1000, 100), 1992.659997, (0.1, 0, 0), "a476a29a7e431031"),
    (
        "OVRPBLTW",
        100,
        "time_windows",
        (1000, 101, 2),
        448462.398839,
        (2.4675384, 2.666435, 1.9463134),
        "8627ec0b742acbbe",
    ),
    (
        "OVRPBLTW",
        100,
        "service_time",
        (1000, 101),
        16500.366899,
        (0.1504059, 0.15912296, 0.17737077),
        "0f1ba52c27a72119",
    ),
    ("OVRPBLTW", 100, "distance_limit", (1000, 1), 2388.714711, (2.4919496, 2.7237306, 2.0893292), "e35ac9839b403b15"),
    ("VRPBLTW", 50, "locs", (1000, 51, 2), 51012.080245, (0.19151945, 0.62210876, 0.43772775), "8a7fe6a68e9b11c1"),
    ("VRPBLTW", 50, "demand_linehaul", (1000, 50), 4989.575025, (0.125, 0.075000003, 0.15000001), "2df439dd9b008181"),
    ("VRPBLTW", 50, "demand_backhaul", (1000, 50), 1261.175006, (0, 0, 0), "04c144b1fd413cac"),
    (
        "VRPBLTW",
        50,
        "time_windows",
        (1000, 51, 2),
        226519.122262,
        (1.5643545, 1.7504301, 2.0222337),
        "637c9542f03df242",
    ),
    ("VRPBLTW", 50, "service_time", (1000, 51), 8249.182736, (0.16119689, 0.15336794, 0.16500767), "e37631d46dd850bb"),
    ("VRPBLTW", 50, "distance_limit", (1000, 1), 2362.106963, (2.5060172, 2.4884634, 2.4192169), "94d024d8dbf38082"),
    ("VRPMB", 100, "locs", (1000, 101, 2), 100873.71765, (0.19151945, 0.62210876, 0.43772775), "16bc8aed051b79ed"),
    ("VRPMB", 100, "demand_linehaul", (1000, 100), 8019.679987, (0, 0.16, 0.14), "87be05ff4ae00051"),
    ("VRPMB", 100, "demand_backhaul", (1000, 100), 1992.659997, (0.1, 0, 0), "a476a29a7e431031"),
    ("VRPMBLTW", 50, "locs", (1000, 51, 2), 51012.080245, (0.19151945, 0.62210876, 0.43772775), "8a7fe6a68e9b11c1"),
    ("VRPMBLTW", 50, "demand_linehaul", (1000, 50), 4989.575025, (0.125, 0.075000003, 0.15000001), "2df439dd9b008181"),
    ("VRPMBLTW", 50, "demand_backhaul", (1000, 50), 1261.175006, (0, 0, 0), "04c144b1fd413cac"),
    (
        "VRPMBLTW",
        50,
        "time_windows",
        (1000, 51, 2),
        226519.122262,
        (1.5643545, 1.7504301, 2.0222337),
        "637c9542f03df242",
    ),
    ("VRPMBLTW", 50, "service_time", (1000, 51), 8249.182736, (0.16119689, 0.15336794, 0.16500767), "e37631d46dd850bb"),
    ("VRPMBLTW", 50, "distance_limit", (1000, 1), 2362.106963, (2.5060172, 2.4884634, 2.4192169), "94d024d8dbf38082"),
    ("MDVRP", 50, "locs", (1000, 53, 2), 53006.551647, (0.19151945, 0.62210876, 0.43772775), "cf9042d108447e7a"),
    ("MDVRP", 50, "demand_linehaul", (1000, 50), 6256.250031, (0.1, 0.175, 0.025), "7bd51e575d6b5323"),
    ("MDVRP", 100, "locs", (1000, 103, 2), 102872.964432, (0.19151945, 0.62210876, 0.43772775), "f5465f86fe6afc17"),
    ("MDVRP", 100, "demand_linehaul", (1000, 100), 10020.699984, (0.12, 0.16, 0.16), "72468945203da85c"),
    ("MDVRPL", 50, "locs", (1000, 53, 2), 53006.551647, (0.19151945, 0.62210876, 0.43772775), "cf9042d108447e7a"),
    ("MDVRPL", 50, "demand_linehaul", (1000, 50), 6256.250031, (0.1, 0.175, 0.025), "7bd51e575d6b5323"),
    ("MDVRPL", 50, "distance_limit", (1000, 1), 2367.284466, (1.8754326, 2.7183022, 2.4850497), "279f3fa9c44fbdfb"),
    ("MDVRPTW", 100, "locs", (1000, 103, 2), 102872.964432, (0.19151945, 0.62210876, 0.43772775), "f5465f86fe6afc17"),
    ("MDVRPTW", 100, "demand_linehaul", (1000, 100), 10020.699984, (0.12, 0.16, 0.16), "72468945203da85c"),
    (
        "MDVRPTW",
        100,
        "time_windows",
        (1000, 103, 2),
        457213.982744,
        (3.7789485, 3.9705765, 3.3061743),
        "f8f9a1f81b3f91b6",
    ),
    (
        "MDVRPTW",
        100,
        "service_time",
        (1000, 103),
        16504.36635,
        (0.15531102, 0.17260505, 0.17304759),
        "0425e5b243569591",
    ),
    ("MDOVRPMBLTW", 50, "locs", (1000, 53, 2), 53006.551647, (0.19151945, 0.62210876, 0.43772775), "cf9042d108447e7a"),
    ("MDOVRPMBLTW", 50, "demand_linehaul", (1000, 50), 4982.725025, (0, 0.175, 0.025), "4a7eaa04655d0861"),
    ("MDOVRPMBLTW", 50, "demand_backhaul", (1000, 50), 1277.100006, (0.2, 0, 0), "8f2936f5d669fd51"),
    (
        "MDOVRPMBLTW",
        50,
        "time_windows",
        (1000, 53, 2),
        236019.64109,
        (1.4982351, 1.6839191, 2.9130375),
        "a77e7b3c339fdeed",
    ),
    (
        "MDOVRPMBLTW",
        50,
        "service_time",
        (1000, 53),
        8249.729321,
        (0.17585544, 0.17879596, 0.16131283),
        "bf655457fc789110",
    ),
    (
        "MDOVRPMBLTW",
        50,
        "distance_limit",
        (1000, 1),
        2362.696913,
        (1.9927942, 2.3583932, 2.4978518),
        "419ea19855205303",
    ),
    (
        "MDOVRPMBLTW",
        100,
        "locs",
        (1000, 103, 2),
        102872.964432,
        (0.19151945, 0.62210876, 0.43772775),
        "f5465f86fe6afc17",
    ),
    ("MDOVRPMBLTW", 100, "demand_linehaul", (1000, 100), 8023.539987, (0, 0.16, 0.16), "b72756589bdd390e"),
    ("MDOVRPMBLTW", 100, "demand_backhaul", (1000, 100), 1984.279997, (0.059999999, 0, 0), "ef07e7592a54402d"),
    (
        "MDOVRPMBLTW",
        100,
        "time_windows",
        (1000, 103, 2),
        457005.512126,
        (2.9579341, 3.1430521, 2.1551211),
        "aecd35d62ca91d18",
    ),
    (
        "MDOVRPMBLTW",
        100,
        "service_time",
        (1000, 103),
        16499.587317,
        (0.15361615, 0.17878334, 0.15979224),
        "85742ffc643396f9",
    ),
    (
        "MDOVRPMBLTW",
        100,
        "distance_limit",
        (1000, 1),
        2405.512774,
        (2.2761331, 2.286272, 2.7083361),
        "e72252daaca58f30",
    ),
]

# Where the list of first values starts in the flattened array: windows and service times of depots are constant.
FIRST_NODE = {"time_windows": 2, "service_time": 1}


@pytest.fixture(scope="module")
def published_sets() -> dict[tuple[str, int], dict[str, np.ndarray]]:
    names = sorted({(name, n) for name, n, *_ in PINS})
    return {(name, n): generate_arrays(VARIANTS[name], n, 1000, TEST_SEED) for name, n in names}


@pytest.mark.golden
@pytest.mark.parametrize(("name", "n", "array", "shape", "total", "first", "digest"), PINS)
def test_published_arrays(
    published_sets: dict[tuple[str, int], dict[str, NDArray[Any]]],
    name: str,
    n: int,
    array: str,
    shape: tuple[int, ...],
    total: float,
    first: list[float],
    digest: str,
) -> None:
    """Each array has the published bytes; on a platform whose libm differs, the published sum and first values."""
    got = published_sets[name, n][array]
    assert got.shape == shape
    if hashlib.sha256(got.tobytes()).hexdigest().startswith(digest):
        return
    assert got.sum(dtype=np.float64) == pytest.approx(total, rel=1e-9)
    start = FIRST_NODE.get(array, 0) * VARIANTS[name].num_depots
    np.testing.assert_allclose(got.ravel()[start : start + 3], first, rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", [TEST_SEED, VALIDATION_SEED, 7])
def test_layout(seed: int) -> None:
    """Present arrays, their shapes and types follow the variant."""
    for name, variant in VARIANTS.items():
        arrays = generate_arrays(variant, 6, 2, seed)
        nodes = 6 + variant.num_depots
        wanted: dict[str, Any] = {
            "locs": ((2, nodes, 2), np.float32),
            "demand_linehaul": ((2, 6), np.float32),
            "vehicle_capacity": ((2, 1), np.float32),
            "speed": ((2, 1), np.float32),
            "num_depots": ((2, 1), np.int32),
        }
        if variant.backhaul:
            wanted |= {"demand_backhaul": ((2, 6), np.float32), "backhaul_class": ((2, 1), np.float32)}
        if variant.open_route:
            wanted |= {"open_route": ((2, 1), np.bool_)}
        if variant.time_windows:
            wanted |= {"time_windows": ((2, nodes, 2), np.float32), "service_time": ((2, nodes), np.float32)}
        if variant.distance_limit:
            wanted |= {"distance_limit": ((2, 1), np.float32)}
        assert {key: (array.shape, array.dtype) for key, array in arrays.items()} == wanted, name


def test_sixteen_families_of_data() -> None:
    """Open routes and the class of backhauls touch no draw, so the 48 variants share 16 families of arrays."""
    families: dict[str, set[Variant]] = {}
    for variant in VARIANTS.values():
        arrays = generate_arrays(variant, 5, 3, TEST_SEED)
        drawn = sorted(set(arrays) - {"open_route", "backhaul_class", "vehicle_capacity", "speed", "num_depots"})
        key = hashlib.sha256(b"".join(arrays[name].tobytes() for name in drawn)).hexdigest()
        families.setdefault(key, set()).add(variant)
    assert len(families) == 16
    for family in families.values():
        kinds = {(v.multi_depot, v.time_windows, v.distance_limit, bool(v.backhaul)) for v in family}
        assert len(kinds) == 1
        assert len(family) == (4 if any(v.backhaul for v in family) else 2)


@pytest.mark.parametrize(
    ("name", "seed", "whole"),
    [
        ("CVRP", TEST_SEED, 1000),
        ("MDVRP", TEST_SEED, 1000),
        ("VRPL", VALIDATION_SEED, 1000),
        ("MDVRPL", VALIDATION_SEED, 128),
    ],
)
def test_a_part_is_the_head_of_the_published_set(name: str, seed: int, whole: int) -> None:
    """Fewer instances are the first rows of the whole draw; only more than published change the draw."""
    variant = VARIANTS[name]
    full = generate_arrays(variant, 5, whole, seed)
    head = generate_arrays(variant, 5, 3, seed)
    more = generate_arrays(variant, 5, whole + 1, seed)
    for key, array in full.items():
        np.testing.assert_array_equal(head[key], array[:3])
    # Coordinates are drawn first, so demands already differ.
    assert not np.array_equal(more["demand_linehaul"][:whole], full["demand_linehaul"])


def test_other_seeds_draw_what_is_asked() -> None:
    """Without a published set the number of instances is the number drawn."""
    few, many = (generate_arrays(VARIANTS["CVRP"], 5, count, 99) for count in (3, 1000))
    assert not np.array_equal(few["demand_linehaul"], many["demand_linehaul"][:3])


def test_global_random_state_is_left_alone() -> None:
    """The generator owns its stream: a user's global seed neither matters nor moves."""
    np.random.seed(5)
    before = np.random.get_state()[1].copy()
    generate_arrays(VARIANTS["VRPTW"], 5, 3, TEST_SEED)
    np.testing.assert_array_equal(before, np.random.get_state()[1])


@pytest.mark.parametrize("n", [10, 20, 50, 100])
def test_every_customer_can_be_served_alone_from_the_first_depot(n: int) -> None:
    """Round trips respect windows, closing time and limit; each customer has exactly one whole positive demand."""
    arrays = {k: v.astype(np.float64) for k, v in generate_arrays(VARIANTS["MDVRPBLTW"], n, 1000, TEST_SEED).items()}
    out = np.linalg.norm(arrays["locs"][:, 3:] - arrays["locs"][:, :1], axis=-1)
    earliest, latest = arrays["time_windows"][:, 3:, 0], arrays["time_windows"][:, 3:, 1]
    start = np.maximum(out, earliest)
    assert (start <= latest).all()
    assert (start + arrays["service_time"][:, 3:] + out <= arrays["time_windows"][:, :1, 1]).all()
    assert (2 * out < arrays["distance_limit"]).all()
    length = latest - earliest
    assert length.min() >= 0.18 - 1e-6 and length.max() <= 0.2 + 1e-6
    linehaul, backhaul = arrays["demand_linehaul"], arrays["demand_backhaul"]
    assert ((linehaul > 0) ^ (backhaul > 0)).all()
    units = (linehaul + backhaul) * capacity_for(n)
    np.testing.assert_allclose(units, np.rint(units), rtol=0, atol=1e-5)
    assert set(np.rint(units).ravel()) == set(range(1, 10))
    assert abs((backhaul > 0).mean() - 0.2) < 0.01


@pytest.mark.parametrize(
    ("n", "count", "seed", "message"),
    [
        (0, 1, 1234, "at least one customer and one instance, got 0 customers"),  # nothing to visit
        (5, 0, 1234, "got 5 customers, 0 instances"),  # empty set
        (5, 1, -1, "seed must be in [0, 2^32)"),  # MT19937 takes 32 bits
        (5, 1, 2**32, "seed must be in [0, 2^32)"),
    ],
)
def test_arguments_out_of_bounds(n: int, count: int, seed: int, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        generate_arrays(VARIANTS["CVRP"], n, count, seed)
