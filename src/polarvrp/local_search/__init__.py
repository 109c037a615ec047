"""Refinement of tours by local search, on CPU cores and in tensors."""
