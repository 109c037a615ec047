"""Networks of two published codes by the names of their weights, written from their description for comparison.

``RouteFinder`` is the repository ai4co/routefinder on rl4co, ``POLAR`` that of the POLAR paper. Weights are drawn when
they are first asked for, so that one forward pass leaves a state dictionary in the names and shapes of the code.

Shape legend: B instances, N nodes, M queries an instance, T rows, d features.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from polarvrp.problem.instances import Instances

WIDTH, HEADS, HIDDEN, LAYERS, TOKENS = 32, 8, 48, 2, 6


class Weights(dict[str, Tensor]):
    """A state dictionary that grows."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self, name: str, *shape: int, around: float = 0.0) -> Tensor:
        if name not in self:
            noise = torch.randn(shape, generator=self.generator, dtype=torch.float64)
            drawn = around + noise * (0.3 if len(shape) < 2 else shape[-1] ** -0.5)
            self[name] = drawn.float().double()  # as files hold them
        return self[name]

    def linear(self, name: str, x: Tensor, outputs: int, bias: bool = True) -> Tensor:
        y = x @ self.draw(f"{name}.weight", outputs, x.shape[-1]).T
        return y + self.draw(f"{name}.bias", outputs) if bias else y

    def rms(self, name: str, x: Tensor) -> Tensor:
        scale = self.draw(f"{name}.weight", x.shape[-1], around=1.0)
        return scale * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    def instance_norm(self, name: str, x: Tensor) -> Tensor:
        """Over the rows of each instance and feature."""
        mean, variance = x.mean(1, keepdim=True), x.var(1, keepdim=True, unbiased=False)
        scale, shift = (self.draw(f"{name}.{kind}", x.shape[-1], around=1.0) for kind in ("weight", "bias"))
        return scale * (x - mean) / (variance + 1e-5).sqrt() + shift

    def swiglu(self, name: str, x: Tensor) -> Tensor:
        gate, up = (self.linear(f"{name}.{part}", x, HIDDEN, bias=False) for part in ("l1", "l2"))
        return self.linear(f"{name}.l3", gate * torch.sigmoid(gate) * up, x.shape[-1], bias=False)

    def mixture(self, name: str, x: Tensor, is_feedforward: bool) -> Tensor:
        """Two of four experts for each row, weighted by a softmax over the two."""
        scores = x @ self.draw(f"{name}.w_gate", x.shape[-1], 4)
        self.draw(f"{name}.w_noise", x.shape[-1], 4)
        self[f"{name}.mean"], self[f"{name}.std"] = torch.zeros(1), torch.ones(1)
        best, chosen = scores.topk(2)
        shares = torch.zeros_like(scores).scatter(-1, chosen, best.softmax(-1))
        outputs = []
        for expert in range(4):
            place = f"{name}.experts.{expert}"
            if is_feedforward:
                inner = self.linear(f"{place}.fc1", x, HIDDEN).relu()
                outputs.append(self.linear(f"{place}.fc2", inner, x.shape[-1]))
            else:
                outputs.append(self.linear(place, x, x.shape[-1]))
        return (torch.stack(outputs, -1) * shares[..., None, :]).sum(-1)


def split(x: Tensor, parts: int) -> Tensor:
    """Features in equal parts, ``[..., d]`` to ``[..., parts, d / parts]``."""
    return x.reshape(*x.shape[:-1], parts, -1)


def heads_of(x: Tensor) -> Tensor:
    return split(x, HEADS).transpose(1, 2)  # [B, H, T, D]


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
    scores = heads_of(query) @ heads_of(key).transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
    weights = (scores if bias is None else scores + bias[:, None]).softmax(-1)
    merged: Tensor = (weights @ heads_of(value)).transpose(1, 2).flatten(-2)
    return merged


def finite(x: Tensor) -> Tensor:
    return x.masked_fill(~x.isfinite(), 0.0)


def customers_of(instances: Instances[Tensor], coordinates_first: bool) -> Tensor:
    first = instances.num_depots
    demands = torch.stack((instances.demand_linehaul, instances.demand_backhaul), -1)
    rest = torch.cat((demands, instances.time_windows, instances.service_time[..., None]), -1)
    parts = (instances.locs, rest) if coordinates_first else (rest, instances.locs)
    return finite(torch.cat(parts, -1)[:, first:])


def pointer(glimpse: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    logits = 10 * torch.tanh(glimpse @ keys.transpose(1, 2) / WIDTH**0.5)
    return logits.masked_fill(~mask, -math.inf).log_softmax(-1)


def excluded(mask: Tensor) -> Tensor:
    return torch.zeros_like(mask, dtype=torch.float64).masked_fill(~mask, -math.inf)


def current_rows(h: Tensor, current: Tensor) -> Tensor:
    return torch.stack([rows[nodes] for rows, nodes in zip(h, current, strict=True)])


# RouteFinder's repository


def routefinder_nodes(w: Weights, backbone: str, instances: Instances[Tensor]) -> Tensor:
    """Embeddings of the nodes of instances with one depot."""
    depot = instances.locs[:, :1]
    if backbone == "routefinder":
        limit = instances.distance_limit[:, None, None]
        is_open = instances.open_route.double()[:, None, None]
        depot = finite(torch.cat((is_open, depot, limit, instances.time_windows[:, :1, 1:]), -1))
    place = "encoder.init_embedding.project"
    customers = customers_of(instances, backbone == "routefinder")
    rows = (
        w.linear(f"{place}_global_feats", depot, WIDTH, bias=False),
        w.linear(f"{place}_customers_feats", customers, WIDTH, bias=False),
    )
    x = torch.cat(rows, 1)
    for layer in range(LAYERS):
        x = ROUTEFINDER_LAYERS[backbone](w, layer, x)
    return w.rms("encoder.post_layers_norm.normalizer", x) if backbone == "routefinder" else x


def packed_attention(w: Weights, place: str, x: Tensor) -> Tensor:
    query, key, value = w.linear(f"{place}.Wqkv", x, 3 * WIDTH).chunk(3, -1)
    return w.linear(f"{place}.out_proj", attend(query, key, value), WIDTH)


def _routefinder_layer(w: Weights, layer: int, x: Tensor) -> Tensor:
    place = f"encoder.layers.{layer}"
    x = x + packed_attention(w, f"{place}.attention", w.rms(f"{place}.norm_attn.normalizer", x))
    return x + w.swiglu(f"{place}.ffn", w.rms(f"{place}.norm_ffn.normalizer", x))


def _mtpomo_layer(w: Weights, layer: int, x: Tensor) -> Tensor:
    place = f"encoder.net.layers.{layer}"
    x = w.instance_norm(f"{place}.1.normalizer", x + packed_attention(w, f"{place}.0.module", x))
    hidden = w.linear(f"{place}.2.module.0", x, HIDDEN).relu()
    return w.instance_norm(f"{place}.3.normalizer", x + w.linear(f"{place}.2.module.2", hidden, WIDTH))


def _mvmoe_layer(w: Weights, layer: int, x: Tensor) -> Tensor:
    place = f"encoder.net.layers.{layer}"
    x = w.instance_norm(f"{place}.norm1.normalizer", x + packed_attention(w, f"{place}.mha", x))
    return w.instance_norm(f"{place}.norm2.normalizer", x + w.mixture(f"{place}.dense", x, is_feedforward=True))


ROUTEFINDER_LAYERS: dict[str, Callable[[Weights, int, Tensor], Tensor]] = {
    "routefinder": _routefinder_layer,
    "mtpomo": _mtpomo_layer,
    "mvmoe": _mvmoe_layer,
}


def routefinder_log_probs(
    w: Weights, backbone: str, h: Tensor, instances: Instances[Tensor], current: Tensor, state: Tensor, mask: Tensor
) -> Tensor:
    """Log-probabilities of next nodes; the free load is that of pickups once there is one."""
    linehaul, backhaul, time, length, is_open = state.unbind(-1)
    load = torch.where(backhaul < 1, backhaul, linehaul)
    left = instances.distance_limit[:, None] - length
    left = torch.where(left.isinf(), torch.full_like(left, 10.0), left)
    features = (load, time, left) if backbone == "routefinder" else (load, time, is_open, left)
    context = torch.cat((current_rows(h, current), torch.stack(features, -1)), -1)
    query = w.linear("decoder.context_embedding.project_context", context, WIDTH, bias=False)
    key, value, logit_key = w.linear("decoder.project_node_embeddings", h, 3 * WIDTH, bias=False).chunk(3, -1)
    w.draw("decoder.project_fixed_context.weight", WIDTH, WIDTH)  # held, never used
    glimpse = attend(query, key, value, excluded(mask))
    if backbone == "mvmoe":
        glimpse = w.mixture("decoder.pointer.project_out", glimpse, is_feedforward=False)
    else:
        glimpse = w.linear("decoder.pointer.project_out", glimpse, WIDTH, bias=False)
    return pointer(glimpse, logit_key, mask)


# The code of the POLAR paper


def polar_nodes(w: Weights, backbone: str, encoder: str, instances: Instances[Tensor]) -> Tensor:
    """Embeddings of the nodes; depots in front, each with the limit."""
    depots = instances.num_depots
    limit = instances.distance_limit[:, None, None].expand(-1, depots, 1)
    first = w.linear("encoder.embedding_depot", finite(torch.cat((instances.locs[:, :depots], limit), -1)), WIDTH)
    customers = w.linear("encoder.embedding_node", customers_of(instances, coordinates_first=False), WIDTH)
    turn = _turning(w, instances.locs) if backbone == "polarnet" else None
    if encoder != "ple":
        x = torch.cat((first, customers), 1)
        for layer in range(LAYERS):
            x = _polar_layer(w, f"encoder.layers.{layer}", backbone, x, turn)
        return x
    flags = instances.flags.double()
    if backbone == "polarnet":
        film = flags
        for number, outputs in ((0, WIDTH), (2, WIDTH), (4, 2 * WIDTH)):
            film = w.linear(f"encoder.film_generator.film_net.{number}", film.relu() if number else film, outputs)
        customers = film[:, None, :WIDTH] * customers + film[:, None, WIDTH:]
    return _ple(w, backbone, torch.cat((first, customers), 1), _prompt(w, flags), turn)


def _prompt(w: Weights, flags: Tensor) -> Tensor:
    place = "prompt_net.model"
    x = _layer_norm(w, f"{place}.1", w.linear(f"{place}.0", flags, WIDTH, bias=False))
    x = w.linear(f"{place}.4", w.linear(f"{place}.2", x, WIDTH).relu(), 16)
    return split(w.linear(f"{place}.6", _layer_norm(w, f"{place}.5", x), TOKENS * WIDTH), TOKENS)


def _layer_norm(w: Weights, name: str, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    scale, shift = (w.draw(f"{name}.{kind}", x.shape[-1], around=1.0) for kind in ("weight", "bias"))
    return scale * centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() + shift


def _ple(w: Weights, backbone: str, x: Tensor, prompt: Tensor, turn: "Turning | None") -> Tensor:
    is_pre, nodes, mean_prompt = backbone in ("polarnet", "routefinder_ablation"), x.shape[1], prompt.mean(1)
    shared, tasks = x, torch.cat((x, prompt), 1)
    for layer in range(LAYERS):
        place = f"encoder.ple_layers.{layer}"
        shared = _polar_layer(w, f"{place}.shared_expert.layer", backbone, shared, turn)
        shared = w.rms(f"{place}.shared_norm", shared) if is_pre else shared
        context = (w.linear(f"{place}.prompt_depth_proj", mean_prompt, WIDTH, bias=False), shared.mean(1))
        hidden = w.linear(f"{place}.task_gate_proj.0", torch.cat(context, -1), WIDTH).relu()
        gate = w.linear(f"{place}.task_gate_proj.2", hidden, 4).softmax(-1)  # three experts, then the shared one
        shares = gate[:, :3] / gate[:, :3].sum(-1, keepdim=True) if is_pre else gate[:, :3]
        experts = [_polar_layer(w, f"{place}.task_experts.{k}.layer", backbone, tasks, turn) for k in range(3)]
        mixed = torch.stack([shares[:, k, None, None] * one[:, :nodes] for k, one in enumerate(experts)]).sum(0)
        mixed = mixed + w.draw(f"{place}.alpha").sigmoid() * gate[:, 3, None, None] * shared
        mixed = w.rms(f"{place}.task_norm", mixed) if is_pre else mixed
        tasks = torch.cat((mixed, tasks[:, nodes:]), 1)
    both = torch.cat((shared, tasks[:, :nodes]), -1)
    if is_pre:
        return w.rms("encoder.output_norm", w.linear("encoder.final_fusion", both, WIDTH, bias=False))
    return w.linear("encoder.final_fusion.2", w.linear("encoder.final_fusion.0", both, WIDTH).relu(), WIDTH)


Turning = Callable[[Tensor], Tensor]


def _turning(w: Weights, locs: Tensor) -> Turning:
    """Their rotary embedding: angles block after block, neighbours as pairs; rows after the nodes stay."""
    size, nodes = WIDTH // HEADS, locs.shape[1]
    frequencies = 10000.0 ** (-torch.arange(0, size // 2, 2, dtype=torch.float64) / (size // 2))
    w["encoder.rope.inv_freq"] = frequencies.float()
    angles = [2 * math.pi * locs[..., axis : axis + 1] * frequencies for axis in (0, 0, 1, 1)]
    cosine, sine = (function(torch.cat(angles, -1))[:, :, None] for function in (torch.cos, torch.sin))

    def turn(x: Tensor) -> Tensor:
        heads = split(x[:, :nodes], HEADS)
        other = torch.stack((-heads[..., 1::2], heads[..., ::2]), -1).flatten(-2)
        return torch.cat(((heads * cosine + other * sine).flatten(-2), x[:, nodes:]), 1)

    return turn


def _polar_layer(w: Weights, place: str, backbone: str, x: Tensor, turn: Turning | None) -> Tensor:
    is_pre = backbone in ("polarnet", "routefinder_ablation")
    scale = (2 * LAYERS) ** -0.5
    rows = w.rms(f"{place}.add_n_normalization_1.norm", x) if is_pre else x
    query, key, value = (w.linear(f"{place}.W{part}", rows, WIDTH, bias=False) for part in "qkv")
    if turn is not None:
        query, key = turn(query), turn(key)
    attended = w.linear(f"{place}.multi_head_combine", attend(query, key, value), WIDTH)
    if is_pre:
        x = x + scale * attended
        inner = w.rms(f"{place}.add_n_normalization_2.norm", x)
        result: Tensor = x + scale * w.swiglu(f"{place}.feed_forward", inner)
        return result
    x = w.instance_norm(f"{place}.add_n_normalization_1.norm", x + attended)
    if backbone == "mvmoe_ablation":
        update = w.mixture(f"{place}.feed_forward", x, is_feedforward=True)
    else:
        update = w.linear(f"{place}.feed_forward.W2", w.linear(f"{place}.feed_forward.W1", x, HIDDEN).relu(), WIDTH)
    return w.instance_norm(f"{place}.add_n_normalization_2.norm", x + update)


def polar_log_probs(
    w: Weights, backbone: str, is_gated: bool, h: Tensor, current: Tensor, state: Tensor, mask: Tensor
) -> Tensor:
    """Log-probabilities of next nodes; the forms of MTPOMO and MVMoE add their mask to the scores."""
    node = current_rows(h, current)
    context = torch.cat((node, state), -1)
    query = w.linear("decoder.Wq_last", context, WIDTH, bias=False)
    key, value = (w.linear(f"decoder.{name}", h, WIDTH, bias=False) for name in ("Wk", "Wv"))
    adds = backbone in ("mtpomo_ablation", "mvmoe_ablation")
    glimpse = attend(query, key, value, mask.double() if adds else excluded(mask))
    if is_gated:
        gate = torch.sigmoid(w.linear("decoder.W_gate", context, HEADS, bias=False))
        glimpse = (gate[..., None] * split(glimpse, HEADS)).flatten(-2)
        around = w.linear("decoder.multi_head_combine", glimpse, WIDTH) + node
        around = around + w.linear("decoder.attr_mapping", state, WIDTH, bias=False)
        inner = w.rms("decoder.add_n_normalization_1.norm", around)
        glimpse = w.rms("decoder.add_n_normalization_2.norm", inner + w.swiglu("decoder.feed_forward", inner))
    elif backbone == "mvmoe_ablation":
        glimpse = w.mixture("decoder.multi_head_combine", glimpse, is_feedforward=False)
    else:
        glimpse = w.linear("decoder.multi_head_combine", glimpse, WIDTH)
    return pointer(glimpse, h, mask)
