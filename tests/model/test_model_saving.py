"""Saved policies: exact round trips, and errors that say which file holds what."""

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from helpers.full_disk import full_disk
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
    state, header = policy.state_dict(), {"model": policy.config.model_dump(), "metadata": {}}
    tensors = {name: tensor for name, tensor in state.items() if "share_logit" not in name}
    write_header(path, header, tensors)
    with pytest.raises(CheckpointMismatchError, match=r"do not fit polarnet-ple.*share_logit"):
        load_policy(path)
    write_header(path, header | {"model": header["model"] | {"backbone": "gone"}}, state)
    with pytest.raises(CheckpointMismatchError, match=r"holds a network that does not exist here.*'gone'"):
        load_policy(path)
    write_header(path, header | {"model": header["model"] | {"wings": 2}}, state)
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


def test_no_flipped_bit_of_a_file_gives_another_network(tmp_path: Path) -> None:
    path, draw = tmp_path / "weights.safetensors", random.Random(0)
    save_policy(path, policy_of(), {"run": "a", "fingerprint": "b"})
    whole, header = load_policy(path)
    content = path.read_bytes()
    places = [draw.randrange(8 * len(content)) for _ in range(60)] + [draw.randrange(8 * 1500) for _ in range(60)]
    refused = 0
    for place in places:
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            policy, said = load_policy(path)
        except DataError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            refused += 1
            continue
        assert {name: said[name] for name in header} == header
        assert all(torch.equal(tensor, whole.state_dict()[name]) for name, tensor in policy.state_dict().items())
    assert refused > 100


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused_on_loading(tmp_path: Path, value: float) -> None:
    policy, path = policy_of(), tmp_path / "weights.safetensors"
    name, parameter = next(iter(policy.named_parameters()))
    with torch.no_grad():
        parameter.view(-1)[0] = value
    save_policy(path, policy, {})
    with pytest.raises(DataError, match=rf"{name} holds numbers that are not finite; train the run again"):
        load_policy(path)


@pytest.mark.parametrize("header", [{}, {"model": {}}, {"model": {}, "metadata": []}, {"model": 1, "metadata": {}}])
def test_weights_that_do_not_say_what_they_are(tmp_path: Path, header: dict[str, Any]) -> None:
    path = tmp_path / "weights.safetensors"
    write_header(path, header, {"a": torch.zeros(2)})
    with pytest.raises(DataError, match="does not say which network it holds"):
        load_policy(path)


def test_a_full_disk_is_one_line_and_keeps_the_weights(tmp_path: Path) -> None:
    """The library of the format has an exception of its own."""
    path = tmp_path / "weights.safetensors"
    save_policy(path, policy_of(seed=1), {})
    before = path.read_bytes()
    with full_disk(len(before) // 2), pytest.raises(DataError, match=r"cannot be written \(.*File too large"):
        save_policy(path, policy_of(seed=2), {})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
