"""After an upgrade that bumps a code version, models that are there stay usable by all that names them."""

from pathlib import Path

import pytest

from helpers.library_texts import PLAIN
from helpers.results_folder import ResultsFolder
from polarvrp.cli.main import main
from polarvrp.config.model import ModelConfig
from polarvrp.errors import CheckpointMismatchError
from polarvrp.evaluation.models import load_trained
from polarvrp.files import provenance as file_provenance
from polarvrp.files import read_parquet
from polarvrp.model.registry import build_policy
from polarvrp.model.saving import save_policy
from polarvrp.study import specs
from polarvrp.study.layout import Layout
from polarvrp.study.runs import parse_run

RUN = "polarnet-ple-polar-n6-s0"


def test_an_old_model_is_evaluated_solves_files_and_is_listed_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    from helpers.studies import study

    quick = study(tmp_path, scale="quick")
    old = specs.train_spec(quick, parse_run(RUN))
    tiny = ModelConfig(width=32, heads=2, layers=1, feedforward_width=32, num_customers=6)
    provenance = {"run": RUN, "spec": old, "fingerprint": specs.fingerprint(old)}
    save_policy(Layout().weights(RUN), build_policy(tiny, 0), provenance)

    monkeypatch.setattr(specs, "TRAIN_CODE_VERSION", specs.TRAIN_CODE_VERSION + 1)
    monkeypatch.setattr(specs, "EVALUATION_CODE_VERSION", specs.EVALUATION_CODE_VERSION + 1)
    wanted = specs.fingerprint(specs.train_spec(quick, parse_run(RUN)))
    assert wanted != provenance["fingerprint"]

    instances, solutions = Layout().dataset("test", "CVRP", 6), Layout().evaluation(RUN, "CVRP", 6)
    draw = ["--variant", "CVRP", "--num-customers", "6", "--instances", "2", "--seed", "1234"]
    assert main(["generate", *draw, "--output", str(instances)]) == 0
    assert main(["evaluate", str(instances), "--model", RUN, "--output", str(solutions)]) == 0
    (tmp_path / "tiny.vrp").write_text(PLAIN)
    solve = ["solve", "tiny.vrp", "--model", RUN, "--seconds", "0.05", "--output", "solved"]
    assert main(solve) == 0
    said = file_provenance(read_parquet(tmp_path / "solved" / "solutions.parquet"))
    assert said["models"][RUN]["model"]["fingerprint"] == provenance["fingerprint"]
    ResultsFolder(Layout().root).solve("pyvrp", "CVRP", 6, [3.0, 3.0])
    assert main(["tables", "in_distribution", "--runs", RUN]) == 0
    assert RUN.replace("-n6", "") in Layout().table("in_distribution", "csv").read_text()
    assert "polarnet-ple-polar-n6-s0" in (main(["models"]), capsys.readouterr().out)[1]

    with pytest.raises(CheckpointMismatchError, match=f"holds fingerprint {provenance['fingerprint']}, not {wanted}"):
        load_trained(RUN, fingerprint=wanted)  # what the workflow asks for, which therefore trains anew
