"""Trained models that ship with the package."""
