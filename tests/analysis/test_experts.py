"""Contributions of PLE's experts against the update written out node by node."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.instances import generated
from helpers.model_samples import policy_of, shaken
from polarvrp.analysis.experts import expert_contributions, layer_updates
from polarvrp.cli.main import main
from polarvrp.errors import ConfigError
from polarvrp.model.policy import Policy
from polarvrp.model.saving import save_policy
from polarvrp.problem.instances import to_tensors

VARIANTS = ("CVRP", "OVRPBLTW")


def norms_by_hand(policy: Policy, variant: str, num_layers: int = 2) -> dict[tuple[int, int, int], list[float]]:
    """Weight and norm of each term by layer, instance and expert, from the layer's parts called one by one."""
    instances = to_tensors(generated(variant, 5, 3, 11), dtype=torch.float64)
    found: dict[tuple[int, int, int], list[float]] = {}
    with torch.no_grad():
        x = policy.embedding(instances, policy.dtype)
        x, prompt = policy.conditioning(x, instances.flags, 1, policy.dtype)
        assert prompt is not None
        shared = tasks = x
        for number in range(num_layers):
            layer: Any = policy.stack.layers[number]  # type: ignore[index]
            shared_before, shared = shared, layer.norm_shared(layer.shared_expert(shared, None)[0])
            gate = layer.gate(prompt.mean(dim=1), shared)
            experts = layer.task_experts(tasks, None, prompt)[0]
            for instance in range(3):
                total = sum(float(gate[instance, k]) for k in range(3))
                for k in range(4):
                    rho = 1 / (1 + math.exp(-float(layer.share_logit)))
                    factor = float(gate[instance, k]) / total if k < 3 else rho * float(gate[instance, 3])
                    vectors = (experts[k] if k < 3 else shared)[instance]
                    lengths = [math.sqrt(sum((factor * float(entry)) ** 2 for entry in node)) for node in vectors]
                    found[number, instance, k] = [factor, sum(lengths) / len(lengths)]
            _, tasks, _, _ = layer(shared_before, tasks, prompt, prompt.mean(dim=1), None)
    return found


def test_norms_are_those_of_the_update_written_out() -> None:
    policy = shaken(policy_of("polarnet", "ple", dtype=torch.float64, rope="off"))
    frame = expert_contributions(policy, [generated(variant, 5, 3, 11) for variant in VARIANTS])
    assert len(frame) == 2 * 2 * 4
    for variant in VARIANTS:
        found = norms_by_hand(policy, variant)
        for layer in range(2):
            for k, expert in enumerate(("task_1", "task_2", "task_3", "shared")):
                here = [found[layer, instance, k] for instance in range(3)]
                shares = [
                    100 * found[layer, instance, k][1] / sum(found[layer, instance, other][1] for other in range(4))
                    for instance in range(3)
                ]
                rows = (frame["layer"] == layer + 1) & (frame["variant"] == variant) & (frame["expert"] == expert)
                row = frame[rows].iloc[0]
                assert row["weight"] == pytest.approx(sum(weight for weight, _ in here) / 3, rel=1e-9)
                assert row["norm"] == pytest.approx(sum(norm for _, norm in here) / 3, rel=1e-9)
                assert row["percent"] == pytest.approx(sum(shares) / 3, rel=1e-9)


@pytest.mark.parametrize("backbone", ["polarnet", "mtpomo_ablation"])
def test_terms_add_up_to_the_update_that_the_encoder_makes(backbone: str) -> None:
    """Watching changes no number; shares and gates of an instance sum to one, and hooks are gone afterwards."""
    policy = shaken(policy_of(backbone, "ple"))
    instances = to_tensors(generated("VRPTW", 6, 4, 3))
    with torch.no_grad():
        before = policy.encode(instances)
    updates = layer_updates(policy, instances)
    with torch.no_grad():
        after = policy.encode(instances)
    assert torch.equal(before.embeddings, after.embeddings) and len(updates) == 2
    for update in updates:
        assert torch.allclose(update.gate.sum(dim=1), torch.ones(4))
        ratio = update.weight[:, :3] / update.gate[:, :3]
        expected = 1 / update.gate[:, :3].sum(dim=1) if backbone == "polarnet" else torch.ones(4)
        assert torch.allclose(ratio, expected[:, None].expand(-1, 3))
    assert not any(module._forward_hooks for module in policy.modules())


def test_gate_of_blocks_that_end_with_a_norm_over_nodes_knows_the_flags_alone() -> None:
    """Their mean node is a constant: all instances of a variant have one gate (and those of our blocks do not)."""
    instances = to_tensors(generated("VRPB", 6, 4, 3))
    spreads = {
        backbone: float(layer_updates(shaken(policy_of(backbone, "ple")), instances)[1].gate.std(dim=0).max())
        for backbone in ("mtpomo_ablation", "polarnet")
    }
    assert spreads["mtpomo_ablation"] < 1e-6
    assert spreads["polarnet"] > 1e-4


def test_an_encoder_without_experts_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="encoder shared has no task experts"):
        expert_contributions(policy_of("polarnet", "shared"), [generated("CVRP", 5, 2, 1)])
    save_policy(tmp_path / "weights.safetensors", policy_of("polarnet", "shared"), {"run": "polarnet-shared-rl-n5-s0"})
    sets = str(tmp_path / "CVRP-n5.npz")
    words = ["--variant", "CVRP", "--num-customers", "5", "--instances", "2", "--seed", "1"]
    assert main(["generate", *words, "--output", sets]) == 0
    output = tmp_path / "experts.parquet"
    words = ["analyse", "experts", sets, "--model", str(tmp_path), "--output", str(output)]
    assert main(words) == 2 and not output.exists()
    assert "polarvrp analyse: encoder shared has no task experts" in capsys.readouterr().err
