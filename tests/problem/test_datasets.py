"""Files of instances: round trip, defaults, and one clear line for every kind of bad input."""

import dataclasses
import re
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from polarvrp.errors import DataError
from polarvrp.problem.archives import BLOCK, read_arrays, read_metadata, write_arrays
from polarvrp.problem.datasets import count_instances, instances_from_arrays, read_instances, variant_of
from polarvrp.problem.instances import NodeArrays, instance_digests, to_tensors
from polarvrp.problem.numpy_generator import generate_arrays
from polarvrp.problem.sets import write_set
from polarvrp.problem.variants import VARIANTS

Arrays = dict[str, NodeArrays]


@pytest.fixture
def arrays() -> Arrays:
    """A small set with every attribute."""
    return generate_arrays(VARIANTS["MDOVRPBLTW"], 6, 4, 1)


@pytest.mark.parametrize("name", VARIANTS)
def test_round_trip(name: str, tmp_path: Path) -> None:
    """What was written is read back, and the variant is recognised from arrays and tensors."""
    variant = VARIANTS[name]
    arrays = generate_arrays(variant, 6, 3, 1)
    path = tmp_path / "new folder" / "set.npz"
    write_arrays(path, arrays)
    stored = read_arrays(path)
    assert set(stored) == set(arrays)
    for key, array in arrays.items():
        np.testing.assert_array_equal(stored[key], array)
        assert stored[key].dtype == array.dtype
    instances = read_instances(path)
    assert variant_of(instances) == variant_of(to_tensors(instances)) == variant
    assert (instances.flags == np.array(variant.flags)).all()
    assert instances.num_customers == 6 and instances.capacity == 30
    assert [p.name for p in path.parent.iterdir()] == ["set.npz"]


def test_container_of_every_attribute(arrays: Arrays) -> None:
    """Demands get the depots' zeros, scalars are flattened, floats are float32."""
    instances = instances_from_arrays(arrays)
    assert instances.num_depots == 3 and instances.num_nodes == 9
    assert (instances.demand_linehaul[:, :3] == 0).all() and (instances.demand_backhaul[:, :3] == 0).all()
    np.testing.assert_array_equal(instances.demand_linehaul[:, 3:], arrays["demand_linehaul"])
    np.testing.assert_array_equal(instances.distance_limit, arrays["distance_limit"][:, 0])
    assert instances.open_route.all() and instances.backhaul_class.dtype == np.int64
    floats = ("locs", "demand_linehaul", "demand_backhaul", "time_windows", "service_time", "distance_limit")
    assert all(getattr(instances, name).dtype == np.float32 for name in floats)


def test_defaults_bind_nothing() -> None:
    """Absent attributes: windows [0, inf], no service, no limit, closed routes, class 1, one depot if unsaid."""
    arrays = generate_arrays(VARIANTS["CVRP"], 6, 2, 1)
    del arrays["num_depots"], arrays["speed"]
    instances = instances_from_arrays(arrays)
    assert instances.num_depots == 1
    assert (instances.time_windows[..., 0] == 0).all() and np.isposinf(instances.time_windows[..., 1]).all()
    assert (instances.service_time == 0).all() and np.isposinf(instances.distance_limit).all()
    assert not instances.open_route.any() and (instances.backhaul_class == 1).all()
    assert not instances.flags.any()


def test_inactive_arrays_count_as_absent() -> None:
    """A file that carries every array describes CVRP where the values bind nothing; flat scalars are accepted."""
    arrays = generate_arrays(VARIANTS["CVRP"], 6, 2, 1)
    arrays["open_route"] = np.zeros(2, dtype=bool)
    arrays["distance_limit"] = np.full((2, 1), np.inf, dtype=np.float32)
    arrays["time_windows"] = np.broadcast_to(np.array([0, np.inf], dtype=np.float32), (2, 7, 2))
    arrays["service_time"] = np.zeros((2, 7), dtype=np.float32)
    assert variant_of(instances_from_arrays(arrays)) == VARIANTS["CVRP"]


def test_backhauls_are_an_attribute_even_if_nobody_has_one() -> None:
    """Ten customers have no backhaul among them in one of ten instances; the variant stays what it is."""
    arrays = generate_arrays(VARIANTS["VRPMB"], 6, 2, 1)
    arrays["demand_linehaul"] += arrays["demand_backhaul"]
    arrays["demand_backhaul"][:] = 0
    assert variant_of(instances_from_arrays(arrays)) == VARIANTS["VRPMB"]


def test_some_instances(arrays: Arrays, tmp_path: Path) -> None:
    """In whichever order their numbers are stored; what is not asked for is checked all the same."""
    path = tmp_path / "set.npz"
    for stored in (arrays, {name: np.asfortranarray(array) for name, array in arrays.items()}):
        write_arrays(path, stored, {"instances": 4})
        whole = read_instances(path)
        for first, start in ((3, 0), (2, 1), (1, 3), (None, 2)):
            some, stop = read_instances(path, first, start), 4 if first is None else start + first
            assert instance_digests(some) == instance_digests(whole[start:stop])
        assert count_instances(path) == 4
    for first in (0, 5, -1):
        with pytest.raises(DataError, match=f"holds 4 instances, asked for 0 up to {first}"):
            read_instances(path, first=first)
    write_arrays(path, arrays | {"service_time": arrays["service_time"][:3]})
    with pytest.raises(DataError, match=r"service_time must be \[4, 9\] to match locs, got \[3, 9\]"):
        read_instances(path, first=2)


def test_damage_is_found_where_nobody_reads(arrays: Arrays, tmp_path: Path) -> None:
    """Every array has its checksum, and the last row's bits count when the first row is asked for."""
    path = tmp_path / "set.npz"
    write_arrays(path, arrays)
    whole = path.read_bytes()
    for name in ("locs", "time_windows"):
        last = whole.index(arrays[name].tobytes()) + arrays[name].nbytes - 1
        path.write_bytes(whole[:last] + bytes([whole[last] ^ 1]) + whole[last + 1 :])
        with pytest.raises(DataError, match="damaged or of another layout"):
            read_instances(path, first=1)


def test_rows_that_nobody_asked_for_take_no_memory(tmp_path: Path) -> None:
    """Of 10,000 instances, 5 MB, ten are read, and all are checked: beside the numbers there is little."""
    path = tmp_path / "set.npz"
    write_set(path, "OVRPBLTW", 20, 10_000, 1)
    read_instances(path, first=1)  # imports
    peaks = []
    for first in (10, None):
        tracemalloc.start()
        instances = read_instances(path, first=first)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    held = sum(getattr(instances, field.name).nbytes for field in dataclasses.fields(instances)[:9])
    assert peaks[0] < 3 * BLOCK < held < peaks[1] < 1.6 * held


def test_files_are_reproducible_and_say_how_they_were_made(arrays: Arrays, tmp_path: Path) -> None:
    """Same arrays and metadata, same bytes; the metadata does not show up among the arrays."""
    metadata = {"seed": 1, "variant": "MDOVRPBLTW"}
    paths = [tmp_path / name for name in ("a.npz", "b.npz", "plain.npz")]
    for path in paths[:2]:
        write_arrays(path, arrays, metadata)
    write_arrays(paths[2], arrays)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert read_metadata(paths[0]) == metadata
    assert read_metadata(paths[2]) is None
    with np.load(paths[0], allow_pickle=False) as archive:  # any other reader
        assert set(archive.files) == set(arrays)


def test_mixed_variants_have_no_single_variant() -> None:
    arrays = generate_arrays(VARIANTS["OVRP"], 6, 2, 1)
    arrays["open_route"][0] = False
    with pytest.raises(DataError, match="instances of one variant are needed, got 2 kinds"):
        variant_of(instances_from_arrays(arrays))


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.npz"
    for read in (read_instances, read_arrays, read_metadata):
        with pytest.raises(DataError, match=re.escape(f"{path} does not exist; check the path")):
            read(path)


def test_damaged_files(arrays: Arrays, tmp_path: Path) -> None:
    """Cut anywhere or with a flipped bit, a file is refused by name."""
    path = tmp_path / "set.npz"
    write_arrays(path, arrays)
    whole = path.read_bytes()
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=re.escape(str(path))):
            read_instances(path)
    at = whole.index(arrays["locs"].tobytes()) + 5
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(DataError, match="damaged or of another layout"):
        read_instances(path)


def test_other_kinds_of_files(tmp_path: Path) -> None:
    """A folder, a text, a single .npy and pickled objects are no sets; nothing is unpickled."""
    text, single, pickled = (tmp_path / name for name in ("text.npz", "single.npz", "pickled.npz"))
    text.write_text("NAME : X-n101-k25")
    with single.open("wb") as file:
        np.save(file, np.zeros(3))
    np.savez(pickled, locs=np.array([{"an": "object"}], dtype=object))
    for path, message in (
        (tmp_path, " is a folder"),
        (text, ": no .npz archive"),
        (single, ": no .npz archive"),
        (pickled, " is damaged or of another layout"),
    ):
        with pytest.raises(DataError, match=re.escape(f"{path}{message}")):
            read_instances(path)


def test_what_a_set_lacks_is_said_before_how_many_it_holds(tmp_path: Path) -> None:
    library, lacking = tmp_path / "A.vrp", tmp_path / "lacking.npz"
    library.write_text("NAME : A")
    np.savez(lacking, demand_linehaul=np.zeros((2, 3)))
    for path, message in (
        (library, ": no .npz archive; files of single instances are for polarvrp solve"),
        (lacking, ": array 'locs' is missing; a set needs at least locs, demand_linehaul, vehicle_capacity"),
    ):
        with pytest.raises(DataError, match=re.escape(f"{path}{message}")):
            count_instances(path)


def changed(name: str, value: Any, where: Any = ...) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name][where] = value

    return change


def replaced(name: str, array: NDArray[Any]) -> Callable[[Arrays], None]:
    return lambda arrays: arrays.update({name: array})


def both_demands(arrays: Arrays) -> None:
    """The first customer both delivers and picks up."""
    for name in ("demand_linehaul", "demand_backhaul"):
        changed(name, np.float32(0.1), (0, 0))(arrays)


BAD_ARRAYS = [
    (lambda arrays: arrays.pop("locs"), "array 'locs' is missing; a set needs at least"),
    (lambda arrays: arrays.pop("vehicle_capacity"), "array 'vehicle_capacity' is missing"),
    (
        lambda arrays: arrays.pop("num_depots"),
        "demand_linehaul must be [4, 8] to match locs and 1 depot(s), got [4, 6]",
    ),
    (replaced("demands", np.zeros(3)), "unknown array 'demands'; known are locs"),
    (replaced("locs", np.array([["a"]])), "locs must hold numbers, got <U1"),
    (replaced("locs", np.zeros((4, 9))), "locs must be [instances, nodes, 2], got [4, 9]"),
    (replaced("locs", np.zeros((0, 9, 2))), "locs must be [instances, nodes, 2], got [0, 9, 2]"),
    (replaced("demand_linehaul", np.zeros((4, 9))), "demand_linehaul must be [4, 6] to match locs and 3 depot(s)"),
    (replaced("time_windows", np.zeros((4, 6, 2))), "time_windows must be [4, 9, 2] to match locs, got [4, 6, 2]"),
    (replaced("service_time", np.zeros((3, 9))), "service_time must be [4, 9] to match locs, got [3, 9]"),
    (replaced("distance_limit", np.ones((4, 2))), "distance_limit must be [4, 1] to match locs, got [4, 2]"),
    (changed("num_depots", 1, 0), "num_depots must be one whole number in [1, 9), got [1, 3]"),
    (changed("num_depots", 9), "num_depots must be one whole number in [1, 9), got [9]"),
    (replaced("num_depots", np.full((4, 1), 1.5)), "num_depots must be one whole number in [1, 9), got [1.5]"),
    (changed("vehicle_capacity", 40.0), "vehicle_capacity must be 1, got 40.0; scale demands"),
    (changed("speed", 2.0, 3), "speed must be 1, got 2.0"),
    (changed("backhaul_class", 3.0, 1), "backhaul_class must be 1 or 2, got 3.0"),
    (changed("backhaul_class", np.nan, 1), "backhaul_class must be 1 or 2, got nan"),
    (replaced("open_route", np.full((4, 1), 7)), "open_route must be 0 or 1, got 7"),
    (changed("locs", np.nan, (2, 5, 0)), "locs must be finite; broken at instance 2, node 5"),
    (replaced("locs", np.full((4, 9, 2), 1e300)), "locs must be finite; broken at instance 0, node 0"),
    (changed("demand_linehaul", -0.1, (1, 2)), "demands must be finite and at least 0; broken at instance 1, node 5"),
    (changed("demand_linehaul", np.inf, (1, 2)), "demands must be finite and at least 0; broken at instance 1, node 5"),
    (both_demands, "either a linehaul or a backhaul demand; broken at instance 0, node 3"),
    (changed("demand_linehaul", 0.0), "either a linehaul or a backhaul demand; broken at instance 0, node 3"),
    (changed("demand_linehaul", 0.12, (0, 0)), "demands must be multiples of 1/30, the capacity for 6 customers"),
    (changed("service_time", -1.0, (0, 4)), "service_time must be finite and at least 0; broken at instance 0, node 4"),
    (changed("time_windows", [2.0, 1.0], (0, 4)), "windows must be [earliest, latest], 0 <= earliest <= latest"),
    (changed("time_windows", np.nan, (0, 4, 1)), "windows must be [earliest, latest], 0 <= earliest <= latest"),
    (changed("time_windows", np.inf, (0, 4)), "earliest service must be finite; broken at instance 0, node 4"),
    (changed("time_windows", [1.0, 4.6], (3, 2)), "depots must open at 0; broken at instance 3, node 2"),
    (changed("distance_limit", 0.0, 2), "distance_limit must be above 0; broken at instance 2"),
    (changed("distance_limit", np.nan, 2), "distance_limit must be above 0; broken at instance 2"),
]


@pytest.mark.parametrize(("change", "message"), BAD_ARRAYS)
def test_inconsistent_arrays(arrays: Arrays, change: Callable[[Arrays], None], message: str, tmp_path: Path) -> None:
    """Each is refused in one line that names the file and the array."""
    change(arrays)
    path = tmp_path / "set.npz"
    write_arrays(path, arrays)
    with pytest.raises(DataError, match=re.escape(f"{path}: ") + ".*" + re.escape(message)) as caught:
        read_instances(path)
    assert "\n" not in str(caught.value)


def test_demands_are_read_as_whole_multiples_of_a_unit() -> None:
    """Noise of other writers vanishes, so that loads add up exactly; what the generators write stays bit for bit."""
    for name, size in (("VRPB", 20), ("CVRP", 100)):
        arrays = generate_arrays(VARIANTS[name], size, 50, 7)
        noisy = arrays | {"demand_linehaul": arrays["demand_linehaul"] * np.float32(1 + 2e-5)}
        exact, read = instances_from_arrays(arrays), instances_from_arrays(noisy)
        np.testing.assert_array_equal(exact.demand_linehaul[:, 1:], arrays["demand_linehaul"])
        np.testing.assert_array_equal(read.demand_linehaul, exact.demand_linehaul)
        np.testing.assert_array_equal(exact.demand_backhaul[:, 1:], arrays.get("demand_backhaul", 0.0))


def test_no_flipped_bit_of_a_file_gives_other_instances(tmp_path: Path) -> None:
    """Every bit of the directory at its end: a changed length may swallow a member that the reader does not miss."""
    path = tmp_path / "set.npz"
    write_set(path, "OVRPL", 3, 2, 1)  # two members that a reader does not miss
    whole, content = read_instances(path), path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        directory = archive.start_dir
    for place in range(8 * directory, 8 * len(content)):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            read = read_instances(path)
        except DataError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            continue
        assert instance_digests(read) == instance_digests(whole)


def test_a_set_must_be_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    arrays = generate_arrays(VARIANTS["VRPTW"], 6, 4, 1)
    for said, message in (
        ({"variant": "CVRP"}, "says variant CVRP and holds VRPTW"),
        ({"num_customers": 7}, "says num_customers 7 and holds 6"),
        ({"instances": 5}, "says instances 5 and holds 4"),
    ):
        write_arrays(path, arrays, said)
        with pytest.raises(DataError, match=message):
            read_instances(path)


def test_what_only_some_archives_do_is_refused(tmp_path: Path) -> None:
    """An encrypted member, a member twice, and a header that claims more than there is memory."""
    path = tmp_path / "set.npz"
    write_set(path, "CVRP", 3, 2, 1)
    encrypted = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        first, second = archive.start_dir, archive.infolist()[0].header_offset
    encrypted[first + 8] |= 1
    encrypted[second + 6] |= 1
    path.write_bytes(encrypted)
    with pytest.raises(DataError, match=r"set\.npz is damaged or of another layout \(.*encrypted"):
        read_instances(path)
    header = np.lib.format.magic(1, 0) + (118).to_bytes(2, "little")
    claim = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,)}"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("locs.npy", header + claim.ljust(117) + b"\n")
    with pytest.raises(DataError, match=r"set\.npz is damaged or of another layout"):
        read_instances(path)
