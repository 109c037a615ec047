"""Variants, instances, generators, exact checking of tours, symmetries, files."""
