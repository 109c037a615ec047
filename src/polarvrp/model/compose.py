"""From an architecture to modules."""

from __future__ import annotations

from functools import partial

from torch import nn

from polarvrp.catalog.architectures import Architecture
from polarvrp.config.model import ModelConfig
from polarvrp.model.adapters import add_adapters
from polarvrp.model.attention import Attention
from polarvrp.model.blocks import Block
from polarvrp.model.conditioning import ConcatenatedPrompt, Conditioning, FiLM, PromptTokens
from polarvrp.model.decoder import STATE_FEATURES, PointerDecoder
from polarvrp.model.dual import DualStack
from polarvrp.model.embedding import NodeEmbedding
from polarvrp.model.feedforward import ReluFeedForward, SwiGLU
from polarvrp.model.heads import GatedHead, LightHead, PlainHead, ReldHead
from polarvrp.model.linear import Linear
from polarvrp.model.mixture import MixtureFeedForward, MixtureOutput
from polarvrp.model.norms import NORMS
from polarvrp.model.policy import Policy
from polarvrp.model.stacks import PLEStack, SequenceStack

FEEDFORWARDS = {"relu": ReluFeedForward, "swiglu": SwiGLU, "mixture": MixtureFeedForward}


def compose(architecture: Architecture, config: ModelConfig) -> Policy:
    """Network of these parts, freshly initialised from torch's global generator.

    Args:
        architecture: The parts.
        config: The configuration that the policy carries.
    """
    policy = Policy(
        config,
        NodeEmbedding(architecture.width, architecture.features, architecture.embedding_bias),
        _conditioning(architecture),
        _stack(architecture),
        _decoder(architecture),
        architecture.rope,
    )
    if architecture.adapters != "none":
        add_adapters(policy, architecture.adapters)
    return policy


def make_block(architecture: Architecture, experts: int | None = None, *, sparse: bool = False) -> Block:
    """One block of the architecture's stack.

    Args:
        architecture: Says which.
        experts: Make that many side by side; ``None`` makes a plain one.
        sparse: Make a block of a dual stack's sparse stream.
    """
    parts, width = architecture.block, architecture.width
    norm = NORMS[parts.norm]
    return Block(
        Attention(
            width,
            architecture.heads,
            bias=parts.attention_bias,
            top_half=sparse,
            initial_factor=architecture.sparse_factor if sparse else None,
            experts=experts,
        ),
        FEEDFORWARDS[parts.feedforward](width, architecture.feedforward_width, experts),
        (norm(width, experts), norm(width, experts)),
        pre_norm=parts.pre_norm,
        residual_scale=(2 * architecture.layers) ** -0.5 if parts.scaled_residuals else 1.0,
        experts=experts,
    )


def _conditioning(architecture: Architecture) -> Conditioning:
    num_flags, width = len(architecture.flags), architecture.width
    return Conditioning(
        architecture.flags,
        film=FiLM(num_flags, width, architecture.film_depth) if architecture.film_depth else None,
        prompt=PromptTokens(num_flags, width, architecture.prompt_tokens) if architecture.prompt == "tokens" else None,
        concatenated=ConcatenatedPrompt(num_flags, width) if architecture.prompt == "concatenated" else None,
    )


def _stack(architecture: Architecture) -> nn.Module:
    make = partial(make_block, architecture)
    width, layers = architecture.width, architecture.layers
    if architecture.stack == "dual":
        return DualStack(partial(make, sparse=True), make, width, layers, architecture.fusion == "sequential")
    if architecture.stack == "ple":
        return PLEStack(make, width, layers, architecture.task_experts, architecture.ple_form == "pre")
    final_norm = NORMS[architecture.block.norm](width) if architecture.final_norm else None
    return SequenceStack(make, layers, final_norm)


def _decoder(architecture: Architecture) -> PointerDecoder:
    parts, width, heads = architecture.decoder, architecture.width, architecture.heads
    num_state, hidden = STATE_FEATURES[parts.state], architecture.feedforward_width
    head: nn.Module
    if parts.head == "gated":
        head = GatedHead(width, heads, hidden, num_state)
    elif parts.head == "reld":
        head = ReldHead(width, hidden, num_state)
    elif parts.output == "mixture":
        head = PlainHead(MixtureOutput(width))
    elif parts.output == "light":
        head = LightHead(width, parts.output_bias)
    else:
        head = PlainHead(Linear(width, width, bias=parts.output_bias))
    return PointerDecoder(
        width,
        heads,
        state=parts.state,
        map_logit_keys=parts.map_logit_keys,
        head=head,
        glimpse_mask=parts.glimpse_mask,
        unused_map=parts.unused_map,
    )
