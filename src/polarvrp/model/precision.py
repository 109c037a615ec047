"""Precision and compilation of networks on a GPU: bfloat16 where the card has it, repeated layers compiled."""

import torch

from polarvrp.model.blocks import Block
from polarvrp.model.policy import Policy
from polarvrp.model.stacks import PLELayer

MOST_COMPILATIONS = 128


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device computes bfloat16 natively: some GPUs; on CPUs float32 is faster by far."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def trains_in_bfloat16(device: torch.device, precision: str = "auto") -> bool:
    """Whether a training computes its matrix products in bfloat16.

    By ``auto`` it does where that is faster: on GPUs that have it, and on CPUs with AVX512-BF16 or AMX. Other CPUs
    emulate it, at a fiftieth of the speed of float32. Evaluations stay in float32 on any CPU.

    Args:
        device: Where it trains.
        precision: ``float32``, ``bfloat16`` or ``auto``.
    """
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cpu":
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return has_bfloat16(device)


def bfloat16_products(device: torch.device, enabled: bool) -> torch.autocast:
    """Context in which matrix products run in bfloat16, parameters staying as they are.

    Converted weights are not kept between uses: a captured graph would go on with those of its capture.

    Args:
        device: Where they run.
        enabled: False leaves everything as it is.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)


def no_autocast(device: torch.device) -> torch.autocast:
    """Context of a backward pass: each gradient has the precision of what it is the gradient of.

    Under autocast the products of float32 regions would get bfloat16 gradients.
    """
    return torch.autocast(device.type, enabled=False)


def prepare_compilation() -> None:
    """Set the compiler's options of this process.

    One function may be compiled for all the networks, sizes and precisions that a process meets: torch stops after
    eight and goes on without compiling, for good and with no more than a line in the log. Backward passes are compiled
    without autocast, as they run (:func:`no_autocast`); by default torch compiles them with that of the forward pass.
    """
    from torch._dynamo import config  # takes a second, and a CPU compiles nothing
    from torch._functorch import config as gradient_config

    config.recompile_limit = max(config.recompile_limit, MOST_COMPILATIONS)
    gradient_config.backward_pass_autocast = "off"


def compile_parts(policy: Policy) -> None:
    """Compile each layer of the encoder, anew for each shape that comes.

    Code for changing shapes would be slower, and one odd batch at the end of an epoch would make it the code of all.

    Layers are alike, so the first one's code serves them all, at a sixth of the time that a whole stack would take.
    Names of parameters stay as they are.

    Args:
        policy: On a GPU.
    """
    prepare_compilation()
    modules = list(policy.stack.modules())
    kind = PLELayer if any(isinstance(module, PLELayer) for module in modules) else Block
    for module in modules:
        if isinstance(module, kind):
            module.compile(dynamic=False)
