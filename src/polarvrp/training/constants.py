"""Numbers that no option changes, as far as a network and its training use them."""

from typing import Any

from polarvrp.catalog.architectures import Architecture
from polarvrp.catalog.backbones import BACKBONES
from polarvrp.catalog.paradigms import PARADIGMS
from polarvrp.config.architectures import architecture_of
from polarvrp.config.model import ModelConfig
from polarvrp.config.training import TrainConfig
from polarvrp.model import adapters, conditioning, decoder, mixture, rotation
from polarvrp.training import rewards, step


def constants_of(network: ModelConfig, config: TrainConfig) -> dict[str, Any]:
    """What ``config.yaml`` of a model holds beside its settings.

    Args:
        network: Configuration of the trained network.
        config: Recipe of its training.
    """
    built_in = network.backbone in BACKBONES
    parts = _of_network(architecture_of(network)) if built_in else {}
    return parts | _of_training(config)


def _of_network(parts: Architecture) -> dict[str, Any]:
    found: dict[str, Any] = {"logit_clip": decoder.CLIP, "pointer_precision": "float32"}
    if parts.rope != "off":
        found["rotary_base"] = rotation.BASE
    if parts.prompt == "tokens":
        found["prompt_bottleneck"] = conditioning.PROMPT_BOTTLENECK
    if "mixture" in (parts.block.feedforward, parts.decoder.output) or parts.decoder.output == "light":
        found["mixture"] = {
            "experts": mixture.NUM_CHOICES,
            "picked": mixture.NUM_PICKED,
            "loss_coefficient": mixture.LOSS_COEFFICIENT,
        }
    if parts.adapters != "none":
        found["adapter_rank"] = adapters.RANK
    return found


def _of_training(config: TrainConfig) -> dict[str, Any]:
    found: dict[str, Any] = {}
    paradigms = [PARADIGMS[config.for_stage(number).paradigm] for number in range(len(config.stages))]
    if config.normalize_rewards and any("normalize_rewards" in paradigm.settings for paradigm in paradigms):
        found["reward_mean_old_share"] = rewards.OLD_SHARE
    if any(paradigm.refines for paradigm in paradigms):
        if config.refinement_ramp:
            found["refinement_gap_memory"] = step.GAP_MEMORY
        if config.refiner == "pyvrp":
            from polarvrp.local_search import pyvrp_search

            found["local_search"] = {
                "neighbours": pyvrp_search.NUM_NEIGHBOURS,
                "penalties": list(pyvrp_search.PENALTIES),
            }
    return found
