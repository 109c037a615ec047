"""Configuration of one network, checked at construction; imports nothing heavy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from polarvrp.config.sections import Section
from polarvrp.errors import ConfigError

MODEL_CHOICES: dict[str, tuple[str, ...]] = {
    "rope": ("proper", "as_released", "off"),
    "head": ("plain", "gated", "reld"),
    "glimpse_mask": ("hard", "plus_one", "none"),
    "ple_form": ("pre", "post"),
    "adapters": ("none", "single", "mixture"),
    "mixture": ("full", "light"),
}


@dataclass(frozen=True, slots=True)
class ModelConfig(Section):
    """One network: a backbone, an encoder, and where it departs from what the backbone's authors published.

    ``None`` always means: as published. A backbone refuses the options that it has no use for.

    Attributes:
        backbone: Registered name, or ``package.module:attribute`` of a user's own backbone.
        encoder: ``shared``, ``deep`` or ``ple``.
        task_experts: Task experts in each PLE layer.
        num_customers: Size trained for; the authors of CaDA use another network beyond 50 customers.
        film: Whether customers' embeddings are scaled and shifted by the constraint flags.
        prompt: Whether constraint flags enter the encoder as prompt tokens.
        rope: Rotary position embedding of the coordinates; ``as_released`` repeats the pairing of the released code,
            which is no rotation.
        head: What follows the decoder's glimpse.
        glimpse_mask: How the glimpse treats infeasible nodes: excluded, or as in released codes with 1 added to the
            scores of feasible ones, or not at all.
        ple_form: Norms outside the experts (``pre``, the paper's form) or only inside (``post``).
        adapters: LoRA adapters around every map of MoSES: none in its first stage, one gated adapter in its second,
            the mixture of experts in its third.
        mixture: Output map of MVMoE's decoder: always a mixture of experts, or, in its light form, that or a dense map
            by a gate of its own.
        layers: Encoder layers.
        width: Features of a node.
        heads: Attention heads.
        feedforward_width: Hidden features of feed-forward networks.
    """

    backbone: str = "polarnet"
    encoder: str = "ple"
    task_experts: int = 3
    num_customers: int = 50
    film: bool | None = None
    prompt: bool | None = None
    rope: str | None = None
    head: str | None = None
    glimpse_mask: str | None = None
    ple_form: str | None = None
    adapters: str | None = None
    mixture: str | None = None
    layers: int | None = None
    width: int = 128
    heads: int = 8
    feedforward_width: int = 512

    def __post_init__(self) -> None:
        for name, choices in MODEL_CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        for name in ("task_experts", "num_customers", "width", "heads", "feedforward_width"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.layers is not None and self.layers < 1:
            raise ConfigError(f"layers must be at least 1, got {self.layers}")
        if self.width % self.heads:
            raise ConfigError(f"width must be a multiple of heads, got {self.width} and {self.heads}")
        if (self.width // self.heads) % 4:
            raise ConfigError(
                f"width / heads must be a multiple of 4 (two axes, pairs of features), got {self.width // self.heads}"
            )

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, as JSON and YAML hold them."""
        return asdict(self)
