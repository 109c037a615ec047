"""Where networks compute in bfloat16."""

import torch


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device computes bfloat16 natively: some GPUs; on CPUs float32 is faster by far."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
