"""The configuration beside a model: every value that its network and its training used."""

from pathlib import Path
from typing import Any

import torch

from helpers.studies import study
from polarvrp.config.model import ModelConfig
from polarvrp.config.training import StageConfig, TrainConfig
from polarvrp.evaluation.models import load_trained
from polarvrp.files import write_text
from polarvrp.model.registry import build_policy
from polarvrp.model.saving import save_policy
from polarvrp.study.runs import parse_run
from polarvrp.study.specs import parse_train_spec, train_spec
from polarvrp.training.constants import constants_of
from polarvrp.training.resolved import resolved_config


def resolved(tmp_path: Path, run: str, **own: Any) -> dict[str, Any]:
    spec = train_spec(study(tmp_path, scale="paper", **own), parse_run(run))
    return resolved_config(run, spec, parse_train_spec(spec)[0], "bfloat16")


def test_every_option_is_there_with_what_it_amounts_to(tmp_path: Path) -> None:
    ours = resolved(tmp_path, "polarnet-ple-polar-n50-k3-s0")
    assert set(ours["model"]) == set(ModelConfig.model_fields)
    assert set(ours["training"]) == set(TrainConfig.model_fields)
    assert ours["model"]["layers"] is None and ours["architecture"]["layers"] == 6
    assert ours["architecture"]["decoder"]["head"] == "gated" and ours["architecture"]["task_experts"] == 3
    assert ours["training"]["precision"] == "bfloat16" and ours["training"]["refined_tours"] == 3
    assert ours["training"]["initial_weights"] is None
    assert ours["validation"] == {"code": 1, "seed": 4321, "instances": 1000}
    assert ours["training"]["stages"][0]["batch_size"] == 256


def constants(tmp_path: Path, run: str, **own: Any) -> dict[str, Any]:
    return constants_of(*parse_train_spec(train_spec(study(tmp_path, scale="paper", **own), parse_run(run))))


def test_constants_are_those_that_a_training_uses(tmp_path: Path) -> None:
    """Numbers of the paper and of the authors' code that no option changes."""
    ours = constants(tmp_path, "polarnet-ple-polar-n50-s0")
    local_search = {"neighbours": 50, "penalties": [12.0, 200.0, 3000.0, 100000.0]}
    assert ours == {
        "logit_clip": 10.0,
        "pointer_precision": "float32",
        "rotary_base": 10000.0,
        "prompt_bottleneck": 16,
        "local_search": local_search,
    }
    theirs = constants(tmp_path, "mvmoe-shared-rl-n50-s0")
    assert theirs["mixture"] == {"experts": 4, "picked": 2, "loss_coefficient": 0.001}
    assert "reward_mean_old_share" not in theirs and "local_search" not in theirs
    assert constants(tmp_path, "routefinder-shared-rl-n50-s0")["reward_mean_old_share"] == 0.75
    assert constants(tmp_path, "moses-shared-rl-n50-s0")["adapter_rank"] == 32


def test_what_a_paradigm_never_reads_is_null(tmp_path: Path) -> None:
    training = resolved(tmp_path, "routefinder-shared-rl-n100-s0")["training"]
    polar = ("temperature", "refined_tours", "refinement_start_epoch", "refinement_ramp", "refiner")
    assert [training[key] for key in polar] == [None] * 5
    assert training["normalize_rewards"] is True
    assert resolved(tmp_path, "polarnet-ple-polar-n50-s0")["training"]["normalize_rewards"] is None


def test_stages_have_the_values_that_they_leave_out(tmp_path: Path) -> None:
    stages = [
        {"num_customers": 20, "paradigm": "po", "epochs": 20, "milestones": []},
        {"epochs": 5, "refinement_start_epoch": 0},
    ]
    first, last = resolved(tmp_path, "polarnet-ple-polar-n50-s0", training={"stages": stages})["training"]["stages"]
    assert set(first) == set(last) == set(StageConfig.model_fields)
    assert (first["epochs"], first["batch_size"], first["milestones"]) == (20, 256, [])
    assert first["refinement_start_epoch"] is None and last["refinement_start_epoch"] == 0
    assert (last["num_customers"], last["paradigm"], last["milestones"]) == (50, "polar", [270, 295])


def test_moses_names_the_adapters_of_each_stage(tmp_path: Path) -> None:
    ours = resolved(tmp_path, "moses-shared-rl-n50-s0")
    assert ours["architecture"]["adapters"] == "mixture"
    assert [stage["adapters"] for stage in ours["training"]["stages"]] == ["none", *["single"] * 4, "mixture"]


def test_folders_of_earlier_versions_still_load(tmp_path: Path) -> None:
    """Their configuration says less; what a model is stands in its weights."""
    policy = build_policy(ModelConfig(width=32, heads=4, layers=1, feedforward_width=32), seed=0)
    save_policy(tmp_path / "weights.safetensors", policy, {"run": "polarnet-ple-po-n50-s0"})
    write_text(tmp_path / "config.yaml", "run: polarnet-ple-po-n50-s0\nmodel: {backbone: polarnet}\n")
    loaded = load_trained(tmp_path, device="cpu").policy.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in policy.state_dict().items())
