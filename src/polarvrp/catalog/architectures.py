"""Architectures as data: which parts a network has, with which options, and those of the built-in backbones."""

from dataclasses import dataclass, replace

SHARED_LAYERS = 6
DEEP_LAYERS = 24
PROMPT_TOKENS = 6
FILM_DEPTH = 3


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
        output: Output map of a plain head: ``linear``, ``mixture`` or ``light`` (mixture or linear by a gate).
        output_bias: The linear output map has a bias.
        glimpse_mask: ``hard``, ``plus_one`` or ``none``; the authors of CaDA and of the paper's forms of MTPOMO and
            MVMoE add the mask to the scores.
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


CADA_FLAGS = ("C", "O", "TW", "L", "B")
MOSES_FLAGS = ("O", "TW", "L", "B")
LARGEST_SMALL_SIZE = 50
"""Up to here a size takes the network that the authors of CaDA trained for 50 customers, beyond it that for 100."""

PRE_RMS = BlockParts(norm="rms", pre_norm=True, feedforward="swiglu", scaled_residuals=True)
POST_RMS = BlockParts(norm="rms", pre_norm=False, feedforward="swiglu")
POST_INSTANCE = BlockParts(norm="instance", pre_norm=False, feedforward="relu")

ROUTEFINDER_DECODER = DecoderParts(state="remaining", map_logit_keys=True, output_bias=False, unused_map=True)
"""Of RouteFinder's repository, which MTPOMO, MVMoE and MoSES share up to the state."""

POLARNET = Architecture(
    features="limit", embedding_bias=True, block=PRE_RMS, decoder=DecoderParts(head="gated"), rope="proper"
)
ROUTEFINDER_ABLATION = Architecture(features="limit", embedding_bias=True, block=PRE_RMS, decoder=DecoderParts())
MTPOMO_ABLATION = replace(ROUTEFINDER_ABLATION, block=POST_INSTANCE, decoder=DecoderParts(glimpse_mask="plus_one"))
MVMOE_ABLATION = replace(
    MTPOMO_ABLATION,
    block=replace(POST_INSTANCE, feedforward="mixture"),
    decoder=DecoderParts(output="mixture", glimpse_mask="plus_one"),
)
MTPOMO = Architecture(
    features="coordinates",
    embedding_bias=False,
    block=replace(POST_INSTANCE, attention_bias=True),
    decoder=replace(ROUTEFINDER_DECODER, state="remaining_open"),
)
MVMOE = replace(
    MTPOMO,
    block=replace(MTPOMO.block, feedforward="mixture"),
    decoder=replace(MTPOMO.decoder, output="mixture"),
)
ROUTEFINDER = Architecture(
    features="globals",
    embedding_bias=False,
    block=replace(PRE_RMS, attention_bias=True, scaled_residuals=False),
    decoder=ROUTEFINDER_DECODER,
    final_norm=True,
)
CADA = Architecture(
    features="limit",
    embedding_bias=True,
    block=POST_RMS,
    decoder=DecoderParts(glimpse_mask="plus_one"),
    stack="dual",
    flags=CADA_FLAGS,
    prompt="tokens",
    prompt_tokens=5,
    sparse_factor=0.2,
)
CADA_LARGE = replace(CADA, prompt_tokens=1, sparse_factor=None)
FILMMED = replace(CADA, film_depth=1, decoder=DecoderParts())
MOSES = Architecture(
    features="globals",
    embedding_bias=False,
    block=replace(POST_RMS, attention_bias=True),
    decoder=ROUTEFINDER_DECODER,
    stack="dual",
    flags=MOSES_FLAGS,
    prompt="concatenated",
    fusion="simultaneous",
    adapters="mixture",
)
