"""``polarvrp models``: shipped and local models with what their files and evaluations say."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.model_samples import policy_of
from helpers.results_folder import ResultsFolder
from polarvrp.cli.main import main
from polarvrp.model.saving import save_policy
from polarvrp.problem.variants import TRAINING_VARIANTS, VARIANTS
from polarvrp.references.published import published_costs
from polarvrp.release.listing import MeanGap, listed_models
from polarvrp.study import shipped

RUN = "polarnet-shared-po-n9-s0"


@pytest.fixture(autouse=True)
def nothing_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists hold what the tests put there, whatever models come with the package."""
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path / "ships nothing")


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    """Results with a model of nine customers, evaluated on two training variants, an unseen one and Set-X."""
    folder = ResultsFolder(tmp_path / "results")
    spec = {"model": {}, "training": {"paradigm": "po", "num_customers": 9}}
    policy = policy_of("polarnet", "shared", num_customers=9)
    save_policy(folder.root / "models" / RUN / "weights.safetensors", policy, {"run": RUN, "spec": spec})
    folder.evaluate(RUN, [1.0, 4.0], ("CVRP", "VRPTW"))
    folder.evaluate(RUN, 7.0, ("MDVRP",))
    folder.solve(RUN, "OVRP", 9, [5.0])  # without a reference
    folder.solve_set_x(RUN, {"X-n101-k25": (27591, 30000, 30010), "X-n106-k14": (26362, 27000, 27010)})
    return folder


def rounded(gap: MeanGap | None) -> tuple[float, int]:
    assert gap is not None
    return round(gap.percent, 9), gap.count


def test_a_local_model(folder: ResultsFolder) -> None:
    (model,) = listed_models([folder.root])
    policy = policy_of("polarnet", "shared")
    parameters = sum(parameter.numel() for parameter in policy.parameters())
    assert (model.run, model.num_customers, model.parameters, model.variants) == (RUN, 9, parameters, "16")
    assert model.name == str(folder.root / "models" / RUN)
    assert rounded(model.training_gap) == (2.5, 2)
    assert rounded(model.zero_shot_gap) == (7.0, 1)
    mean = 50 * (30000 / 27591 - 1) + 50 * (27000 / 26362 - 1)
    assert rounded(model.set_x_gap) == (round(mean, 9), 2)


def test_a_shipped_model_is_measured_by_published_costs(
    folder: ResultsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its folder's own evaluations; its name and its run stand beside each other."""
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path / "pretrained")
    run, place = "polarnet-shared-polar-n50-all-s0", tmp_path / "pretrained" / "pretrained-n50"
    training = {"paradigm": "polar", "num_customers": 50, "stages": [{"variants": list(VARIANTS)}]}
    spec = {"model": {}, "training": training}
    save_policy(place / "weights.safetensors", policy_of("polarnet", "shared"), {"run": run, "spec": spec})
    costs = published_costs("CVRP", 50)[:3] * 1.05
    folder.solve(run, "CVRP", 50, costs.tolist())
    (place / "evaluations").mkdir()
    shutil.move(folder.root / "evaluations" / "test" / run / "CVRP-n50.parquet", place / "evaluations")
    first, second = listed_models([folder.root])
    assert (first.name, first.run, first.variants) == ("pretrained-n50", run, "all 48")
    assert rounded(first.training_gap) == (5.0, 1)
    assert (first.zero_shot_gap, first.set_x_gap, second.run) == (None, None, RUN)
    assert main(["models", "--results", str(folder.root)]) == 0
    head, shipped_line, local_line, *_ = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["model", "run", "n", "parameters"]
    assert shipped_line.split()[:3] == ["pretrained-n50", run, "50"]
    assert shipped_line.split()[4:] == ["all", "48", "5.000", "(1)", "–", "–"]
    assert "2.500 (2)" in local_line and "7.000 (1)" in local_line


def test_unusable_models_are_reported_and_left_out(folder: ResultsFolder, capsys: pytest.CaptureFixture[str]) -> None:
    weights = folder.root / "models" / RUN / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])
    assert main(["models", "--results", str(folder.root)]) == 0
    printed = capsys.readouterr()
    assert "is truncated or no safetensors file (ends within its tensors)" in printed.err
    assert printed.out.startswith(f"no models: this version ships none, and there are none in {folder.root}")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--results", str(tmp_path), str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == f"polarvrp models: {tmp_path / 'none'} is no folder; name folders of results\n"


def test_names_of_variants_where_neither_16_nor_48(folder: ResultsFolder) -> None:
    spec = {"model": {}, "training": {"paradigm": "po", "num_customers": 9, "stages": [{"variants": ["OVRP", "CVRP"]}]}}
    weights = folder.root / "models" / RUN / "weights.safetensors"
    save_policy(weights, policy_of("polarnet", "shared"), {"run": RUN, "spec": spec})
    assert listed_models([folder.root])[0].variants == "CVRP, OVRP"
    assert len(TRAINING_VARIANTS) == 16


def test_listing_loads_no_torch(folder: ResultsFolder) -> None:
    call = f"main(['models', '--results', {json.dumps(str(folder.root))}])"
    code = f"import sys; from polarvrp.cli.main import main; {call}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
