"""Objectives, refinement by local search, the trainer with its schedule, checkpoints and history."""
