"""``polarvrp train``: files from a configuration alone, stops that can be resumed, bad input in one line."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from helpers.model_samples import policy_of
from polarvrp.cli.main import main
from polarvrp.cli.train import _threads
from polarvrp.config.loading import load_study
from polarvrp.machine import processor_name
from polarvrp.model.saving import save_policy
from polarvrp.problem.archives import write_arrays
from polarvrp.problem.numpy_generator import generate_arrays
from polarvrp.problem.variants import VARIANTS
from polarvrp.study.runs import parse_run
from polarvrp.study.specs import fingerprint, train_spec

CONFIG = Path(__file__).parents[2] / "config"
RUN = "polarnet-shared-po-n8-s0"
SMALL = """
scale: quick
sizes:
  - {num_customers: 8, batch_size: 4, reference_seconds: 0.1}
transfer_size: 8
training: {epochs: 2, instances_per_epoch: 8, refinement_start_epoch: 1}
"""
SPEC = json.dumps(
    {
        "model": {"backbone": "polarnet", "encoder": "shared", "width": 32, "heads": 4, "layers": 1},
        "training": {
            "paradigm": "po",
            "num_customers": 8,
            "epochs": 1,
            "instances_per_epoch": 4,
            "batch_size": 4,
            "validation_instances": 2,
        },
    }
)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the study's configuration, to run commands in."""
    (tmp_path / "config").symlink_to(CONFIG)
    (tmp_path / "mine.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    return tmp_path


def test_a_configuration_is_enough_and_a_stop_resumes(study: Path) -> None:
    command = ["train", RUN, "--configfile", "mine.yaml", "--workers", "1"]
    assert main([*command, "--max-seconds", "0"]) == 75
    model = study / "results" / "models" / RUN
    assert not model.exists()
    assert main(command) == 0
    assert {path.name for path in model.iterdir()} == {
        "weights.safetensors",
        "config.yaml",
        "history.parquet",
        "metadata.json",
    }
    metadata = json.loads((model / "metadata.json").read_text())
    assert (metadata["run"], metadata["epochs"], metadata["parameters"]) == (RUN, 2, 1_841_576)
    assert len(list((study / "results" / "datasets" / "validation").iterdir())) == 16
    sets = [str(study / "results" / "datasets" / "validation" / f"{name}-n8.npz") for name in ("CVRP", "OVRPBLTW")]
    outputs = ["first.parquet", "second.parquet"]
    assert main(["evaluate", *sets, "--model", RUN, "--output", *outputs]) == 0
    assert [main(["check", *pair]) for pair in zip(sets, outputs, strict=True)] == [0, 0]


@pytest.mark.parametrize(("workers", "search"), [("1", "this process"), ("2", "2 processes")])
def test_a_training_says_where_it_computes(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], workers: str, search: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    spec = SPEC.replace('"epochs": 1', '"epochs": 1, "precision": "float32"')
    words = ["--variant", "CVRP", "--num-customers", "8", "--instances", "2", "--seed", "4321", "--output", "set.npz"]
    assert main(["generate", *words]) == 0
    command = ["train", RUN, "--spec", spec, "--validation", "set.npz", "--workers", workers, "--max-seconds", "0"]
    where = f"{RUN}: trains on {processor_name()}, engine parallel, products in float32, local search in {search}\n"
    slow = f"{RUN}: scale paper is made for a GPU and trains on a CPU here; scale laptop is made for CPUs\n"
    for scale, told in (("quick", where), ("paper", where + slow)):
        monkeypatch.setenv("POLARVRP_SCALE", scale)
        capsys.readouterr()
        assert main(command) == 75
        assert f"{told}{RUN}: stopped in epoch 1" in capsys.readouterr().err


def test_a_model_of_other_settings_stays(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run's name says nothing of its epochs: without its configuration file it would be that of another scale."""
    command = ["train", RUN, "--configfile", "mine.yaml", "--workers", "1", "--max-seconds", "0"]
    weights = study / "results" / "models" / RUN / "weights.safetensors"
    policy = policy_of("polarnet", "shared")
    own = fingerprint(train_spec(load_study(Path("mine.yaml")), parse_run(RUN)))
    save_policy(weights, policy, {"run": RUN, "fingerprint": "0123"})
    before = weights.read_bytes()
    assert main(command) == 2
    assert f"results/models/{RUN} holds a model of other settings (fingerprint 0123 instead of {own})" in (
        capsys.readouterr().err
    )
    assert not (study / "results" / "datasets").exists() and weights.read_bytes() == before
    assert main([*command, "--results", "elsewhere"]) == 75
    assert main([*command, "--scale", "laptop"]) == 75
    assert (study / "results" / "laptop" / "datasets" / "validation" / "CVRP-n8.npz").exists()
    save_policy(weights, policy, {"run": RUN, "fingerprint": own})
    assert main(command) == 75


def test_weights_may_be_written_to_the_present_folder(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1,1")
    words = ["--variant", "CVRP", "--num-customers", "8", "--instances", "2", "--seed", "4321"]
    assert main(["generate", *words, "--output", "set.npz"]) == 0
    command = ["train", RUN, "--spec", SPEC, "--validation", "set.npz", "--state", "state", "--output"]
    assert main([*command, "weights.safetensors"]) == 0
    assert (study / "weights.safetensors").is_file()


def test_named_weights_of_other_settings_stay(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--variant", "CVRP", "--num-customers", "8", "--instances", "2", "--seed", "4321"]
    assert main(["generate", *words, "--output", "set.npz"]) == 0
    given = ["--spec", SPEC, "--validation", "set.npz"]
    command = ["train", RUN, *given, "--max-seconds", "0", "--output", "mine/w.safetensors"]
    weights, policy = study / "mine" / "w.safetensors", policy_of("polarnet", "shared")
    own = fingerprint(json.loads(SPEC))
    save_policy(weights, policy, {"run": RUN, "fingerprint": "0123"})
    before = weights.read_bytes()
    assert main(command) == 2
    assert capsys.readouterr().err.endswith(
        f"mine/w.safetensors holds something else (fingerprint 0123 instead of {own}); move it away or choose another "
        "--output\n"
    )
    assert weights.read_bytes() == before and not (study / "results").exists()
    save_policy(weights, policy, {"run": RUN, "fingerprint": own})
    assert main(command) == 75


def test_threads_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is bound to three cores of a large machine starts no process for each of the others."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {4, 5, 6})
    assert _threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert _threads() == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        # a backbone that does not exist
        (["polarnetwork-ple-polar-n8-s0"], "polarnetwork"),
        # an encoder that the backbone does not have
        (["cada-ple-rl-n8-s0"], "cada"),
        # no run's name at all
        (["my-model"], "names no run"),
        # a file that is not there
        ([RUN, "--configfile", "none.yaml"], "none.yaml"),
        # a typo in a key
        ([RUN, "--configfile", "typo.yaml"], "learning_rat"),
        # a number that YAML reads as text
        ([RUN, "--configfile", "text.yaml"], "learning_rate"),
        ([RUN, "--spec", "{", "--validation", "mine.yaml"], "--spec is no JSON"),
        ([RUN, "--spec", "{}", "--configfile", "mine.yaml"], "either --configfile or --spec"),
        ([RUN, "--spec", "{}", "--scale", "paper"], "either --scale or --spec"),
        ([RUN, "--spec", SPEC], "--validation"),
        ([RUN, "--spec", "{}"], "a training's specification needs 'model'"),
        ([RUN, "--configfile", "mine.yaml", "--workers", "0"], "--workers must be at least 1"),
        # a specification of another network than the run's name says
        (
            ["cada-shared-po-n8-s0", "--validation", "mine.yaml", "--spec", SPEC],
            "has backbone cada, its specification polarnet",
        ),
        # likewise of another value that the name states
        (
            [RUN.replace("-s0", "-alpha0.5-s0"), "--validation", "mine.yaml", "--spec", SPEC],
            "has temperature 0.5, its specification",
        ),
        ([RUN, "--configfile", "mine.yaml", "--validation", "none.npz"], "none.npz"),
        # a validation set that is no archive
        ([RUN, "--configfile", "mine.yaml", "--validation", "mine.yaml"], "mine.yaml"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_results(
    study: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (study / "typo.yaml").write_text(SMALL.replace("epochs: 2", "epochs: 2, learning_rat: 0.1"))
    (study / "text.yaml").write_text(SMALL.replace("epochs: 2", "epochs: 2, learning_rate: 3e-4"))
    assert main(["train", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (study / "results" / "models").exists()


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        ("4321", ""),
        ("1", "CVRP-n8.npz holds another set (seed 1 instead of 4321)"),
    ],
)
def test_an_existing_validation_set_must_be_the_study_s(
    study: Path, seed: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = study / "results" / "datasets" / "validation" / "CVRP-n8.npz"
    words = ["--variant", "CVRP", "--num-customers", "8", "--instances", "2", "--seed", seed]
    assert main(["generate", *words, "--output", str(path)]) == 0
    before = path.read_bytes()
    code = main(["train", RUN, "--configfile", "mine.yaml", "--workers", "1", "--max-seconds", "0"])
    assert code == (2 if message else 75)
    assert message in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_validation_set_without_origin_is_compared_by_content(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", RUN, "--configfile", "mine.yaml", "--workers", "1", "--max-seconds", "0"]
    path = study / "results" / "datasets" / "validation" / "CVRP-n8.npz"
    arrays = generate_arrays(VARIANTS["CVRP"], 8, 2, 4321)
    write_arrays(path, arrays)  # without a word on how it was made
    assert main(command) == 75
    arrays["locs"][1, 3, 0] += np.float32(0.25)
    write_arrays(path, arrays)
    assert main(command) == 2
    assert "CVRP-n8.npz holds other instances than seed 4321 draws" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["nan", "-1", "inf", "-inf"])
def test_a_time_that_is_no_time_is_refused(study: Path, seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", RUN, "--configfile", "mine.yaml", f"--max-seconds={seconds}"]) == 2
    assert "--max-seconds must be a finite number of at least 0, got" in capsys.readouterr().err
    assert not (study / "results").exists()


def test_a_run_trains_on_all_variants_by_its_name(study: Path) -> None:
    name = "polarnet-shared-po-n8-all-s0"
    short = SMALL.replace("instances_per_epoch: 8", "instances_per_epoch: 24").replace("epochs: 2", "epochs: 1")
    (study / "mine.yaml").write_text(short)
    assert main(["train", name, "--configfile", "mine.yaml", "--workers", "1"]) == 0
    config = yaml.safe_load((study / "results" / "models" / name / "config.yaml").read_text())
    assert set(config["training"]["stages"][0]["variants"]) == set(VARIANTS)
    words = ["--variant", "MDVRPMBTW", "--num-customers", "8", "--instances", "2", "--seed", "1"]
    assert main(["generate", *words, "--output", "set.npz"]) == 0
    assert main(["evaluate", "set.npz", "--model", name, "--output", "out.parquet"]) == 0
    assert main(["check", "set.npz", "out.parquet"]) == 0


def test_a_specification_must_train_on_what_the_name_says(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = json.loads(SPEC)
    spec["training"]["stages"] = [{"variants": list(VARIANTS)}]
    assert main(["train", RUN, "--spec", json.dumps(spec), "--validation", "mine.yaml"]) == 2
    assert f"run {RUN} has variants of the paper, its specification all" in capsys.readouterr().err
    spec["training"]["stages"] = [{"variants": ["MDVRP"]}]
    assert main(["train", RUN, "--spec", json.dumps(spec), "--validation", "mine.yaml"]) == 2
    assert "also trains on MDVRP but not on all" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_specification_holds_numbers(study: Path, capsys: pytest.CaptureFixture[str], number: str) -> None:
    spec = SPEC.replace('"epochs": 1', f'"epochs": 1, "learning_rate": {number}')
    assert spec != SPEC
    assert main(["train", RUN, "--spec", spec, "--validation", "mine.yaml"]) == 2
    assert (error := capsys.readouterr().err).startswith("polarvrp train: ") and error.count("\n") == 1
