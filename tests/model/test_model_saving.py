"""Saved policies: exact round trips, and errors that say which file holds what."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from helpers.instances import sample
from helpers.model_samples import SMALL, policy_of
from polarvrp.config.model import ModelConfig
from polarvrp.errors import CheckpointMismatchError, DataError
from polarvrp.model.registry import available
from polarvrp.model.saving import load_policy, save_policy


@pytest.mark.parametrize(("backbone", "encoder"), available())
def test_a_policy_comes_back_bit_for_bit(tmp_path: Path, backbone: str, encoder: str) -> None:
    policy, path = policy_of(backbone, encoder, seed=3), tmp_path / "weights.safetensors"
    save_policy(path, policy, {"fingerprint": "abc", "spec": {"seed": 3}})
    loaded, header = load_policy(path, expected=policy.config)
    assert header["metadata"] == {"fingerprint": "abc", "spec": {"seed": 3}}
    assert set(header["versions"]) == {"polarvrp", "torch"}
    assert loaded.config == policy.config
    assert not loaded.training
    assert torch.equal(loaded.encode(sample()).embeddings, policy.encode(sample()).embeddings)
    assert list(tmp_path.iterdir()) == [path]


def test_saving_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_policy(tmp_path / name, policy_of(seed=1), {"x": 1, "y": [2.5, None]})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_size_that_shares_the_network_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_policy(path, policy_of(num_customers=20), {})
    load_policy(path, expected=ModelConfig(num_customers=100, **SMALL))
    save_policy(path, policy_of("cada", "shared", num_customers=20), {})
    with pytest.raises(CheckpointMismatchError, match="num_customers 20 instead of 100"):
        load_policy(path, expected=ModelConfig(backbone="cada", encoder="shared", num_customers=100, **SMALL))


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"encoder": "shared"}, "holds polarnet-ple, wanted polarnet-shared; it has encoder 'ple' instead of 'shared'"),
        ({"backbone": "cada", "encoder": "shared"}, "holds polarnet-ple, wanted cada-shared"),
        ({"task_experts": 2}, "task_experts 3 instead of 2"),
        ({"rope": "as_released"}, "rope None instead of 'as_released'"),
    ],
)
def test_another_network_is_refused_by_name(tmp_path: Path, expected: dict[str, Any], message: str) -> None:
    path = tmp_path / "weights.safetensors"
    save_policy(path, policy_of(), {})
    with pytest.raises(CheckpointMismatchError, match=message):
        load_policy(path, expected=ModelConfig(**(SMALL | expected)))


def test_spelling_out_a_default_is_no_other_network(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_policy(path, policy_of(rope="proper", glimpse_mask="hard", film=True), {})
    load_policy(path, expected=ModelConfig(**SMALL))


def write_header(path: Path, header: dict[str, Any] | None, tensors: dict[str, Tensor] | None = None) -> None:
    metadata = None if header is None else {"polarvrp": json.dumps(header)}
    save_file(tensors or {"x": torch.zeros(1)}, path, metadata=metadata)


def test_files_of_other_kinds_are_data_errors(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    with pytest.raises(DataError, match=r"no weights at .*weights\.safetensors; train the run first"):
        load_policy(path)
    write_header(path, None)
    with pytest.raises(DataError, match="does not say which network it holds"):
        load_policy(path)
    save_policy(path, policy_of(), {})
    whole = path.read_bytes()
    for broken in (b"", b"\x80\x04pickle", whole[: len(whole) // 2], struct.pack("<Q", 1 << 40) + whole[8:]):
        path.write_bytes(broken)
        with pytest.raises(DataError, match="truncated or no safetensors file"):
            load_policy(path)


def test_weights_that_do_not_fit_their_network_are_refused(tmp_path: Path) -> None:
    path, policy = tmp_path / "weights.safetensors", policy_of()
    state, header = policy.state_dict(), {"model": policy.config.model_dump()}
    tensors = {name: tensor for name, tensor in state.items() if "share_logit" not in name}
    write_header(path, header, tensors)
    with pytest.raises(CheckpointMismatchError, match=r"do not fit polarnet-ple.*share_logit"):
        load_policy(path)
    write_header(path, {"model": header["model"] | {"backbone": "gone"}}, state)
    with pytest.raises(CheckpointMismatchError, match=r"holds a network that does not exist here.*'gone'"):
        load_policy(path)
    write_header(path, {"model": header["model"] | {"wings": 2}}, state)
    with pytest.raises(CheckpointMismatchError, match="wings"):
        load_policy(path)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_policy(path, policy_of(), {})
    before = path.read_bytes()
    with pytest.raises(TypeError):
        save_policy(path, policy_of(seed=2), {"bad": object()})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
