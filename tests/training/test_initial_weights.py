"""Trainings that go on from the weights of others."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from helpers.tiny_training import stop_after, tiny_spec, validation_sets
from polarvrp.config.loading import load_study
from polarvrp.config.model import ModelConfig
from polarvrp.errors import CheckpointMismatchError, DataError
from polarvrp.evaluation.models import load_trained
from polarvrp.model.registry import build_policy
from polarvrp.model.saving import save_policy
from polarvrp.study.layout import Layout
from polarvrp.study.runs import parse_run
from polarvrp.study.specs import fingerprint, parse_train_spec, train_spec
from polarvrp.study.weights import find_weights, weights_at, weights_digest
from polarvrp.training import trainer as trainer_module
from polarvrp.training.step import PendingStep
from polarvrp.training.trainer import TrainJob, train

ROOT = Path(__file__).parents[2]
RUN, EARLIER = "polarnet-ple-polar-n8-s0", "polarnet-ple-po-n6-s3"


@pytest.fixture(autouse=True)
def _untracked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")


@pytest.fixture(scope="module")
def validation(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return validation_sets(tmp_path_factory.mktemp("validation"), "CVRP")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Results that hold a trained model of another size and paradigm."""
    layout = Layout(tmp_path / "results")
    network, _ = parse_train_spec(tiny_spec())
    save_policy(layout.weights(EARLIER), build_policy(network, seed=9), {"run": EARLIER})
    return layout


def spec_from(weights: Path, model: str = EARLIER, **training: Any) -> dict[str, Any]:
    return tiny_spec(initial_weights={"model": model, "sha256": weights_digest(weights)}, **training)


def job(folder: Path, spec: dict[str, Any], validation: list[Path], layout: Layout) -> TrainJob:
    output = folder / "weights.safetensors"
    return TrainJob(RUN, spec, folder / "state", validation, output, tracking=folder, layout=layout)


def test_a_training_goes_on_from_the_weights_without_a_ramp(
    tmp_path: Path, layout: Layout, validation: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ramps = []
    whole_step = trainer_module.TrainingStep.launch

    def launch(step: Any, stage: int, epoch: int, number: int, batch_size: int, ramp: float) -> PendingStep:
        ramps.append(ramp)
        return whole_step(step, stage, epoch, number, batch_size, ramp)

    monkeypatch.setattr(trainer_module.TrainingStep, "launch", launch)
    still = spec_from(layout.weights(EARLIER), epochs=1, learning_rate=1e-9, weight_decay=0.0)
    assert train(job(tmp_path, still, validation, layout))
    initial, trained = load_file(layout.weights(EARLIER)), load_file(tmp_path / "weights.safetensors")
    assert max(float((trained[name] - initial[name]).abs().max()) for name in initial) < 1e-7
    assert ramps == [1.0] * 3
    resolved = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert resolved["training"]["initial_weights"]["sha256"] == weights_digest(layout.weights(EARLIER))


@pytest.mark.resume
def test_a_resumed_training_needs_the_initial_weights_no_more(
    tmp_path: Path, layout: Layout, validation: list[Path]
) -> None:
    spec = spec_from(layout.weights(EARLIER), epochs=2)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert train(job(whole, spec, validation, layout))

    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 4)
        assert not train(job(stopped, spec, validation, layout))
    layout.weights(EARLIER).unlink()
    assert train(job(stopped, spec, validation, layout))
    one, other = (load_file(folder / "weights.safetensors") for folder in (whole, stopped))
    assert all(torch.equal(one[name], other[name]) for name in one)
    one, other = (pq.read_table(folder / "history.parquet")["loss"].to_pylist() for folder in (whole, stopped))
    assert one == other


def test_weights_that_changed_or_do_not_fit_are_one_clear_error(
    tmp_path: Path, layout: Layout, validation: list[Path]
) -> None:
    path = layout.weights(EARLIER)
    spec = spec_from(path)
    deeper = ModelConfig(backbone="polarnet", encoder="ple", width=32, heads=4, layers=3, feedforward_width=32)
    save_policy(path, build_policy(deeper, seed=9), {})
    with pytest.raises(CheckpointMismatchError, match="holds other weights than those that the training was to go on"):
        train(job(tmp_path, spec, validation, layout))
    with pytest.raises(
        CheckpointMismatchError, match="polarnet-ple, wanted polarnet-ple; it has layers 3 instead of 2"
    ):
        train(job(tmp_path, spec_from(path), validation, layout))
    path.unlink()
    with pytest.raises(DataError, match=f"no model '{EARLIER}': neither a file nor a run under"):
        train(job(tmp_path, spec, validation, layout))


def test_the_digest_is_of_the_tensors_alone(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4, dtype=torch.int64)}
    digests = []
    for number, (changed, metadata) in enumerate(
        [
            (tensors, {"run": "x"}),
            (dict(reversed(tensors.items())), {"run": "y", "more": "text"}),
            (tensors | {"b": torch.zeros(4, dtype=torch.int64)}, {}),
            (tensors | {"a": tensors["a"].view(3, 2)}, {}),
            (tensors | {"b": torch.ones(4, dtype=torch.int64).view(torch.float64)}, {}),
            ({"a": tensors["a"], "c": tensors["b"]}, {}),
        ]
    ):
        path = tmp_path / f"{number}.safetensors"
        save_file(changed, path, metadata=metadata)
        digests.append(weights_digest(path))
    assert re.fullmatch("[0-9a-f]{64}", digests[0])
    assert digests[0] == digests[1]
    assert len(set(digests)) == 5


@pytest.mark.parametrize("content", [b"", b"half", (99).to_bytes(8, "little") + b"{", b"\xff" * 64])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"weights.safetensors is truncated or no safetensors file"):
        weights_digest(path)


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"a": torch.ones(100)}, path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DataError, match="ends within a"):
        weights_digest(path)


def test_the_digest_of_the_initial_weights_enters_the_specification(tmp_path: Path, layout: Layout) -> None:
    """So another model of that name is another training."""
    path, run = layout.weights(EARLIER), parse_run("polarnet-ple-polar-n10-s0")

    def specification(model: str | None, results: Layout | None = None) -> dict[str, Any]:
        own = tmp_path / "mine.yaml"
        own.write_text(yaml.safe_dump({"scale": "quick", "training": {"initial_weights": model}}))
        return train_spec(load_study(own, ROOT / "config"), run, results)

    assert "initial_weights" not in specification(None)["training"]
    spec = json.loads(json.dumps(specification(str(path.parent))))
    assert spec["training"]["initial_weights"] == {"model": str(path.parent), "sha256": weights_digest(path)}
    assert specification(EARLIER, layout)["training"]["initial_weights"]["sha256"] == weights_digest(path)
    before = fingerprint(spec)
    save_policy(path, build_policy(parse_train_spec(tiny_spec())[0], seed=10), {})
    assert fingerprint(specification(str(path.parent))) != before
    assert find_weights(EARLIER, layout) == find_weights(str(path), Layout()) == path
    assert weights_at(str(path)) == weights_at(str(path.parent)) == path
    assert weights_at(EARLIER) is weights_at("pretrained-n20") is None
    with pytest.raises(DataError, match="no model 'polarnet-ple-po-n6-s4'"):
        specification("polarnet-ple-po-n6-s4")


def test_a_run_of_another_scale_is_named_by_its_path(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(layout.root.parent)
    laptop = Layout.of_scale("laptop")
    with pytest.raises(DataError, match=f"under results/laptop/models, but results/models/{EARLIER} is one of another"):
        find_weights(EARLIER, laptop)
    laptop.model(EARLIER).parent.mkdir(parents=True)
    layout.model(EARLIER).rename(laptop.model(EARLIER))
    with pytest.raises(
        DataError, match="neither a file nor a run under results/models, but results/laptop/"
    ) as refusal:
        load_trained(EARLIER)
    assert str(refusal.value).endswith(f"results/laptop/models/{EARLIER} is one of another scale; name it by that path")
    assert load_trained(f"results/laptop/models/{EARLIER}").run == EARLIER
