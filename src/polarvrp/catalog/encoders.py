"""Encoders that a backbone can have."""

ENCODERS = ("shared", "deep", "ple")
