"""The constructive process: state, mask and transition as batched tensor operations."""
