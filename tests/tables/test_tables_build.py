"""Writing tables: four files each, an explicit schema, provenance, the same bytes for the same rows."""

import csv
import json
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from helpers.results_folder import ResultsFolder
from polarvrp.catalog.experiments import EXPERIMENTS, tables
from polarvrp.errors import ConfigError, DataError
from polarvrp.study.layout import TABLE_SUFFIXES
from polarvrp.tables.build import build_tables
from polarvrp.tables.frames import arrow_schema
from polarvrp.tables.sources import MissingResultsError, Results

RUN = "polarnet-ple-polar-n10-s0"
CONTRACT = {
    "in_distribution": "variant num_customers method objective gap_percent seconds instances reference scale",
    "zero_shot": "variant num_customers method protocol objective gap_percent seconds instances reference scale",
    "set_x": "instance method best_known cost gap_percent scale",
    "training_paradigms": "backbone paradigm variant gap_percent scale",
    "encoder_settings": "backbone encoder variant gap_percent parameters scale",
    "temperature": "alpha paradigm mean_gap_percent epoch_seconds scale",
    "refined_tours": "refined_tours_k mean_gap_percent epoch_seconds scale",
    "task_experts": "task_experts_kappa mean_gap_percent epoch_seconds_without_ls epoch_seconds_with_ls scale",
    "refinement_start": "refinement_start_epoch mean_gap_percent epoch_seconds scale",
    "preference_margins": "metric epsilon_percent po polar scale",
    "expert_contributions": "layer task_1_percent task_2_percent task_3_percent shared_percent scale",
    "gate_weights": "backbone variant layer expert gate weight norm contribution_percent scale",
    "embeddings": "backbone encoder cosine_within cosine_between cosine_separation scale",
    "architectures": "backbone encoder num_customers parameters encoder_multiply_adds decoder_multiply_adds scale",
    "training_cost": "method num_customers parameters epoch_seconds total_hours peak_memory_gb scale",
    "gap_by_time": "method num_customers effort gap_percent seconds_per_1000 scale",
    "paper_comparison": "table row column paper ours difference scale",
}


@pytest.fixture
def quick(folder: ResultsFolder) -> Results:
    folder.evaluate(RUN, 3.0)
    folder.train(RUN)
    return Results(folder.root, "quick")


def test_the_contract_knows_every_table() -> None:
    assert set(CONTRACT) == set(tables())


@pytest.mark.parametrize("name", CONTRACT)
def test_columns_hold_the_promised_ones_in_order(name: str) -> None:
    names = arrow_schema(EXPERIMENTS[name]).names
    assert [column for column in names if column in CONTRACT[name].split()] == CONTRACT[name].split()
    assert names[-1] == "scale"


def test_tables_are_written_in_every_format(quick: Results, folder: ResultsFolder) -> None:
    paths = build_tables(quick, ["in_distribution"])
    assert paths == [folder.root / "tables" / f"in_distribution.{suffix}" for suffix in TABLE_SUFFIXES]
    table = pq.read_table(paths[0])
    assert table.schema.equals(arrow_schema(EXPERIMENTS["in_distribution"]))
    with paths[1].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == table.num_rows == 32
    assert [float(row["gap_percent"]) for row in rows] == table["gap_percent"].to_pylist()


def test_parquet_says_where_its_numbers_come_from(quick: Results) -> None:
    provenance = json.loads(pq.read_schema(build_tables(quick, ["in_distribution"])[0]).metadata[b"polarvrp"])
    assert provenance["scale"] == "quick" and provenance["table"] == "in_distribution"
    assert provenance["fingerprints"] == {RUN: f"print-of-{RUN}"}


def test_parquet_says_how_compared_methods_are_called(folder: ResultsFolder) -> None:
    folder.evaluate("cada-shared-po-n10-s0", 3.0)
    results = Results(folder.root, "quick", labels={"cada-shared-po": "CaDA with PO"})
    path = build_tables(results, ["in_distribution"])[0]
    labels = json.loads(pq.read_schema(path).metadata[b"polarvrp"])["labels"]
    assert [label for _, label in labels][-2:] == ["Ours", "CaDA with PO"]
    assert results.table("in_distribution").attrs["labels"] == dict(labels)


def test_a_value_of_another_type_names_its_table(folder: ResultsFolder) -> None:
    folder.train(RUN, parameters="many")
    with pytest.raises(DataError, match=r"table training_cost got a value of another type: .*; make its results again"):
        build_tables(Results(folder.root, "quick"), ["training_cost"])


def test_all_tables_that_have_results_are_built_when_none_is_named_and_have_the_same_bytes_again(
    quick: Results,
) -> None:
    paths = build_tables(quick)
    assert list(dict.fromkeys(path.stem for path in paths)) == [
        "in_distribution",
        "training_paradigms",
        "encoder_settings",
        "training_cost",
        "gap_by_time",
        "paper_comparison",
    ]
    first = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in build_tables(quick)] == first


def test_comparison_leaves_out_tables_of_another_scale(quick: Results, folder: ResultsFolder) -> None:
    folder.solve("polarnet-ple-polar-n50-s0", "CVRP", 50, [11.0])
    build_tables(Results(folder.root, "paper"), ["in_distribution"])
    with pytest.raises(MissingResultsError, match="table paper_comparison has no results"):
        build_tables(quick, ["paper_comparison"])
    paths = build_tables(Results(folder.root, "paper"), ["paper_comparison"])
    ours = {tuple(row.values())[:3]: row["ours"] for row in pq.read_table(paths[0]).to_pylist()}
    assert ours["in_distribution", "CVRP-n50", "polarnet-ple-polar objective"] == 11.0


def test_unknown_names_list_the_known(quick: Results) -> None:
    with pytest.raises(ConfigError, match="unknown table 'zeroshot'; there are in_distribution, zero_shot, set_x"):
        build_tables(quick, ["zeroshot"])


def test_missing_results_name_the_command_that_makes_them(quick: Results, folder: ResultsFolder) -> None:
    with pytest.raises(MissingResultsError, match=r"cores all results/tables/zero_shot\.parquet --config scale=quick"):
        build_tables(quick, ["zero_shot"])
    with pytest.raises(MissingResultsError, match="holds no results"):
        build_tables(Results(folder.root / "nowhere", "quick"))


def test_failed_table_leaves_nothing_behind(quick: Results, folder: ResultsFolder) -> None:
    path = folder.root / "evaluations" / "test" / RUN / "CVRP-n10.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(Exception, match="no complete Parquet file"):
        build_tables(quick, ["in_distribution"])
    assert not (folder.root / "tables").exists()


def test_building_tables_imports_no_torch() -> None:
    code = "import sys, polarvrp.cli.tables, polarvrp.tables.build; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
