"""Names to networks, users' own backbones, options, seeds."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from helpers.instances import sample
from helpers.model_samples import SMALL
from polarvrp.catalog.backbones import BACKBONES
from polarvrp.config.model import ModelConfig
from polarvrp.errors import CheckpointMismatchError, ConfigError
from polarvrp.model.conditioning import Conditioning
from polarvrp.model.decoder import PointerDecoder
from polarvrp.model.embedding import NodeEmbedding
from polarvrp.model.heads import PlainHead
from polarvrp.model.linear import Linear
from polarvrp.model.policy import Encoding, Policy
from polarvrp.model.registry import RegisteredBackbone, available, build_policy
from polarvrp.model.rotation import Rotation
from polarvrp.model.saving import load_policy, save_policy


class NodewiseStack(nn.Module):
    """A user's own encoder: one map of each node."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = Linear(width, width)

    def forward(self, x: Tensor, prompt: Tensor | None, rotation: Rotation | None) -> Encoding:
        return Encoding(self.map(x), x.new_zeros(()))


def build_toy(config: ModelConfig, width: int | None = None) -> Policy:
    width = width or config.width
    head = PlainHead(Linear(width, width))
    decoder = PointerDecoder(width, config.heads, state="full", map_logit_keys=False, head=head)
    return Policy(config, NodeEmbedding(width, "limit", bias=True), Conditioning(()), NodewiseStack(width), decoder)


TOY = RegisteredBackbone(("shared",), build_toy)
SIZED = RegisteredBackbone(("shared",), lambda config: build_toy(config, 8 * config.num_customers))
"""Its shapes depend on the size."""


def test_available_pairs_are_those_of_the_configuration() -> None:
    assert available() == [(name, encoder) for name, record in BACKBONES.items() for encoder in record.encoders]


def test_a_backbone_is_found_by_its_import_path_saved_and_loaded_like_any_other(tmp_path: Path) -> None:
    policy = build_policy(ModelConfig(backbone=f"{__name__}:TOY", encoder="shared", **SMALL), seed=0)
    assert isinstance(policy.stack, NodewiseStack)
    assert policy.encode(sample()).embeddings.shape == (3, 8, 32)
    save_policy(tmp_path / "w.safetensors", policy, {})
    loaded, _ = load_policy(tmp_path / "w.safetensors", expected=policy.config)
    assert torch.equal(loaded.encode(sample()).embeddings, policy.encode(sample()).embeddings)


def test_weights_of_an_own_backbone_serve_another_size_if_they_fit(tmp_path: Path) -> None:
    path, toy, sized = tmp_path / "w.safetensors", f"{__name__}:TOY", f"{__name__}:SIZED"
    small, large = (ModelConfig(backbone=toy, encoder="shared", num_customers=size, **SMALL) for size in (20, 50))
    policy = build_policy(small, seed=0)
    save_policy(path, policy, {})
    loaded, _ = load_policy(path, expected=large)
    assert loaded.config == large
    assert torch.equal(loaded.encode(sample()).embeddings, policy.encode(sample()).embeddings)
    with pytest.raises(CheckpointMismatchError, match=rf"wanted {toy}-shared; it has .*layers 2 instead of 3"):
        load_policy(path, expected=large.replace(layers=3))
    save_policy(path, build_policy(small.replace(backbone=sized), seed=0), {})
    with pytest.raises(CheckpointMismatchError, match=rf"weights in .*w\.safetensors do not fit {sized}-shared"):
        load_policy(path, expected=large.replace(backbone=sized))


def test_a_backbone_is_found_by_the_entry_point_of_an_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "toy-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[polarvrp.backbones]\ntoy_entry = {__name__}:TOY\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert ("toy_entry", "shared") in available()
    policy = build_policy(ModelConfig(backbone="toy_entry", encoder="shared", **SMALL), seed=0)
    assert isinstance(policy.stack, NodewiseStack)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"backbone": "polarnett"},
            "no backbone 'polarnett' with encoder 'ple'; there are mtpomo-shared, .*polarnet-ple",
        ),
        ({"backbone": "cada", "encoder": "ple"}, "no backbone 'cada' with encoder 'ple'"),
        ({"backbone": "no.such.module:BACKBONE"}, "cannot be imported .*write package.module:attribute"),
        ({"backbone": f"{__name__}:MISSING"}, "cannot be imported"),
        ({"backbone": f"{__name__}:SMALL"}, "must be a RegisteredBackbone, got dict"),
        # options that would do nothing
        ({"backbone": "cada", "encoder": "shared", "film": True}, "backbone cada has no option film"),
        ({"backbone": "mtpomo", "encoder": "shared", "head": "gated"}, "backbone mtpomo has no option head"),
        ({"adapters": "single"}, "backbone polarnet has no option adapters"),
        ({"encoder": "shared", "ple_form": "pre"}, "ple_form belongs to encoder ple"),
        ({"prompt": False}, "its gates read the prompt"),
    ],
)
def test_what_does_not_exist_is_named_with_what_does(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_policy(ModelConfig(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rope": "improper"}, "rope must be one of proper, as_released, off, got 'improper'"),
        ({"width": 100}, "width must be a multiple of heads"),
        ({"width": 16, "heads": 8}, "multiple of 4"),
        ({"task_experts": 0}, "task_experts must be above 0, got 0"),
        ({"layers": 0}, "layers must be above 0, got 0"),
    ],
)
def test_impossible_configurations_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelConfig.from_mapping(options)


def test_initial_weights_depend_on_the_seed_alone() -> None:
    config = ModelConfig(**SMALL)
    state = torch.random.get_rng_state()
    first = build_policy(config, seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.rand(3)
    second, third = build_policy(config, seed=1), build_policy(config, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), third.parameters(), strict=True))


def test_names_recipes_and_architectures_need_no_torch() -> None:
    code = (
        "import sys, polarvrp.model.registry as r, polarvrp.config.recipes, polarvrp.cli.describe\n"
        "assert r.available() and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
