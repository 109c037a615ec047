"""Parameter counts of every network: published figures, and sums of closed forms where nothing is published."""

from typing import Any

import pytest

from polarvrp.catalog.backbones import BACKBONES
from polarvrp.config.model import ModelConfig
from polarvrp.model.adapters import mix, specialize
from polarvrp.model.cost import parameter_counts
from polarvrp.model.policy import Policy
from polarvrp.model.registry import available, build_policy


def count(policy: Policy, trainable_only: bool = False) -> int:
    return sum(p.numel() for p in policy.parameters() if p.requires_grad or not trainable_only)


def built(**options: Any) -> Policy:
    return build_policy(ModelConfig(**options), seed=0)


@pytest.mark.parametrize(
    ("backbone", "encoder", "parameters"),
    [
        ("polarnet", "shared", 1_841_576),
        ("polarnet", "deep", 6_567_080),
        ("polarnet", "ple", 6_983_414),
        ("mtpomo_ablation", "shared", 1_255_168),
        ("mtpomo_ablation", "deep", 4_817_152),
        ("mtpomo_ablation", "ple", 5_198_030),
        ("mvmoe_ablation", "shared", 3_682_688),
        ("mvmoe_ablation", "deep", 14_375_552),
        ("mvmoe_ablation", "ple", 14_756_430),
        ("routefinder_ablation", "shared", 1_643_008),
        ("routefinder_ablation", "deep", 6_368_512),
        ("routefinder_ablation", "ple", 6_734_414),
        ("mtpomo", "shared", 1_289_600),
        ("mvmoe", "shared", 3_717_248),
        ("routefinder", "shared", 1_677_824),
        ("cada", "shared", 3_430_198),
        ("filmmed", "shared", 3_431_734),
        ("moses", "shared", 10_139_455),
    ],
)
def test_every_backbone_with_every_encoder(backbone: str, encoder: str, parameters: int) -> None:
    assert count(built(backbone=backbone, encoder=encoder)) == parameters


def test_no_pair_was_left_out_above() -> None:
    assert len(available()) == sum(len(record.encoders) for record in BACKBONES.values()) == 18


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        # arms of a clean ablation of PLE, modulation and prompt
        ({"encoder": "shared", "film": True}, 1_892_008),
        ({"encoder": "shared", "film": True, "prompt": True}, 1_924_696),
        ({"encoder": "deep", "film": True}, 6_617_512),
        ({"encoder": "deep", "film": True, "prompt": True}, 6_650_200),
        ({"film": False}, 6_932_982),
        # task experts
        ({"task_experts": 1}, 3_831_530),
        ({"task_experts": 2}, 5_407_472),
        ({"task_experts": 4}, 8_559_356),
        ({"task_experts": 5}, 10_135_298),
        # the baselines under the paper's decoder
        ({"backbone": "mtpomo_ablation", "encoder": "shared", "head": "gated"}, 1_453_736),
        ({"backbone": "mtpomo_ablation", "head": "gated"}, 5_396_598),
        ({"backbone": "mvmoe_ablation", "encoder": "shared", "head": "gated"}, 3_830_696),
        ({"backbone": "mvmoe_ablation", "head": "gated"}, 14_904_438),
        ({"backbone": "routefinder_ablation", "encoder": "shared", "head": "gated"}, 1_841_576),
        ({"backbone": "routefinder_ablation", "head": "gated"}, 6_932_982),
        # the light form of mixtures
        ({"backbone": "mvmoe", "encoder": "shared", "mixture": "light"}, 3_733_888),
        ({"backbone": "mvmoe_ablation", "encoder": "shared", "mixture": "light"}, 3_699_456),
        # other releases of the same systems
        ({"backbone": "cada", "encoder": "shared", "num_customers": 100}, 3_421_488),
        ({"backbone": "filmmed", "encoder": "shared", "num_customers": 100}, 3_431_734),
        ({"backbone": "filmmed", "encoder": "shared", "head": "reld"}, 3_564_086),
        ({"backbone": "moses", "encoder": "shared", "adapters": "none"}, 3_503_360),
    ],
)
def test_departures_from_the_defaults(options: dict[str, Any], parameters: int) -> None:
    assert count(built(**options)) == parameters


def test_trainable_parameters_of_the_stages_of_moses() -> None:
    base = built(backbone="moses", encoder="shared", adapters="none")
    expert = specialize(base, seed=1)
    mixture = mix(base, [expert] * 4, seed=2)
    assert count(expert, trainable_only=True) == 1_327_219
    assert count(mixture, trainable_only=True) == 1_411_263
    assert count(mixture) == 10_139_455


def test_parts_of_polarnet() -> None:
    parts = parameter_counts(built())
    assert parts["embedding"] == 1_536
    assert parts["conditioning"] == 50_432 + 32_688
    assert parts["stack"] == 6 * 1_100_165 + 2 * 128 * 128 + 128
    assert parts["decoder"] == 264_872
