"""Configuration of one network; imports nothing heavy."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from polarvrp.config.base import Section
from polarvrp.problem.variants import LARGEST_SIZE


class ModelConfig(Section):
    """One network: a backbone, an encoder, and where it departs from what the backbone's authors published.

    ``None`` always means: as published. A backbone refuses the options that it has no use for, and encoders that it
    does not exist with.
    """

    backbone: str = Field(
        default="polarnet",
        description="A name of the catalog or of an installed package, or package.module:attribute of a user's own.",
    )
    encoder: str = Field(default="ple", description="One that the backbone exists with, e.g. shared or ple.")
    task_experts: PositiveInt = Field(default=3, le=1000, description="Task experts in each PLE layer.")
    num_customers: PositiveInt = Field(
        default=50,
        le=LARGEST_SIZE,
        description="Size trained for; the authors of CaDA use another network beyond 50 customers.",
    )
    film: bool | None = Field(
        default=None, description="Whether customers' embeddings are scaled and shifted by the constraint flags."
    )
    prompt: bool | None = Field(
        default=None, description="Whether constraint flags enter the encoder as prompt tokens."
    )
    rope: Literal["proper", "as_released", "off"] | None = Field(
        default=None,
        description="Rotary position embedding of the coordinates; as_released repeats the pairing of the released "
        "code, which is no rotation.",
    )
    head: Literal["plain", "gated", "reld"] | None = Field(
        default=None, description="What follows the decoder's glimpse."
    )
    glimpse_mask: Literal["hard", "plus_one", "none"] | None = Field(
        default=None,
        description="How the glimpse treats infeasible nodes: excluded, or as in released codes with 1 added to the "
        "scores of feasible ones, or not at all.",
    )
    ple_form: Literal["pre", "post"] | None = Field(
        default=None, description="Norms outside the experts (pre, the paper's form) or only inside (post)."
    )
    adapters: Literal["none", "single", "mixture"] | None = Field(
        default=None,
        description="LoRA adapters around every map of MoSES: none in its first stage, one gated adapter in its "
        "second, the mixture of experts in its third.",
    )
    mixture: Literal["full", "light"] | None = Field(
        default=None,
        description="Output map of MVMoE's decoder: always a mixture of experts, or, in its light form, that or a "
        "dense map by a gate of its own.",
    )
    layers: PositiveInt | None = Field(default=None, description="Encoder layers.")
    width: PositiveInt = Field(default=128, description="Features of a node.")
    heads: PositiveInt = Field(default=8, description="Attention heads.")
    feedforward_width: PositiveInt = Field(default=512, description="Hidden features of feed-forward networks.")

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, got {self.width} and {self.heads}")
        if (self.width // self.heads) % 4:
            raise ValueError(
                f"width / heads must be a multiple of 4 (two axes, pairs of features), got {self.width // self.heads}"
            )
        return self
