"""Others' weights: the converted network computes what an independent version of theirs computes, or is refused."""

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from helpers.authors_networks import (
    WIDTH,
    Weights,
    polar_log_probs,
    polar_nodes,
    routefinder_log_probs,
    routefinder_nodes,
)
from helpers.instances import in_double, mixed, sample
from helpers.model_samples import queries
from polarvrp.cli.main import main
from polarvrp.evaluation.models import load_trained
from polarvrp.model.conversion import convert_policy, read_state
from polarvrp.model.policy import Policy
from polarvrp.problem.instances import Instances
from polarvrp.solutions.solutions import read_solutions

ONE_DEPOT = in_double(mixed(["CVRP", "OVRPBLTW", "VRPL", "VRPBTW", "OVRP"]))
SEVERAL_DEPOTS = in_double(mixed(["MDVRPMB", "MDOVRPLTW"]))


def theirs_of(
    weights: Weights, backbone: str, encoder: str, instances: Instances[Tensor], gated: bool = False
) -> tuple[Tensor, Tensor]:
    """Embeddings and log-probabilities by their names."""
    asked = queries(instances)
    if backbone in ("routefinder", "mtpomo", "mvmoe"):
        h = routefinder_nodes(weights, backbone, instances)
        return h, routefinder_log_probs(weights, backbone, h, instances, *asked)
    h = polar_nodes(weights, backbone, encoder, instances)
    return h, polar_log_probs(weights, backbone, gated, h, *asked)


def ours_of(policy: Policy, instances: Instances[Tensor]) -> tuple[Tensor, Tensor]:
    with torch.inference_mode():
        h = policy.encode(instances).embeddings
        return h, policy.log_probs(policy.cache(h, instances), *queries(instances))[0]


NETWORKS = [
    *(("RouteFinder", name, "shared", False) for name in ("routefinder", "mtpomo", "mvmoe")),
    *(
        ("Routing-POLAR", f"{name}_ablation", encoder, False)
        for name in ("mtpomo", "mvmoe", "routefinder")
        for encoder in ("shared", "ple")
    ),
    ("Routing-POLAR", "routefinder_ablation", "deep", False),
    *(("Routing-POLAR", "polarnet", encoder, True) for encoder in ("shared", "ple")),
    ("Routing-POLAR", "polarnet", "shared", False),
]


@pytest.mark.parametrize(("code", "backbone", "encoder", "gated"), NETWORKS)
def test_forward_passes_are_equal(code: str, backbone: str, encoder: str, gated: bool) -> None:
    """To rounding of float64, on instances of every constraint; the POLAR code's with several depots too."""
    weights = Weights(seed=3)
    sets = [ONE_DEPOT] if code == "RouteFinder" else [ONE_DEPOT, SEVERAL_DEPOTS]
    found = [theirs_of(weights, backbone, encoder, instances, gated) for instances in sets]
    policy, said = convert_policy(dict(weights), backbone, encoder, 100)
    assert said == code and policy.config.width == WIDTH
    for instances, (h, log_probs) in zip(sets, found, strict=True):
        ours, ours_log_probs = ours_of(policy.double(), instances)
        torch.testing.assert_close(ours, h, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(ours_log_probs, log_probs, rtol=1e-9, atol=1e-9)


def test_newer_names_of_rl4co_and_prefixes_of_wrappers() -> None:
    weights = Weights(seed=0)
    _, log_probs = theirs_of(weights, "mtpomo", "shared", ONE_DEPOT)
    renamed = {
        name.replace("2.module.0.", "2.module.lins.0.").replace("2.module.2.", "2.module.lins.1."): tensor
        for name, tensor in weights.items()
    }
    policy, _ = convert_policy(renamed, "mtpomo", "shared", 100)
    torch.testing.assert_close(ours_of(policy.double(), ONE_DEPOT)[1], log_probs, rtol=1e-9, atol=1e-9)


def test_counts_are_the_published_ones() -> None:
    """At full width: RouteFinder's transformer has 1,677,824 parameters, the map that it never uses among them."""
    from helpers import authors_networks as theirs

    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("WIDTH", 128), ("HIDDEN", 512), ("LAYERS", 6)):
            patch.setattr(theirs, name, value)
        weights = Weights(seed=0)
        theirs_of(weights, "routefinder", "shared", in_double(sample("CVRP", count=1)))
    policy, _ = convert_policy(dict(weights), "routefinder", "shared", 100)
    assert sum(parameter.numel() for parameter in policy.parameters()) == 1_677_824


def float32(weights: Weights) -> dict[str, Tensor]:
    return {name: tensor.float() for name, tensor in weights.items()}


@pytest.mark.parametrize("form", ["safetensors", "state dict", "lightning", "polar"])
def test_command_makes_a_model_that_evaluates(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From each kind of file; the tours of the converted network are checked like all."""
    from safetensors.torch import save_file

    backbone = "polarnet" if form == "polar" else "routefinder"
    weights = Weights(seed=1)
    _, log_probs = theirs_of(weights, backbone, "shared", ONE_DEPOT)
    state, path = float32(weights), tmp_path / "theirs.pt"
    match form:
        case "safetensors":
            path = tmp_path / "theirs.safetensors"
            save_file({f"policy.{name}": tensor.contiguous() for name, tensor in state.items()}, path)
        case "state dict":
            torch.save(state, path)
        case "lightning":
            torch.save({"epoch": 3, "state_dict": {f"policy.{name}": one for name, one in state.items()}}, path)
        case "polar":
            torch.save({"model_state_dict": state, "rng_state_dict": {"random.state": random.getstate()}}, path)
    output = tmp_path / "models" / "theirs"
    words = ["--backbone", backbone, "--encoder", "shared", "--num-customers", "7", "--output", str(output)]
    assert main(["convert-weights", str(path), *words]) == 0
    assert f"{backbone}-shared of " in capsys.readouterr().out
    trained = load_trained(output)
    assert (trained.run, trained.num_customers, trained.variants) == ("theirs", 7, ())
    torch.testing.assert_close(ours_of(trained.policy.double(), ONE_DEPOT)[1], log_probs, rtol=1e-3, atol=1e-3)
    instances, solutions = str(tmp_path / "set.npz"), str(tmp_path / "out.parquet")
    draw = ["--variant", "OVRPTW", "--num-customers", "7", "--instances", "2", "--seed", "1"]
    assert main(["generate", *draw, "--output", instances]) == 0
    assert main(["evaluate", instances, "--model", str(output), "--augmentations", "1", "--output", solutions]) == 0
    assert read_solutions(solutions)["run"].to_pylist() == ["theirs", "theirs"]
    assert main(["check", instances, solutions]) == 0


class Environment:
    """Something that a checkpoint should not hold."""


def test_pickled_objects_are_never_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"state_dict": {}, "hyper_parameters": {"env": Environment()}}, path := tmp_path / "last.ckpt")
    words = ["--backbone", "routefinder", "--encoder", "shared", "--output", str(tmp_path / "out")]
    assert main(["convert-weights", str(path), *words]) == 2
    printed = capsys.readouterr().err
    assert printed == (
        f"polarvrp convert-weights: {path} is no checkpoint, or one with objects beside tensors, which are never "
        "loaded here; export its state dictionary as docs/interchange.md says\n"
    )
    assert not (tmp_path / "out").exists()


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another network, parts that compute something else here, no weights at all."""
    shared, ple, film = Weights(0), Weights(0), Weights(0)
    theirs_of(shared, "routefinder", "shared", ONE_DEPOT)
    theirs_of(ple, "polarnet", "ple", ONE_DEPOT, gated=True)
    theirs_of(film, "polarnet", "shared", ONE_DEPOT, gated=True)
    film["encoder.film_generator.film_net.0.weight"] = torch.zeros(1)  # of their shared encoder it moves depots too
    wide = dict(shared) | {"encoder.init_embedding.project_global_feats.weight": torch.zeros(WIDTH, 6)}
    (junk := tmp_path / "junk.pt").write_bytes(b"not a checkpoint")
    torch.save({"a": 1}, empty := tmp_path / "empty.pt")
    for content, backbone, encoder, message in (
        (dict(shared), "cada", "shared", "weights of cada cannot be converted, only those of routefinder, mtpomo"),
        (dict(shared), "routefinder", "ple", "routefinder exists with its own stack only: --encoder shared"),
        (dict(shared), "mtpomo", "shared", "the weights lack encoder.net.layers"),
        (dict(shared), "polarnet", "ple", "the weights lack encoder.embedding_depot.weight: is it another network?"),
        (dict(ple), "polarnet", "shared", "the weights "),
        (dict(film), "polarnet", "shared", "has no place for encoder.film_generator.film_net.0.weight and 0 more"),
        (wide, "routefinder", "shared", "the weights do not fit routefinder-shared: "),
        (junk, "routefinder", "shared", "junk.pt is no checkpoint, or one with objects beside tensors"),
        (empty, "routefinder", "shared", "empty.pt holds no state dictionary; export its state dictionary"),
        (tmp_path / "no.pt", "routefinder", "shared", "no.pt does not exist"),
    ):
        path = content if isinstance(content, Path) else tmp_path / "theirs.pt"
        if isinstance(content, dict):
            torch.save(content, path)
        words = ["--backbone", backbone, "--encoder", encoder, "--output", str(tmp_path / "out")]
        assert main(["convert-weights", str(path), *words]) == 2, message
        printed = capsys.readouterr().err
        assert message in printed and len(printed.splitlines()) == 1, printed
    assert not (tmp_path / "out").exists()


def test_prefixes_are_taken_off(tmp_path: Path) -> None:
    torch.save({"model.policy.encoder.x": torch.zeros(1), "baseline.y": torch.zeros(1)}, path := tmp_path / "a.pt")
    assert list(read_state(path)) == ["encoder.x"]
