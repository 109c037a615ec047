"""Encoders: what stands between a backbone's embedding and its decoder."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """One encoder.

    Attributes:
        name: As runs are named.
        label: As tables print it.
        architecture: Dotted path of a function ``(Architecture, ModelConfig) -> Architecture`` that gives a backbone
            this encoder. None keeps the backbone's own stack.
        settings: Settings of a network that belong to this encoder alone.
    """

    name: str
    label: str
    architecture: str | None = None
    settings: tuple[str, ...] = ()


ENCODERS: dict[str, Encoder] = {
    record.name: record
    for record in (
        Encoder(name="shared", label="Shared"),
        Encoder(name="deep", label="Deep-24", architecture="polarvrp.config.architectures:with_deep_stack"),
        Encoder(
            name="ple",
            label="PLE",
            architecture="polarvrp.config.architectures:with_ple",
            settings=("task_experts", "ple_form"),
        ),
    )
}
