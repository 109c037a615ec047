"""The level of the engine that computes rollouts and gradients by kernels of its own."""
