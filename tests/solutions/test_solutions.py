"""Files of solutions: round trip, one schema whatever the rows hold, and errors that name the file."""

import dataclasses
import random
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polarvrp.errors import DataError
from polarvrp.files import provenance
from polarvrp.solutions.merging import merge_solutions
from polarvrp.solutions.rows import SolutionRow
from polarvrp.solutions.solutions import read_solutions, solution_rows, solution_schema, write_solutions

SOLVED = SolutionRow(
    "MDVRPTW", 1000, 3, "pyvrp", 12.25, (0, 3, 4, 2, 1002, 5), 2, 1.5, 0.0, 7, 1.0, 10_000_000, 55, "pyvrp 0.14.1"
)
FAILED = SolutionRow("MDVRPTW", 1000, 4, "pyvrp", None, (), 0, 0.1, None, reason="customer 5 is above capacity")


@pytest.mark.parametrize("key", ["solver", "run"])
def test_round_trip(tmp_path: Path, key: Literal["solver", "run"]) -> None:
    path = tmp_path / "deep" / "rows.parquet"
    write_solutions(path, [SOLVED, FAILED], key, {"machine": "x", "threads": 1})
    table = read_solutions(path)
    assert table.column_names[3] == key
    assert solution_rows(table) == [SOLVED, FAILED]
    assert provenance(table) == {"machine": "x", "threads": 1}
    assert [p.name for p in path.parent.iterdir()] == ["rows.parquet"]


def test_contract_columns_in_order() -> None:
    assert " ".join(solution_schema("solver").names) == (
        "variant num_customers instance solver cost actions routes seconds max_violation "
        "seed limit_seconds scale iterations solver_version reason"
    )
    assert solution_schema("run").field("actions").type == pa.list_(pa.uint16())
    assert solution_schema("run").field("cost").type == pa.float64()


def test_files_with_all_null_columns_concatenate(tmp_path: Path) -> None:
    write_solutions(tmp_path / "a.parquet", [FAILED])
    write_solutions(tmp_path / "b.parquet", [SOLVED])
    write_solutions(tmp_path / "c.parquet", [])
    tables = [pq.read_table(tmp_path / f"{name}.parquet") for name in "abc"]
    assert pa.concat_tables(tables).num_rows == 2


def test_a_row_has_a_cost_or_a_reason() -> None:
    with pytest.raises(DataError, match="either a cost or a reason"):
        dataclasses.replace(SOLVED, cost=None)


def test_compatible_types_of_others_are_read(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([dataclasses.asdict(SOLVED)]).rename_columns(solution_schema("solver").names)
    narrow = table.set_column(5, "actions", pa.array([[0, 3, 4]], pa.list_(pa.uint8())))
    pq.write_table(narrow, tmp_path / "narrow.parquet")
    assert solution_rows(read_solutions(tmp_path / "narrow.parquet"))[0].actions == (0, 3, 4)


def test_unusable_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    with pytest.raises(DataError, match=r"x\.parquet does not exist"):
        read_solutions(path)
    write_solutions(path, [SOLVED])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"x\.parquet is no complete Parquet file"):
        read_solutions(path)
    pq.write_table(pa.table({"cost": [1.0]}), path)
    with pytest.raises(DataError, match=r"x\.parquet is no file of solutions.*variant"):
        read_solutions(path)
    bad = pa.Table.from_pylist([dataclasses.asdict(SOLVED)]).rename_columns(solution_schema("solver").names)
    pq.write_table(bad.set_column(4, "cost", pa.array(["cheap"])), path)
    with pytest.raises(DataError, match=r"x\.parquet is no file of solutions"):
        read_solutions(path)


@pytest.mark.parametrize(
    ("column", "values", "fault"),
    [
        ("actions", pa.array([[1, None, 2]], pa.list_(pa.uint16())), "a tour has a missing node"),
        ("seconds", pa.array([float("inf")]), "column seconds has a number that is not finite"),
        ("variant", pa.array([None], pa.string()), "with null values"),
        ("reason", pa.array(["lazy"]), "either a cost or a reason"),
    ],
)
def test_rows_that_nobody_writes_are_refused(tmp_path: Path, column: str, values: pa.Array, fault: str) -> None:
    table = pa.Table.from_pylist([dataclasses.asdict(SOLVED)]).rename_columns(solution_schema("solver").names)
    changed = table.set_column(table.column_names.index(column), column, values)
    pq.write_table(changed, tmp_path / "x.parquet")
    with pytest.raises(DataError, match=rf"x\.parquet is no file of solutions: .*{fault}"):
        read_solutions(tmp_path / "x.parquet")


def test_merge_orders_instances_and_refuses_strangers(tmp_path: Path) -> None:
    write_solutions(tmp_path / "late.parquet", [FAILED], "solver", {"threads": 1})
    write_solutions(tmp_path / "early.parquet", [SOLVED])
    output = tmp_path / "all.parquet"
    merge_solutions([tmp_path / "late.parquet", tmp_path / "early.parquet"], output)
    assert solution_rows(read_solutions(output)) == [SOLVED, FAILED]
    assert provenance(read_solutions(output)) == {"threads": 1}
    with pytest.raises(DataError, match="instance 3 is in both"):
        merge_solutions([tmp_path / "early.parquet", output], tmp_path / "twice.parquet")
    write_solutions(tmp_path / "other.parquet", [dataclasses.replace(SOLVED, instance=9, method="ortools")])
    with pytest.raises(DataError, match=r"other\.parquet holds"):
        merge_solutions([output, tmp_path / "other.parquet"], tmp_path / "mixed.parquet")
    assert not (tmp_path / "mixed.parquet").exists()


def test_numbers_survive_exactly(tmp_path: Path) -> None:
    rng = random.Random(5)
    rows = [
        dataclasses.replace(SOLVED, instance=i, cost=rng.expovariate(1e-3), seconds=rng.random() * 1e-9, seed=2**62 + i)
        for i in range(5000)
    ]
    write_solutions(tmp_path / "many.parquet", rows)
    assert solution_rows(read_solutions(tmp_path / "many.parquet")) == rows
    with pytest.raises(DataError, match="finite"):
        write_solutions(tmp_path / "nan.parquet", [dataclasses.replace(SOLVED, seconds=float("nan"))])


WITHOUT_HEAVY_IMPORTS = """
import sys
from polarvrp.solutions.merging import merge_solutions
from polarvrp.solutions.rows import SolutionRow
from polarvrp.solutions.solutions import read_solutions, solution_rows, write_solutions
row = SolutionRow("CVRP", 3, 0, "pyvrp", 2.5, (1, 2, 0, 3), 2, 0.1, 0.0)
write_solutions(sys.argv[1], [row], "solver", {"threads": 1})
assert solution_rows(read_solutions(sys.argv[1])) == [row]
print([name for name in ("torch", "pandas") if name in sys.modules])
"""


def test_writing_and_reading_load_neither_torch_nor_pandas(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_HEAVY_IMPORTS, str(tmp_path / "x.parquet")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "[]"


@pytest.mark.parametrize("said", [b"{", b"[1]", b"\xff"])
def test_a_damaged_provenance_is_named(tmp_path: Path, said: bytes) -> None:
    path = tmp_path / "x.parquet"
    write_solutions(path, [SOLVED])
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"polarvrp": said}), path)
    with pytest.raises(DataError, match=r"x\.parquet is no complete Parquet file \(it says in no readable way"):
        read_solutions(path)
