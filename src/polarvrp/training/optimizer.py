"""The optimiser of a training."""

from typing import Any

import torch
from torch import Tensor

from polarvrp.config.training import TrainConfig
from polarvrp.model.policy import Policy


def make_optimizer(config: TrainConfig, policy: Policy, device: torch.device) -> torch.optim.Optimizer:
    """In one kernel; on a GPU in the form that a graph can capture: learning rate and step counter on the device."""
    trainable = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    options: dict[str, Any] = {"betas": (0.9, 0.999), "weight_decay": config.weight_decay}
    if device.type == "cuda":
        rate = torch.tensor(config.learning_rate, device=device)
        return kind(trainable, lr=rate, fused=True, capturable=True, **options)
    return kind(trainable, lr=config.learning_rate, fused=True, **options)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Change the rate of the next steps, on the device where it lies there."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
