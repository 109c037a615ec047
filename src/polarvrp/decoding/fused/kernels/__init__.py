"""Triton kernels of the fused level; nothing imports them where triton is absent."""
