"""Models that ship: packed only if complete and right, found by name, and tabled beside the paper's numbers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polarvrp.cli.main import main
from polarvrp.problem.variants import TRAINING_VARIANTS
from polarvrp.references.published import published_costs
from polarvrp.release import packing
from polarvrp.solutions.solutions import read_solutions, solution_rows, write_solutions
from polarvrp.study import shipped

RUN = "polarnet-shared-po-n50-s0"
SPEC: dict[str, dict[str, Any]] = {
    "model": {"backbone": "polarnet", "encoder": "shared", "width": 32, "heads": 4, "layers": 1},
    "training": {
        "paradigm": "po",
        "num_customers": 50,
        "epochs": 1,
        "instances_per_epoch": 2,
        "batch_size": 2,
        "validation_instances": 1,
    },
}
EVALUATED = (*TRAINING_VARIANTS, "MDVRPMB")
CVRP = f"evaluations/test/{RUN}/CVRP-n50.parquet"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a tiny run of 50 customers: trained, evaluated on 17 variants and one instance of Set-X."""
    results = tmp_path_factory.mktemp("finished") / "results"
    weights = finish(results, RUN, SPEC, EVALUATED)
    set_x = str(results / "set_x" / f"{RUN}.parquet")
    effort = ["--model", weights, "--augmentations", "1"]
    assert main(["evaluate-set-x", *effort, "--instances", "1", "--starts", "2", "--output", set_x]) == 0
    return results


def finish(results: Path, run: str, spec: dict[str, Any], variants: tuple[str, ...]) -> str:
    """Train a tiny run and evaluate it on two instances of each variant; path of its weights."""
    size = str(spec["training"]["num_customers"])
    sets = [str(results / "datasets" / "test" / f"{variant}-n{size}.npz") for variant in variants]
    for variant, path in zip(variants, sets, strict=True):
        words = ["--variant", variant, "--num-customers", size, "--instances", "2", "--seed", "1234"]
        assert main(["generate", *words, "--output", path]) == 0
    weights = str(results / "models" / run / "weights.safetensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "disabled")
        command = ["train", run, "--spec", json.dumps(spec), "--validation", sets[0], "--workers", "1"]
        assert main([*command, "--state", str(results / "checkpoints" / run), "--output", weights]) == 0
    folders = [results / "evaluations" / split / run for split in ("test", "test-local-search")]
    outputs = [str(folder / f"{variant}-n{size}.parquet") for folder in folders for variant in variants]
    effort = ["--augmentations", "1", "--local-search"]
    assert main(["evaluate", *sets, "--model", weights, *effort, "--output", *outputs]) == 0
    return weights


@pytest.fixture(scope="module")
def packed(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("pretrained")
    assert main(["pack-model", RUN, "--results", str(finished), "--output", str(output)]) == 0
    return output


def test_a_packed_model_holds_everything(finished: Path, packed: Path) -> None:
    folder = packed / "pretrained-n50"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    evaluations = [f"evaluations/{variant}-n50.parquet" for variant in EVALUATED]
    models = ["weights.safetensors", "config.yaml", "history.parquet", "metadata.json"]
    searched = [f"local_search/{variant}-n50.parquet" for variant in EVALUATED]
    assert files == sorted([*models, *evaluations, *searched, "evaluations/set_x.parquet"])
    assert (folder / "evaluations/CVRP-n50.parquet").read_bytes() == (finished / CVRP).read_bytes()


def test_check_accepts_every_shipped_tour(finished: Path, packed: Path) -> None:
    """The sets are those that anybody can generate."""
    folder = packed / "pretrained-n50"
    for part, variants in (("evaluations", EVALUATED), ("local_search", EVALUATED)):
        for variant in variants:
            instances = finished / "datasets" / "test" / f"{variant}-n50.npz"
            assert main(["check", str(instances), str(folder / part / f"{variant}-n50.parquet")]) == 0
    assert main(["check", "set-x", str(folder / "evaluations" / "set_x.parquet")]) == 0


def test_local_search_starts_from_the_networks_tours(packed: Path) -> None:
    """Never longer, nearly always shorter: the network of this test is untrained."""
    folder = packed / "pretrained-n50"
    costs = [
        [read_solutions(folder / part / f"{name}-n50.parquet")["cost"].to_numpy() for name in EVALUATED]
        for part in ("evaluations", "local_search")
    ]
    before, after = np.array(costs)
    assert (after <= before).all()
    assert (after < before).mean() > 0.9


def test_check_finds_a_wrong_cost_on_set_x(packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pq.read_table(packed / "pretrained-n50" / "evaluations" / "set_x.parquet")
    wrong = table.set_column(
        table.column_names.index("cost"), table.schema.field("cost"), pa.array([table["cost"][0].as_py() - 1])
    )
    pq.write_table(wrong, tmp_path / "wrong.parquet")
    for metadata in (wrong.schema.metadata, None):  # as whoever changes a file may leave it
        pq.write_table(wrong.replace_schema_metadata(metadata), tmp_path / "wrong.parquet")
        assert main(["check", "set-x", str(tmp_path / "wrong.parquet")]) == 1
    assert "X-n101-k25: its stored cost is" in capsys.readouterr().out
    place = table.schema.get_field_index("actions")
    tours = pa.array([[None, *table["actions"][0].as_py()]], table.schema.types[place])
    pq.write_table(table.set_column(place, table.schema.field(place), tours), tmp_path / "wrong.parquet")
    assert main(["check", "set-x", str(tmp_path / "wrong.parquet")]) == 2
    assert "X-n101-k25 has a tour with a missing node; make it again" in capsys.readouterr().err


def test_a_shipped_model_is_found_by_its_name(
    finished: Path, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped, "SHIPPED", packed)
    output = tmp_path / "out.parquet"
    instances = str(finished / "datasets" / "test" / "CVRP-n50.npz")
    command = ["evaluate", instances, "--augmentations", "1", "--model", "pretrained-n50", "--output", str(output)]
    assert main(command) == 0
    ours, theirs = (solution_rows(read_solutions(path)) for path in (output, finished / CVRP))
    assert [row.actions for row in ours] == [row.actions for row in theirs]
    assert read_solutions(output)["run"].to_pylist() == [RUN, RUN]


@pytest.mark.parametrize("command", ["evaluate", "evaluate-set-x", "shipped-results"])
def test_without_a_shipped_model_one_line_says_so(
    finished: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path / "none")
    words = {
        "evaluate": [str(finished / "datasets" / "test" / "CVRP-n50.npz"), "--output", str(tmp_path / "out.parquet")],
        "evaluate-set-x": ["--output", str(tmp_path / "out.parquet")],
        "shipped-results": ["pretrained-n100"],
    }[command]
    model = [] if command == "shipped-results" else ["--model", "pretrained-n100"]
    assert main([command, *words, *model]) == 2
    error = capsys.readouterr().err
    assert "this version ships no model 'pretrained-n100', it ships none; train one, e.g. `polarvrp train " in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_table_stands_beside_the_paper_s(
    packed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shipped, "SHIPPED", packed)
    assert main(["shipped-results", "pretrained-n50"]) == 0
    text = capsys.readouterr().out
    costs = read_solutions(packed / "pretrained-n50" / "evaluations" / "OVRPTW-n50.parquet")["cost"].to_pylist()
    reference = published_costs("OVRPTW", 50)[:2]
    gap = 100 * sum((cost - best) / best for cost, best in zip(costs, reference, strict=True)) / 2
    row = next(line for line in text.splitlines() if line.startswith("| OVRPTW "))
    printed = paper_gap("OVRPTW")
    searched = read_solutions(packed / "pretrained-n50" / "local_search" / "OVRPTW-n50.parquet")["cost"].to_pylist()
    after = 100 * sum((cost - best) / best for cost, best in zip(searched, reference, strict=True)) / 2
    assert [cell.strip() for cell in row.split("|")][2:7] == [
        f"{sum(costs) / 2:.3f}",
        f"{gap:.3f}%",
        f"{printed:.3f}%",
        f"{gap - printed:+.3f}",
        f"{after:.3f}%",
    ]
    assert (  # the last cell is a time, which may hold any digits
        "16" not in row.rpartition("|")[0].rpartition("|")[0]
        and len([line for line in text.splitlines() if line.startswith("| ") and "VRP" in line]) == 17
    )
    assert "| Average " in text and "1.192%" in text
    assert "2 instances each, greedy multi-start ×1 on " in text and f"{RUN}: 2 instances in 1 epochs in " in text
    assert "| Average (1) " in text


def test_the_table_counts_the_instances_of_all_stages_and_names_earlier_weights(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pretrained-n50"
    shutil.copytree(packed / "pretrained-n50", folder)
    metadata = json.loads((folder / "metadata.json").read_text())
    metadata["epochs"] = 3
    metadata["spec"]["training"] |= {
        "stages": [{"epochs": 2, "instances_per_epoch": 5}, {}],
        "initial_weights": {"model": "pretrained-n20", "sha256": "0"},
    }
    (folder / "metadata.json").write_text(json.dumps(metadata))
    assert main(["shipped-results", str(folder)]) == 0
    text = capsys.readouterr().out
    assert f"{RUN}: 12 instances in 3 epochs, from weights of pretrained-n20, in " in text


def test_a_size_without_published_costs_ships_its_references(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, output, run = tmp_path / "results", tmp_path / "pretrained", RUN.replace("n50", "n10")
    finish(results, run, SPEC | {"training": SPEC["training"] | {"num_customers": 10}}, TRAINING_VARIANTS)
    command = ["pack-model", run, "--results", str(results), "--output", str(output)]
    assert main(command) == 2
    assert "references/test/pyvrp/CVRP-n10.parquet does not exist; solve " in capsys.readouterr().err
    assert not output.exists()
    for variant in TRAINING_VARIANTS:
        instances = str(results / "datasets" / "test" / f"{variant}-n10.npz")
        reference = str(results / "references" / "test" / "pyvrp" / f"{variant}-n10.parquet")
        assert main(["reference", instances, "--solver", "pyvrp", "--seconds", "0.02", "--output", reference]) == 0
    assert main(command) == 0
    folder = output / "pretrained-n10"
    capsys.readouterr()
    assert main(["shipped-results", str(folder)]) == 0
    text = capsys.readouterr().out
    ours = read_solutions(folder / "evaluations" / "CVRP-n10.parquet")["cost"].to_pylist()
    reference = read_solutions(folder / "references" / "test" / "pyvrp" / "CVRP-n10.parquet")["cost"].to_pylist()
    gap = 100 * sum((cost - best) / best for cost, best in zip(ours, reference, strict=True)) / 2
    assert f"| {gap:.3f}%" in next(line for line in text.splitlines() if line.startswith("| CVRP "))
    assert "against our PyVRP's, which ship beside the model" in text
    assert "Paper's gap" not in text  # it has no numbers of this size


def paper_gap(variant: str) -> float:
    from polarvrp.tables.paper import read_paper

    rows = read_paper("in_distribution").set_index(["variant", "num_customers", "method"])
    gap = rows.loc[(variant, 50, "Ours"), "gap_percent"]
    assert isinstance(gap, float)
    return gap


def change_cost(results: Path) -> None:
    table = read_solutions(results / CVRP)
    rows = solution_rows(table)
    provenance = json.loads(table.schema.metadata[b"polarvrp"])
    swapped = [rows[0].__class__(**{**as_dict(rows[0]), "actions": rows[0].actions[1:]}), rows[1]]
    write_solutions(results / CVRP, swapped, "run", provenance)


def as_dict(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def change_origin(results: Path) -> None:
    table = read_solutions(results / CVRP)
    provenance = json.loads(table.schema.metadata[b"polarvrp"])
    provenance["model"]["fingerprint"] = "0123"
    write_solutions(results / CVRP, solution_rows(table), "run", provenance)


def keep_first(results: Path) -> None:
    table = read_solutions(results / CVRP)
    write_solutions(results / CVRP, solution_rows(table)[:1], "run", json.loads(table.schema.metadata[b"polarvrp"]))


def unfinish(results: Path) -> None:
    path = results / "models" / RUN / "metadata.json"
    metadata = json.loads(path.read_text())
    path.write_text(json.dumps(metadata | {"epochs": 0}))


CHANGES: dict[str, Callable[[Path], None]] = {
    # a customer is left out
    "CVRP-n50.parquet: instance 0 (": change_cost,
    # an evaluation of an earlier training
    "CVRP-n50.parquet is of training 0123, the weights of": change_origin,
    # a part of the set
    "CVRP-n50.parquet solves 1 of the 2 instances": keep_first,
    # one of the 16 variants
    "VRPBLTW-n50.parquet does not exist; evaluate": lambda results: (
        results / f"evaluations/test/{RUN}/VRPBLTW-n50.parquet"
    ).unlink(),
    "has 0 epochs of 1; train": unfinish,
    "history.parquet does not exist; train": lambda results: (results / "models" / RUN / "history.parquet").unlink(),
}


@pytest.mark.parametrize("message", CHANGES)
def test_nothing_incomplete_or_wrong_is_packed(
    finished: Path, tmp_path: Path, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results, output = tmp_path / "results", tmp_path / "output"
    shutil.copytree(finished, results)
    CHANGES[message](results)
    assert main(["pack-model", RUN, "--results", str(results), "--output", str(output)]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not output.exists()


def test_the_results_of_a_scale_are_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, root in (([], "results"), (["--scale", "laptop"], "results/laptop")):
        assert main(["pack-model", RUN, *words, "--output", "out"]) == 2
        assert f" {root}/models/{RUN}/weights.safetensors does not exist" in capsys.readouterr().err


def test_large_weights_are_refused(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(packing, "LARGEST_WEIGHTS", 1000)
    assert main(["pack-model", RUN, "--results", str(finished), "--output", str(tmp_path / "out")]) == 2
    assert "a shipped model less than 30" in capsys.readouterr().err


def test_check_refuses_a_file_without_rows(packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pq.read_table(packed / "pretrained-n50" / "evaluations" / "set_x.parquet")
    pq.write_table(table.slice(0, 0).replace_schema_metadata(None), tmp_path / "empty.parquet")
    assert main(["check", "set-x", str(tmp_path / "empty.parquet")]) == 2
    assert "holds no costs on Set-X: it has no rows" in capsys.readouterr().err
