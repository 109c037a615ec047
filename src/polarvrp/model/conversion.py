"""State dictionaries of others as weights of our networks, where both compute the same.

Two codes are known: RouteFinder's repository (ai4co/routefinder, on rl4co), which holds RouteFinder, MTPOMO and MVMoE
as the main tables compare them, and that of the POLAR paper (AJ-Correa/Routing-POLAR), which holds the paper's own
network and its forms of the three. What a file holds is told by its names; a tensor that finds no place, or a place
that finds no tensor, is an error, so that nothing is dropped in silence.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from polarvrp.config.model import ModelConfig
from polarvrp.errors import CheckpointMismatchError, ConfigError, DataError
from polarvrp.files import reading
from polarvrp.model.policy import Policy
from polarvrp.model.registry import build_policy

WRAPPERS = ("state_dict", "model_state_dict")
"""Entries of a checkpoint that hold its state dictionary: Lightning's, and the POLAR paper's."""

PREFIXES = ("module.", "model.", "policy.")
"""What wrappers put before the names of a network."""

EXPORT = "export its state dictionary as docs/interchange.md says"

Tensors = dict[str, Tensor]


def read_state(path: Path) -> Tensors:
    """Tensors of a state dictionary by name; pickled objects other than tensors and plain values are never loaded.

    Args:
        path: ``.safetensors``, or a file of ``torch.save`` with a state dictionary or a checkpoint that holds one.

    Raises:
        DataError: If the file is missing, damaged, or holds more than tensors and plain values.
    """
    found: Any
    if path.suffix == ".safetensors":
        with reading(path, damage="is no safetensors file ({reason})", damages=(SafetensorError,)):
            found = load_file(path)
    else:
        with reading(path):
            path.open("rb").close()
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            what = "is no checkpoint, or one with objects beside tensors, which are never loaded here"
            raise DataError(f"{path} {what}; {EXPORT}") from error
        except Exception as error:  # whatever its reader meets in a damaged file
            reason = " ".join(str(error).split())[:120]
            raise DataError(f"{path} is truncated or no checkpoint ({reason}); copy it again") from error
    for wrapper in WRAPPERS:
        found = found[wrapper] if isinstance(found, Mapping) and wrapper in found else found
    if not isinstance(found, Mapping) or not any(isinstance(value, Tensor) for value in found.values()):
        raise DataError(f"{path} holds no state dictionary; {EXPORT}")
    tensors = {str(name): value for name, value in found.items() if isinstance(value, Tensor)}
    for prefix in PREFIXES:
        inner = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        tensors = inner or tensors
    return tensors


def convert_policy(tensors: Tensors, backbone: str, encoder: str, num_customers: int) -> tuple[Policy, str]:
    """Our network with their weights.

    Args:
        tensors: Of ``read_state``.
        backbone: A key of ``CODES``.
        encoder: One that the backbone exists with, e.g. ``shared``.
        num_customers: Size that it was trained on.

    Returns:
        The policy in evaluation mode, and the code that the names are of.

    Raises:
        ConfigError: If no network of that name can be converted.
        CheckpointMismatchError: If the tensors are of another network.
    """
    if backbone not in CODES:
        raise ConfigError(f"weights of {backbone} cannot be converted, only those of {', '.join(CODES)}")
    code, convert = CODES[backbone]
    state = ForeignState(dict(tensors))
    try:
        options, converted = convert(state, backbone, encoder)
        state.require_used(backbone, encoder)
        named = {"backbone": backbone, "encoder": encoder, "num_customers": num_customers}
        policy = build_policy(ModelConfig.from_mapping(named | options), seed=0)
        policy.load_state_dict(converted)
    except (RuntimeError, IndexError) as error:  # of tensors whose shapes do not go together
        reason = " ".join(str(error).split())
        raise CheckpointMismatchError(f"the weights do not fit {backbone}-{encoder}: {reason}") from error
    return policy.eval(), code


@dataclass(slots=True)
class ForeignState:
    """Tensors that are taken one after the other."""

    tensors: Tensors
    taken: set[str] = field(default_factory=set)

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def take(self, name: str) -> Tensor:
        """A tensor by its name.

        Raises:
            CheckpointMismatchError: If there is none.
        """
        if name not in self.tensors:
            held = ", ".join(sorted(self.tensors)[:3])
            raise CheckpointMismatchError(f"the weights lack {name}: is it another network? They hold {held}, ...")
        self.taken.add(name)
        return self.tensors[name]

    def joined(self, *names: str) -> Tensor:
        """Tensors one below the other."""
        return torch.cat([self.take(name) for name in names])

    def linear(self, theirs: str, ours: str) -> Tensors:
        """Weight of a linear map, and its bias where it has one."""
        kinds = [kind for kind in ("weight", "bias") if kind == "weight" or f"{theirs}.{kind}" in self]
        return {f"{ours}.{kind}": self.take(f"{theirs}.{kind}") for kind in kinds}

    def ignore(self, *endings: str) -> None:
        """Count tensors whose names end so as taken: constants that our networks compute."""
        self.taken |= {name for name in self.tensors if name.endswith(endings)}

    def count(self, prefix: str) -> int:
        """How many numbered parts there are below a prefix.

        Raises:
            CheckpointMismatchError: If there is none.
        """
        numbers = {name[len(prefix) :].partition(".")[0] for name in self.tensors if name.startswith(prefix)}
        if not numbers:
            self.take(f"{prefix}0")
        return len(numbers)

    def require_used(self, backbone: str, encoder: str) -> None:
        """Refuse tensors that were not taken.

        Raises:
            CheckpointMismatchError: If there is one.
        """
        left = sorted(self.tensors.keys() - self.taken)
        if left:
            raise CheckpointMismatchError(
                f"{backbone}-{encoder} has no place for {left[0]} and {len(left) - 1} more of the weights: "
                "is it another network, or one with parts that compute something else here?"
            )


def _routefinder(state: ForeignState, backbone: str, encoder: str) -> tuple[dict[str, Any], Tensors]:
    """RouteFinder's transformer, customers' coordinates first among their features."""
    _require_own_encoder(backbone, encoder)
    customers = state.take("encoder.init_embedding.project_customers_feats.weight")
    ours = {
        "embedding.depots.weight": state.take("encoder.init_embedding.project_global_feats.weight"),
        "embedding.customers.weight": customers.roll(-2, dims=1),
        **state.linear("encoder.post_layers_norm.normalizer", "stack.final_norm"),
        **_rl4co_decoder(state),
        **state.linear("decoder.pointer.project_out", "decoder.head.output"),
    }
    layers = state.count("encoder.layers.")
    for layer in range(layers):
        theirs, block = f"encoder.layers.{layer}", f"stack.blocks.{layer}"
        ours |= _attention_and_norms(state, theirs, block, ("attention", "norm_attn", "norm_ffn"))
        ours |= {f"{block}.{name}": tensor for name, tensor in _swiglu(state, f"{theirs}.ffn").items()}
    return {"layers": layers, **_widths(ours, "stack.blocks.0.feedforward.down.weight")}, ours


def _attention_and_norms(state: ForeignState, theirs: str, block: str, names: tuple[str, str, str]) -> Tensors:
    """Attention of a layer of rl4co's parts, and its norms after attention and feed-forward block, by their names."""
    attention, after_attention, after_feedforward = names
    return {
        **state.linear(f"{theirs}.{attention}.Wqkv", f"{block}.attention.query_key_value"),
        **state.linear(f"{theirs}.{attention}.out_proj", f"{block}.attention.output"),
        **state.linear(f"{theirs}.{after_attention}.normalizer", f"{block}.norm_attention"),
        **state.linear(f"{theirs}.{after_feedforward}.normalizer", f"{block}.norm_feedforward"),
    }


def _mtpomo(state: ForeignState, backbone: str, encoder: str) -> tuple[dict[str, Any], Tensors]:
    """rl4co's attention network, with its older or newer names of feed-forward maps."""
    _require_own_encoder(backbone, encoder)
    ours = _rl4co_embedding(state) | _rl4co_decoder(state)
    ours |= state.linear("decoder.pointer.project_out", "decoder.head.output")
    layers = state.count("encoder.net.layers.")
    for layer in range(layers):
        theirs, block = f"encoder.net.layers.{layer}", f"stack.blocks.{layer}"
        ours |= _attention_and_norms(state, theirs, block, ("0.module", "1", "3"))
        up, down = ("0", "2") if f"{theirs}.2.module.0.weight" in state else ("lins.0", "lins.1")
        ours |= state.linear(f"{theirs}.2.module.{up}", f"{block}.feedforward.up")
        ours |= state.linear(f"{theirs}.2.module.{down}", f"{block}.feedforward.down")
    return {"layers": layers, **_widths(ours, "stack.blocks.0.feedforward.down.weight")}, ours


def _mvmoe(state: ForeignState, backbone: str, encoder: str) -> tuple[dict[str, Any], Tensors]:
    """MVMoE with a mixture in every layer and in the decoder."""
    _require_own_encoder(backbone, encoder)
    state.ignore(".mean", ".std")
    ours = _rl4co_embedding(state) | _rl4co_decoder(state)
    ours |= _prefixed("decoder.head.output", _mixture_output(state, "decoder.pointer.project_out"))
    layers = state.count("encoder.net.layers.")
    for layer in range(layers):
        theirs, block = f"encoder.net.layers.{layer}", f"stack.blocks.{layer}"
        ours |= _attention_and_norms(state, theirs, block, ("mha", "norm1", "norm2"))
        ours |= _prefixed(block, _mixture_feedforward(state, f"{theirs}.dense"))
    return {"layers": layers, **_widths(ours, "stack.blocks.0.feedforward.down.weight", choices=4)}, ours


def _polar(state: ForeignState, backbone: str, encoder: str) -> tuple[dict[str, Any], Tensors]:
    """The paper's code: its own network and its forms of the baselines, with a sequence or PLE."""
    options: dict[str, Any] = {}
    if backbone == "polarnet":
        options["rope"] = "as_released" if "encoder.rope.inv_freq" in state else "off"
    state.ignore("encoder.rope.inv_freq", ".mean", ".std")
    ours = state.linear("encoder.embedding_depot", "embedding.depots")
    ours |= state.linear("encoder.embedding_node", "embedding.customers")
    if encoder == "ple":
        options |= _polar_ple(state, ours, backbone)
        first = "stack.layers.0.shared_expert.feedforward.down.weight"
    else:
        options["layers"] = state.count("encoder.layers.")
        for layer in range(options["layers"]):
            ours |= _prefixed(f"stack.blocks.{layer}", _polar_block(state, f"encoder.layers.{layer}"))
        first = "stack.blocks.0.feedforward.down.weight"
    is_gated = "decoder.W_gate.weight" in state
    options["head"] = "gated" if is_gated else "plain"
    ours["decoder.query.weight"] = state.take("decoder.Wq_last.weight")
    ours["decoder.keys_values.weight"] = state.joined("decoder.Wk.weight", "decoder.Wv.weight")
    if "decoder.multi_head_combine.w_gate" in state:
        ours |= _prefixed("decoder.head.output", _mixture_output(state, "decoder.multi_head_combine"))
    else:
        ours |= state.linear("decoder.multi_head_combine", "decoder.head.output")
    if is_gated:
        ours |= state.linear("decoder.W_gate", "decoder.head.gate")
        ours |= state.linear("decoder.attr_mapping", "decoder.head.state")
        ours |= state.linear("decoder.add_n_normalization_1.norm", "decoder.head.norm_glimpse")
        ours |= state.linear("decoder.add_n_normalization_2.norm", "decoder.head.norm_output")
        ours |= _prefixed("decoder.head", _swiglu(state, "decoder.feed_forward"))
    choices = 4 if any("router" in name for name in ours if name.startswith("stack")) else 1
    return options | _widths(ours, first, choices), ours


def _polar_ple(state: ForeignState, ours: Tensors, backbone: str) -> dict[str, Any]:
    """Parts of PLE, added to ``ours``; the options that they mean."""
    layers = state.count("encoder.ple_layers.")
    experts = state.count("encoder.ple_layers.0.task_experts.")
    for layer in range(layers):
        theirs, place = f"encoder.ple_layers.{layer}", f"stack.layers.{layer}"
        ours |= _prefixed(f"{place}.shared_expert", _polar_block(state, f"{theirs}.shared_expert.layer"))
        tasks = [_polar_block(state, f"{theirs}.task_experts.{expert}.layer") for expert in range(experts)]
        ours |= _prefixed(f"{place}.task_experts", _as_experts(tasks))
        ours |= state.linear(f"{theirs}.prompt_depth_proj", f"{place}.gate.prompt")
        ours |= state.linear(f"{theirs}.task_gate_proj.0", f"{place}.gate.hidden")
        ours |= state.linear(f"{theirs}.task_gate_proj.2", f"{place}.gate.weights")
        ours[f"{place}.share_logit"] = state.take(f"{theirs}.alpha")
        if f"{theirs}.shared_norm.weight" in state:
            ours |= state.linear(f"{theirs}.shared_norm", f"{place}.norm_shared")
            ours |= state.linear(f"{theirs}.task_norm", f"{place}.norm_tasks")
    if "encoder.output_norm.weight" in state:
        ours |= state.linear("encoder.final_fusion", "stack.fusion.0")
        ours |= state.linear("encoder.output_norm", "stack.fusion.1")
    else:
        ours |= state.linear("encoder.final_fusion.0", "stack.fusion.0")
        ours |= state.linear("encoder.final_fusion.2", "stack.fusion.2")
    names = ("lift", "norm_lift", "hidden", None, "narrow", "norm_narrow", "tokens")
    for number, name in enumerate(names):
        if name is not None:
            ours |= state.linear(f"prompt_net.model.{number}", f"conditioning.prompt.{name}")
    options: dict[str, Any] = {"layers": layers, "task_experts": experts}
    has_film = "encoder.film_generator.film_net.0.weight" in state
    if has_film:
        for number in range(3):
            ours |= state.linear(f"encoder.film_generator.film_net.{2 * number}", f"conditioning.film.maps.{number}")
    return options | ({"film": has_film} if backbone == "polarnet" else {})


def _polar_block(state: ForeignState, theirs: str) -> Tensors:
    ours = {"attention.query_key_value.weight": state.joined(*(f"{theirs}.W{part}.weight" for part in "qkv"))}
    ours |= state.linear(f"{theirs}.multi_head_combine", "attention.output")
    ours |= state.linear(f"{theirs}.add_n_normalization_1.norm", "norm_attention")
    ours |= state.linear(f"{theirs}.add_n_normalization_2.norm", "norm_feedforward")
    forward = f"{theirs}.feed_forward"
    if f"{forward}.w_gate" in state:
        return ours | _mixture_feedforward(state, forward)
    if f"{forward}.l1.weight" in state:
        return ours | _swiglu(state, forward)
    return ours | state.linear(f"{forward}.W1", "feedforward.up") | state.linear(f"{forward}.W2", "feedforward.down")


def _rl4co_embedding(state: ForeignState) -> Tensors:
    depots = state.linear("encoder.init_embedding.project_global_feats", "embedding.depots")
    return depots | state.linear("encoder.init_embedding.project_customers_feats", "embedding.customers")


def _rl4co_decoder(state: ForeignState) -> Tensors:
    return {
        "decoder.query.weight": state.take("decoder.context_embedding.project_context.weight"),
        "decoder.keys_values.weight": state.take("decoder.project_node_embeddings.weight"),
        "decoder.unused": state.take("decoder.project_fixed_context.weight"),
    }


def _swiglu(state: ForeignState, theirs: str) -> Tensors:
    return {
        "feedforward.gate_up.weight": state.joined(f"{theirs}.l1.weight", f"{theirs}.l2.weight"),
        "feedforward.down.weight": state.take(f"{theirs}.l3.weight"),
    }


def _router(state: ForeignState, theirs: str) -> Tensors:
    return {"router.scores": state.take(f"{theirs}.w_gate"), "router.deviations": state.take(f"{theirs}.w_noise")}


def _mixture_feedforward(state: ForeignState, theirs: str) -> Tensors:
    experts = [f"{theirs}.experts.{number}" for number in range(state.count(f"{theirs}.experts."))]
    return {
        **_prefixed("feedforward", _router(state, theirs)),
        "feedforward.up.weight": state.joined(*(f"{expert}.fc1.weight" for expert in experts)),
        "feedforward.up.bias": state.joined(*(f"{expert}.fc1.bias" for expert in experts)),
        "feedforward.down.weight": torch.cat([state.take(f"{expert}.fc2.weight") for expert in experts], dim=1),
        "feedforward.down_bias": torch.stack([state.take(f"{expert}.fc2.bias") for expert in experts]),
    }


def _mixture_output(state: ForeignState, theirs: str) -> Tensors:
    experts = [f"{theirs}.experts.{number}" for number in range(state.count(f"{theirs}.experts."))]
    maps = {f"maps.{kind}": state.joined(*(f"{expert}.{kind}" for expert in experts)) for kind in ("weight", "bias")}
    return _router(state, theirs) | maps


def _as_experts(blocks: Sequence[Tensors]) -> Tensors:
    """Blocks side by side, as a stack of experts holds them: maps transposed, vectors with room to spread."""
    return {name: _stacked(name, torch.stack([block[name] for block in blocks])) for name in blocks[0]}


def _stacked(name: str, tensors: Tensor) -> Tensor:
    if ".router." in name:
        return tensors
    if name.startswith("norm_"):
        return tensors[:, None, None]
    if name.endswith(".weight"):
        return tensors.transpose(1, 2).contiguous()
    return tensors[:, None]


def _prefixed(prefix: str, tensors: Tensors) -> Tensors:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _widths(ours: Tensors, down: str, choices: int = 1) -> dict[str, int]:
    """Features of a node and hidden features, as shapes tell them; all known networks have eight heads."""
    return {"width": ours["embedding.depots.weight"].shape[0], "feedforward_width": ours[down].shape[1] // choices}


def _require_own_encoder(backbone: str, encoder: str) -> None:
    if encoder != "shared":
        raise ConfigError(f"{backbone} exists with its own stack only: --encoder shared")


CODES: dict[str, tuple[str, Callable[[ForeignState, str, str], tuple[dict[str, Any], Tensors]]]] = {
    "routefinder": ("RouteFinder", _routefinder),
    "mtpomo": ("RouteFinder", _mtpomo),
    "mvmoe": ("RouteFinder", _mvmoe),
    **dict.fromkeys(
        ("polarnet", "mtpomo_ablation", "mvmoe_ablation", "routefinder_ablation"), ("Routing-POLAR", _polar)
    ),
}
"""Backbones whose weights can be converted: the code that their names are of, and the conversion."""
