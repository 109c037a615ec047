"""Every built-in backbone and encoder as data: which parts, with which options. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from polarvrp.config import ModelConfig
from polarvrp.errors import ConfigError
from polarvrp.problem.variants import FLAG_NAMES

SHARED_LAYERS = 6
DEEP_LAYERS = 24
PROMPT_TOKENS = 6
FILM_DEPTH = 3
LARGEST_SMALL_SIZE = 50


@dataclass(frozen=True, slots=True)
class BlockParts:
    """One transformer block.

    Attributes:
        norm: ``rms`` or ``instance``.
        pre_norm: Norms before attention and feed-forward instead of after their residuals.
        feedforward: ``relu``, ``swiglu`` or ``mixture``.
        attention_bias: Query, key and value have biases.
        scaled_residuals: Residuals are multiplied by (2 · layers)^-1/2.
    """

    norm: str
    pre_norm: bool
    feedforward: str
    attention_bias: bool = False
    scaled_residuals: bool = False


@dataclass(frozen=True, slots=True)
class DecoderParts:
    """The pointer decoder.

    Attributes:
        state: ``full``, ``remaining_open`` or ``remaining`` (``decoder.STATE_FEATURES``).
        map_logit_keys: The pointer's keys are a map of the embeddings instead of the embeddings.
        head: ``plain``, ``gated`` or ``reld``.
        output: Output map of a plain head: ``linear`` or ``mixture``.
        output_bias: The linear output map has a bias.
        glimpse_mask: ``hard``, ``plus_one`` or ``none``.
        unused_map: Hold the map of a graph context that the authors' networks never use.
    """

    state: str = "full"
    map_logit_keys: bool = False
    head: str = "plain"
    output: str = "linear"
    output_bias: bool = True
    glimpse_mask: str = "hard"
    unused_map: bool = False


@dataclass(frozen=True, slots=True)
class Architecture:
    """A whole network.

    Attributes:
        features: Schema of the depot rows (``embedding.DEPOT_FEATURES``).
        embedding_bias: The embedding has biases.
        block: The blocks; in a dual stack those of both streams.
        decoder: The decoder.
        stack: ``sequence``, ``ple`` or ``dual``.
        layers: Layers of the stack.
        flags: Constraint flags that condition the encoder; none without conditioning.
        film_depth: Linear maps of the modulation of customers; 0 without.
        prompt: ``none``, ``tokens`` or ``concatenated``.
        prompt_tokens: Number of prompt tokens.
        rope: ``proper``, ``as_released`` or ``off``.
        final_norm: A norm follows a sequence.
        task_experts: Task experts of each PLE layer.
        ple_form: ``pre`` or ``post``.
        fusion: How a dual stack exchanges its streams: ``sequential`` returns the sparse one, ``simultaneous`` the
            dense one.
        sparse_factor: Start of a learnable factor on sparse attention; ``None`` without.
        adapters: ``none``, ``single`` or ``mixture``.
        width: Features of a node.
        heads: Attention heads.
        feedforward_width: Hidden features.
    """

    features: str
    embedding_bias: bool
    block: BlockParts
    decoder: DecoderParts
    stack: str = "sequence"
    layers: int = SHARED_LAYERS
    flags: tuple[str, ...] = ()
    film_depth: int = 0
    prompt: str = "none"
    prompt_tokens: int = 0
    rope: str = "off"
    final_norm: bool = False
    task_experts: int = 0
    ple_form: str = "pre"
    fusion: str = "sequential"
    sparse_factor: float | None = None
    adapters: str = "none"
    width: int = 128
    heads: int = 8
    feedforward_width: int = 512


POLARNET = Architecture(
    features="limit",
    embedding_bias=True,
    block=BlockParts(norm="rms", pre_norm=True, feedforward="swiglu", scaled_residuals=True),
    decoder=DecoderParts(head="gated"),
    rope="proper",
)


@dataclass(frozen=True, slots=True)
class Backbone:
    """A backbone's networks.

    Attributes:
        architecture: Its shared encoder and its decoder.
        options: Optional fields of :class:`polarvrp.config.ModelConfig` that it honours.
    """

    architecture: Architecture
    options: frozenset[str]


PLE_FAMILY_OPTIONS = frozenset({"film", "prompt", "rope", "head", "glimpse_mask", "ple_form", "layers"})

BUILT_IN: dict[str, Backbone] = {
    "polarnet": Backbone(POLARNET, PLE_FAMILY_OPTIONS),
}


def architecture_of(config: ModelConfig) -> Architecture:
    """Parts of a built-in backbone with an encoder and the configuration's departures.

    Args:
        config: Names a backbone of ``BUILT_IN`` and one of its encoders.

    Raises:
        ConfigError: If an option is set that the backbone has no use for.
    """
    backbone = BUILT_IN[config.backbone]
    refused = [name for name in sorted(OPTIONAL) if getattr(config, name) is not None and name not in backbone.options]
    if refused:
        raise ConfigError(f"backbone {config.backbone} has no option {refused[0]}; leave it unset")
    sized = replace(
        backbone.architecture,
        width=config.width,
        heads=config.heads,
        feedforward_width=config.feedforward_width,
    )
    return ENCODERS[config.encoder](sized, config)


OPTIONAL = PLE_FAMILY_OPTIONS | {"adapters"}


def _shared(architecture: Architecture, config: ModelConfig) -> Architecture:
    return _with_options(architecture, config)


def _deep(architecture: Architecture, config: ModelConfig) -> Architecture:
    return _with_options(replace(architecture, layers=DEEP_LAYERS), config)


def _ple(architecture: Architecture, config: ModelConfig) -> Architecture:
    """Prompt, gates and experts; the modulation of customers belongs to the paper's own model alone."""
    ple = replace(
        architecture,
        stack="ple",
        task_experts=config.task_experts,
        ple_form="pre" if architecture.block.pre_norm else "post",
        flags=FLAG_NAMES,
        prompt="tokens",
        prompt_tokens=PROMPT_TOKENS,
        film_depth=FILM_DEPTH if config.backbone == "polarnet" else 0,
    )
    if config.prompt is False:
        raise ConfigError("prompt must not be off with encoder ple: its gates read the prompt")
    return _with_options(ple, config)


ENCODERS: dict[str, Callable[[Architecture, ModelConfig], Architecture]] = {
    "shared": _shared,
    "deep": _deep,
    "ple": _ple,
}


def _with_options(architecture: Architecture, config: ModelConfig) -> Architecture:
    """The architecture with those options that the configuration sets."""
    film_depth, prompt, tokens = architecture.film_depth, architecture.prompt, architecture.prompt_tokens
    if config.film is not None:
        film_depth = FILM_DEPTH if config.film else 0
    if config.prompt is not None:
        prompt, tokens = ("tokens", PROMPT_TOKENS) if config.prompt else ("none", 0)
    decoder = architecture.decoder
    if config.head is not None:
        plain = config.head == "plain"
        decoder = replace(decoder, head=config.head, output=decoder.output if plain else "linear")
    return replace(
        architecture,
        film_depth=film_depth,
        prompt=prompt,
        prompt_tokens=tokens,
        flags=architecture.flags or (FLAG_NAMES if film_depth or tokens else ()),
        rope=architecture.rope if config.rope is None else config.rope,
        ple_form=architecture.ple_form if config.ple_form is None else config.ple_form,
        layers=architecture.layers if config.layers is None else config.layers,
        decoder=decoder if config.glimpse_mask is None else replace(decoder, glimpse_mask=config.glimpse_mask),
    )
