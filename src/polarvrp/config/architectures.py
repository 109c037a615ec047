"""From a configuration to an architecture: the backbone's parts, its encoder, and where the user departs from both."""

from __future__ import annotations

from dataclasses import replace

from polarvrp.catalog.architectures import DEEP_LAYERS, FILM_DEPTH, LARGEST_SMALL_SIZE, PROMPT_TOKENS, Architecture
from polarvrp.catalog.backbones import BACKBONES, OPTIONS
from polarvrp.catalog.encoders import ENCODERS
from polarvrp.catalog.records import resolve
from polarvrp.config.model import ModelConfig
from polarvrp.errors import ConfigError
from polarvrp.problem.variants import FLAG_NAMES


def architecture_of(config: ModelConfig) -> Architecture:
    """Parts of a built-in backbone with an encoder and the configuration's departures.

    Args:
        config: Names a built-in backbone and one of its encoders.

    Raises:
        ConfigError: If an option is set that the backbone or the encoder has no use for, or the backbone's record names
            no architecture.
    """
    backbone, encoder = BACKBONES[config.backbone], ENCODERS[config.encoder]
    for name in sorted(OPTIONS):
        if getattr(config, name) is not None and name not in backbone.options:
            raise ConfigError(f"backbone {config.backbone} has no option {name}; leave it unset")
    for other in ENCODERS.values():
        for name in OPTIONS.intersection(other.settings).difference(encoder.settings):
            if getattr(config, name) is not None:
                raise ConfigError(
                    f"{name} belongs to encoder {other.name}, got it with {config.encoder}; leave it unset"
                )
    architecture = backbone.architecture
    if architecture is None:
        raise ConfigError(f"backbone {config.backbone} has no architecture; its record must name one")
    if backbone.large is not None and config.num_customers > LARGEST_SMALL_SIZE:
        architecture = backbone.large
    architecture = replace(
        architecture, width=config.width, heads=config.heads, feedforward_width=config.feedforward_width
    )
    if encoder.architecture is not None:
        architecture = resolve(encoder.architecture)(architecture, config)
    return _with_decoder_options(_with_encoder_options(architecture, config), config)


def ramps_decoder(config: ModelConfig) -> bool:
    """Whether a training from scratch turns on a residual block of the decoder by degrees.

    Args:
        config: Of any network; one from outside the package may have such a block.

    Raises:
        ConfigError: As ``architecture_of``.
    """
    return config.backbone not in BACKBONES or architecture_of(config).decoder.head != "plain"


def with_deep_stack(architecture: Architecture, config: ModelConfig) -> Architecture:
    """The backbone's own stack, 24 layers deep."""
    return replace(architecture, layers=DEEP_LAYERS)


def with_ple(architecture: Architecture, config: ModelConfig) -> Architecture:
    """Experts, gates and a prompt; modulated customers belong to the paper's own model alone."""
    if config.prompt is False:
        raise ConfigError("prompt must not be off with encoder ple: its gates read the prompt")
    return replace(
        architecture,
        stack="ple",
        task_experts=config.task_experts,
        ple_form="pre" if architecture.block.pre_norm else "post",
        flags=FLAG_NAMES,
        prompt="tokens",
        prompt_tokens=PROMPT_TOKENS,
        film_depth=FILM_DEPTH if BACKBONES[config.backbone].modulated else 0,
    )


def _with_encoder_options(architecture: Architecture, config: ModelConfig) -> Architecture:
    film_depth, prompt, tokens = architecture.film_depth, architecture.prompt, architecture.prompt_tokens
    if config.film is not None:
        film_depth = FILM_DEPTH if config.film else 0
    if config.prompt is not None:
        prompt, tokens = ("tokens", PROMPT_TOKENS) if config.prompt else ("none", 0)
    return replace(
        architecture,
        film_depth=film_depth,
        prompt=prompt,
        prompt_tokens=tokens,
        flags=architecture.flags or (FLAG_NAMES if film_depth or tokens else ()),
        rope=config.rope or architecture.rope,
        ple_form=config.ple_form or architecture.ple_form,
        layers=config.layers or architecture.layers,
        adapters=config.adapters or architecture.adapters,
    )


def _with_decoder_options(architecture: Architecture, config: ModelConfig) -> Architecture:
    decoder = architecture.decoder
    if config.mixture == "light":
        if config.head not in (None, "plain"):
            raise ConfigError(f"mixture light belongs to the plain head, got head {config.head}; leave one unset")
        decoder = replace(decoder, output="light")
    if config.head is not None:
        # The gated and the ReLD head come with a linear output map of their own.
        output = decoder.output if config.head == "plain" else "linear"
        decoder = replace(decoder, head=config.head, output=output)
    if config.glimpse_mask is not None:
        decoder = replace(decoder, glimpse_mask=config.glimpse_mask)
    return replace(architecture, decoder=decoder)
