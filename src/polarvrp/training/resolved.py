"""Every value that a network and its training used, as readers of a model want it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from polarvrp.catalog.backbones import BACKBONES
from polarvrp.catalog.paradigms import unread_settings
from polarvrp.config.architectures import architecture_of, ramps_decoder
from polarvrp.config.model import ModelConfig
from polarvrp.config.training import StageConfig, TrainConfig
from polarvrp.study.specs import parse_train_spec


def resolved_config(run: str, spec: Mapping[str, Any], network: ModelConfig, precision: str) -> dict[str, Any]:
    """What ``config.yaml`` of a model holds; nothing reads it back.

    Args:
        run: Name of the run.
        spec: Specification of the training.
        network: Configuration of the trained network.
        precision: Arithmetic that it was trained with, ``float32`` or ``bfloat16``.

    Returns:
        ``run``; ``model``, the network's options, None where it is as published; ``architecture``, what these amount
        to, None for a backbone from outside the package; ``training``, whose ``stages`` have all their values;
        ``validation``, the sets that are solved after each epoch, None where the specification names none. A setting
        that the paradigm or the network never reads is None.
    """
    config = parse_train_spec(spec)[1]
    stages = [_resolved_stage(config, number) for number in range(len(config.stages))]
    unread = {*unread_settings({stage["paradigm"] for stage in stages})}
    if config.initial_weights is not None or not ramps_decoder(network):
        unread.add("decoder_ramp_epochs")
    training = config.model_dump(mode="json") | {"precision": precision, "stages": stages} | dict.fromkeys(unread)
    return {
        "run": run,
        "model": network.model_dump(mode="json"),
        "architecture": dataclasses.asdict(architecture_of(network)) if network.backbone in BACKBONES else None,
        "training": training,
        "validation": spec.get("validation"),
    }


def _resolved_stage(config: TrainConfig, number: int) -> dict[str, Any]:
    """A stage with all values, its own and those of the whole training."""
    own, whole = config.stages[number].model_dump(mode="json"), config.for_stage(number).model_dump(mode="json")
    values = {
        key: own[key] if key in ("name", "variants", "adapters") else whole[key] for key in StageConfig.model_fields
    }
    return values | {key: None for key in unread_settings({values["paradigm"]}) if key in values}
