"""Checks of all kernels against tensor operations in float32."""
