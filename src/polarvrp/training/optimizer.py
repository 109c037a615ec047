"""The optimiser of a training."""

from typing import Any

import torch
from torch import Tensor

from polarvrp.config.training import TrainConfig
from polarvrp.model.policy import Policy


def make_optimizer(config: TrainConfig, policy: Policy, device: torch.device) -> torch.optim.Optimizer:
    """In one kernel; on a GPU in the form that a graph can capture: learning rate and step counter on the device.

    Where its ``found_inf`` is 1, by which gradient scalers skip a step, a step changes nothing.
    """
    trainable = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    options: dict[str, Any] = {"betas": (0.9, 0.999), "weight_decay": config.weight_decay, "lr": config.learning_rate}
    if device.type == "cuda":
        options |= {"lr": torch.tensor(config.learning_rate, device=device), "capturable": True}
    optimizer: torch.optim.Optimizer = kind(trainable, fused=True, **options)
    optimizer.found_inf = torch.zeros((), device=device)  # type: ignore[attr-defined]
    return optimizer


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Change the rate of the next steps, on the device where it lies there."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
