"""Networks of a training's stages, each grown from those before it (MoSES; all other backbones have one stage)."""

from dataclasses import dataclass
from pathlib import Path

import torch

from polarvrp.config.model import ModelConfig
from polarvrp.config.training import TrainConfig
from polarvrp.errors import CheckpointMismatchError
from polarvrp.model.adapters import mix, specialize
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy
from polarvrp.model.saving import load_policy, save_policy
from polarvrp.seeds import derive_seed
from polarvrp.study.layout import Layout
from polarvrp.study.weights import find_weights, weights_digest


@dataclass(frozen=True, slots=True)
class StageNetworks:
    """Networks that the stages begin with.

    Attributes:
        model: The network asked for.
        config: Recipe with the stages.
        folder: Where the networks of finished stages are stored.
        device: Where networks compute.
        layout: Of the results, where initial weights are looked for.
    """

    model: ModelConfig
    config: TrainConfig
    folder: Path
    device: torch.device
    layout: Layout

    def build(self, stage: int) -> Policy:
        """Network of stage ``stage`` before its first step, on the device."""
        stages = self.config.stages
        seed = derive_seed(self.config.seed, "weights", stage) % 2**32
        kind = stages[stage].adapters
        if kind == "none":
            adapted = any(later.adapters != "none" for later in stages)
            config = self.model.replace(adapters="none") if adapted else self.model
            return build_policy(config, seed).to(self.device)
        base = self._load(0)
        if kind == "single":
            return specialize(base, seed)
        return mix(base, [self._load(earlier) for earlier in range(1, stage)], seed)

    def begin(self) -> Policy:
        """Network of the first stage at the beginning of the training: fresh, or with the initial weights.

        Raises:
            DataError: If there is no such model.
            CheckpointMismatchError: If it is another network, or no longer has the weights of the specification.
        """
        policy = self.build(0)
        initial = self.config.initial_weights
        if initial is None:
            return policy
        path = find_weights(initial.model, self.layout)
        if weights_digest(path) != initial.sha256:
            raise CheckpointMismatchError(
                f"{path} holds other weights than those that the training was to go on from; start it again"
            )
        trained, _ = load_policy(path, self.device, policy.config)
        policy.load_state_dict(trained.state_dict())
        return policy

    def store(self, stage: int, policy: Policy) -> None:
        """Store the network of a finished stage for those to come."""
        save_policy(self._path(stage), policy, {"stage": self.config.stages[stage].name})

    def _load(self, stage: int) -> Policy:
        """Network of a finished stage."""
        policy, _ = load_policy(self._path(stage), self.device)
        return policy

    def _path(self, stage: int) -> Path:
        return self.folder / f"stage-{stage}.safetensors"
