"""Rollout without gradients and parallel scoring with gradients."""
