"""Embeddings of an encoder, their map, and the separation of variants against loops over all pairs."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.instances import generated
from helpers.model_samples import policy_of, shaken
from polarvrp.analysis.embeddings import CUSTOMERS_PER_INSTANCE, SCHEMA, embeddings, tsne
from polarvrp.analysis.separation import cosine_separation
from polarvrp.cli.main import main
from polarvrp.files import read_parquet
from polarvrp.model.saving import save_policy
from polarvrp.problem.instances import to_tensors

VARIANTS = ("CVRP", "OVRPTW", "VRPB")


def test_points_are_embeddings_of_customers_of_each_variant() -> None:
    policy = shaken(policy_of("routefinder_ablation", "shared"))
    sets = [generated(variant, 8, 4) for variant in VARIANTS]
    frame = embeddings(policy, sets)
    assert list(frame.columns) == SCHEMA.names
    assert frame["variant"].tolist() == [name for name in VARIANTS for _ in range(4 * CUSTOMERS_PER_INSTANCE)]
    assert not frame.duplicated(["variant", "instance", "node"]).any() and frame["node"].between(1, 8).all()
    for name, instances in zip(VARIANTS, sets, strict=True):
        with torch.no_grad():
            encoded = policy.encode(to_tensors(instances)).embeddings
        here = frame[frame["variant"] == name]
        wanted = encoded.numpy()[here["instance"].to_numpy(), here["node"].to_numpy()]
        assert np.allclose(np.stack(here["embedding"].to_list()), wanted, rtol=1e-5, atol=1e-6)


def test_every_encoder_is_seen_at_the_same_customers() -> None:
    sets = [generated(variant, 8, 4) for variant in VARIANTS]
    first, second = (embeddings(shaken(policy_of("polarnet", encoder)), sets) for encoder in ("shared", "ple"))
    assert (first[["variant", "instance", "node"]] == second[["variant", "instance", "node"]]).all(axis=None)
    assert not np.allclose(first["x"], second["x"])


def test_the_map_is_the_same_on_each_run_whatever_the_threads() -> None:
    points = np.random.default_rng(0).normal(size=(90, 16)).astype(np.float32)
    before = torch.get_num_threads()
    maps = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        np.random.seed(threads)
        maps.append(tsne(points))
    torch.set_num_threads(before)
    assert (maps[0] == maps[1]).all()


def test_the_map_keeps_neighbours_together() -> None:
    centres = np.random.default_rng(1).normal(size=(3, 16)) * 10
    groups = np.arange(60) % 3
    points = centres[groups] + np.random.default_rng(2).normal(size=(60, 16))
    plane = tsne(points)
    distances = np.linalg.norm(plane[:, None] - plane[None], axis=-1) + 1e9 * np.eye(60)
    assert (groups[distances.argmin(axis=1)] == groups).all()


def test_separation_is_the_mean_over_all_pairs() -> None:
    random = np.random.default_rng(0)
    points, variants = random.normal(size=(11, 4)) + 0.5, [VARIANTS[place % 3] for place in range(11)]
    within: list[float] = []
    between: list[float] = []
    for first in range(11):
        for second in range(first):
            product = sum(float(points[first, place] * points[second, place]) for place in range(4))
            lengths = [math.sqrt(sum(float(entry) ** 2 for entry in points[place])) for place in (first, second)]
            same = variants[first] == variants[second]
            (within if same else between).append(product / (lengths[0] * lengths[1]))
    found = cosine_separation(points, variants)
    assert found.within == pytest.approx(sum(within) / len(within))
    assert found.between == pytest.approx(sum(between) / len(between))
    assert found.difference == pytest.approx(found.within - found.between)


def test_separation_of_extremes() -> None:
    apart = cosine_separation(np.array([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [-5.0, 0.0]]), ["A", "A", "B", "B"])
    assert (apart.within, apart.between, apart.difference) == (1.0, -1.0, 2.0)
    assert cosine_separation(np.ones((4, 3)), ["A", "B", "A", "B"]).difference == pytest.approx(0.0)
    assert math.isnan(cosine_separation(np.ones((3, 2)), ["A", "A", "A"]).between)


def test_file_of_a_model(tmp_path: Path) -> None:
    policy = shaken(policy_of("polarnet", "shared"))
    save_policy(tmp_path / "weights.safetensors", policy, {"run": "polarnet-shared-polar-n8-s0", "fingerprint": "f"})
    sets = [str(tmp_path / f"{name}.npz") for name in VARIANTS]
    for name, path in zip(VARIANTS, sets, strict=True):
        words = ["--variant", name, "--num-customers", "8", "--instances", "3", "--seed", "1234"]
        assert main(["generate", *words, "--output", path]) == 0
    words = ["analyse", "embeddings", *sets, "--model", str(tmp_path), "--output", str(tmp_path / "points.parquet")]
    assert main([*words, "--fingerprint", "another"]) == 2 and not (tmp_path / "points.parquet").exists()
    assert main([*words, "--fingerprint", "f"]) == 0
    table = read_parquet(tmp_path / "points.parquet")
    assert table.schema.equals(SCHEMA) and table.num_rows == 3 * 3 * 5
    first = (tmp_path / "points.parquet").read_bytes()
    assert main(words) == 0 and (tmp_path / "points.parquet").read_bytes() == first
