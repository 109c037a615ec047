"""Whatever a configuration holds reaches a command as one argument, or is refused; no shell runs any of it."""

import ast
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from helpers.library_texts import PLAIN
from helpers.snakemake import Workflow, environment
from polarvrp.cli.main import main
from polarvrp.config.study import ExternalMethod
from polarvrp.errors import ConfigError
from polarvrp.library.inputs import job_files
from polarvrp.study.external import external_files

ROOT = Path(__file__).parents[2]
HOSTILE = "a $(touch shell) `touch shell`; touch shell # ' \" \\ & | * ~"
SMALL = "variants: [CVRP]\nsizes: [{num_customers: 6, batch_size: 4, reference_seconds: 5}]\ntransfer_size: 6\n"
STUB = """#!/usr/bin/env bash
# Stands for `python -m polarvrp COMMAND`: notes its words, and makes the outputs.
printf '%s\\0' "$@" END >> "$STUB_WORDS"
case $3 in
  train) touch results/models/"$4"/{weights.safetensors,config.yaml,history.parquet,metadata.json} ;;
  tables) touch results/tables/"$4".{parquet,csv,md,tex} ;;
  solve) mkdir -p "${@: -1}"; touch "${@: -1}"/solutions.parquet ;;
  *) while [ $# -gt 0 ] && [ "$1" != --output ]; do shift; done; touch "${@:2}" ;;
esac
"""

pytestmark = pytest.mark.workflow


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workflow:
    """The workflow in a folder of a hostile name, with commands that only note their words."""
    stub = tmp_path / "stub" / "python"
    stub.parent.mkdir()
    stub.write_text(STUB)
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(stub.parent), os.environ["PATH"]]))
    monkeypatch.setenv("STUB_WORDS", str(tmp_path / "words"))
    monkeypatch.setattr("helpers.snakemake.environment", lambda: {**environment(), "PATH": os.environ["PATH"]})
    (folder := tmp_path / "a folder").mkdir()
    return Workflow(folder)


def commands(workflow: Workflow) -> list[list[str]]:
    """Words of each command that was run."""
    words = (workflow.folder.parent / "words").read_text().split("\0END\0")
    return [command.split("\0")[2:] for command in words if command]


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def require_nothing_ran(folder: Path) -> None:
    assert not [path for path in folder.rglob("*") if path.name == "shell"]
    assert not (ROOT / "shell").exists()


def test_labels_and_paths_of_a_study_are_one_argument_each(noted: Workflow, tmp_path: Path) -> None:
    place = noted.folder / HOSTILE
    place.mkdir()
    save_file({"weight": np.zeros(1, np.float32)}, place / "weights.safetensors")
    (place / "theirs.parquet").touch()
    (place / "mine.npz").touch()
    label = f"{HOSTILE}\nof two lines"
    own = yaml.safe_load(SMALL) | {
        "backbones": [{"name": "cada", "encoder": "shared", "paradigm": "po", "label": label}],
        "external_methods": [{"name": "theirs", "label": f"{label}!", "files": ["a*/theirs.parquet"]}],
        "training": {
            "initial_weights": f"{HOSTILE}/weights.safetensors",
            "instances": ["a*/mine.npz"],
            "stages": [{"name": HOSTILE}],
        },
    }
    (noted.folder / "mine.yaml").write_text(yaml.safe_dump(own))
    run = noted("results/tables/in_distribution.parquet", "--configfile", "mine.yaml", "--cores", "2")
    assert run.code == 0, run.output
    made = {command[0]: command for command in commands(noted)}
    assert set(made) == {"generate", "reference", "train", "evaluate", "tables"}
    training = json.loads(option(made["train"], "--spec"))["training"]
    assert training["initial_weights"]["model"] == f"{HOSTILE}/weights.safetensors"
    assert list(training["instances"]["files"]) == [f"{HOSTILE}/mine.npz"]
    assert training["stages"][0]["name"] == HOSTILE
    assert json.loads(option(made["tables"], "--labels")) == {"cada-shared-po": label}
    assert option(made["tables"], "--variants") == "CVRP"
    (method,) = json.loads(option(made["tables"], "--external"))
    assert (method["label"], method["files"]) == (f"{label}!", ["a*/theirs.parquet"])
    require_nothing_ran(tmp_path)


def test_own_files_and_their_model_are_one_argument_each(noted: Workflow, tmp_path: Path) -> None:
    """A file's name is that of its job, which plugins for clusters give to a shell."""
    folder, name = noted.folder / HOSTILE, "a; touch shell & b | # * ~ 1"
    folder.mkdir()
    (folder / f"{name}.vrp").write_text(PLAIN)
    (noted.folder / "mine.yaml").write_text(yaml.safe_dump({"solve": {"folder": folder.name, "model": HOSTILE}}))
    run = noted("solve", "--configfile", "mine.yaml", "--cores", "1")
    assert run.code == 0, run.output
    (command,) = commands(noted)
    assert command[:2] == ["solve", f"{folder.name}/{name}.vrp"]
    assert (option(command, "--model"), option(command, "--output")) == (HOSTILE, f"results/solve/{name}")
    require_nothing_ran(tmp_path)

    shutil.copy(folder / f"{name}.vrp", folder / "$(touch shell).vrp")
    run = noted("solve", "--configfile", "mine.yaml", "--cores", "1")
    assert run.code == 2 and len(commands(noted)) == 1
    (line,) = [line for line in run.output.splitlines() if line.startswith("configuration: ")]
    assert "solve.folder: " in line and "$(touch shell).vrp' has a quote, a backslash," in line
    require_nothing_ran(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("-x", "solve.folder '-x' begins as an option does; write its whole path"),
        ("nowhere", "solve.folder: nowhere does not exist; name the folder of your files"),
        ("{run}", "solve.folder: '{run}/a.vrp' has a brace or a line break in it, which Snakemake reads as its own"),
        ("two\nlines", "solve.folder: 'two\\nlines/a.vrp' has a brace or a line break"),
        ("quoted", "solve.folder: 'quoted/$(touch shell).vrp' has a quote, a backslash, $ or ` in its name; rename it"),
    ],
)
def test_folders_that_jobs_cannot_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, file in (("{run}", "a"), ("two\nlines", "a"), ("quoted", "$(touch shell)")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{file}.vrp").touch()
    with pytest.raises(ConfigError, match=re.escape(message)):
        job_files(name)


def test_solutions_of_others_that_no_job_can_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("{run}.parquet").touch()
    with pytest.raises(ConfigError, match=r"external_methods, hgs: '{run}.parquet' has a brace or a line break in it"):
        external_files([ExternalMethod(name="hgs", label="HGS", files=("*.parquet",))])


def test_a_model_to_go_on_from_that_is_none_is_named_with_its_key(workflow: Workflow, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("training: {initial_weights: $(touch shell)}\n")
    run = workflow.dry("train", "--configfile", "mine.yaml")
    assert run.code == 2
    assert run.output.splitlines()[-1].startswith("configuration: training.initial_weights: no model '$(touch shell)'")
    require_nothing_ran(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ["train", HOSTILE, "--configfile", "none.yaml"],
        ["evaluate", f"{HOSTILE}.npz", "--model", HOSTILE, "--output", f"{HOSTILE}.parquet"],
        ["solve", f"{HOSTILE}.vrp", "--model", HOSTILE, "--output", HOSTILE],
        ["tables", HOSTILE, "--results", HOSTILE],
        [
            "generate",
            "--variant",
            HOSTILE,
            "--num-customers",
            "5",
            "--instances",
            "1",
            "--seed",
            "1",
            "--output",
            "a.npz",
        ],
    ],
)
def test_commands_refuse_names_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert re.fullmatch(rf"polarvrp {words[0]}: .*\n", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_no_command_of_ours_is_given_to_a_shell() -> None:
    """Nor is a command of another program found by a text that a shell would take apart."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword):
                assert node.arg != "shell", path
            if isinstance(node, ast.Attribute):
                assert ast.unparse(node) not in ("os.system", "os.popen", "subprocess.getoutput"), path
