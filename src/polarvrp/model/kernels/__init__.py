"""Triton kernels of networks; nothing imports them where triton is absent."""
